"""Constant staging: each step gets its constants; running copies are not disturbed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.ir import tir
from firmwright.ir.constant_pools import (
    IMAGE_ALIGNMENT,
    build_pool_image,
    unlinked_pool_images,
)
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import used_constants, walk
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.intrinsics import BASE_INTRINSICS, CONSTANT_LOADS
from firmwright.ops.registry import op_table
from firmwright.passes.tir import assign_constant_memory, stage_constants
from firmwright.usmp.memory_planning import plan_memory

TEXT = """firmwright ir 2
module @net
attrs {entry="run"}
io arena {
  input %x = "x": i8[16]
  output %y = "y": i8[16]
}
const @one = i8[16] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
const @two = i32[16] [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 9]
const @three = i8[3] [1, 2, 3]

func @first(in x: i8[16], out y: i8[16]) attrs {op="first"} {
  alloc_const w: i8[16] scope(const) = @one
  alloc_const t: i8[3] scope(const) = @three
  for i in 0..16 { y[i] = min(x[i], w[i]) }
  y[0] = t[1]
}
func @second(in x: i8[16], out y: i8[16]) attrs {op="second"} {
  alloc_const w: i32[16] scope(const) align(4) = @two
  alloc_const v: i8[16] scope(const) = @one
  for i in 0..16 { y[i] = cast(i8, max(cast(i32, min(x[i], v[i])), w[i])) }
}
func @plain(in x: i8[16], out y: i8[16]) attrs {op="plain"} {
  for i in 0..16 { y[i] = max(x[i], 3) }
}
func @run() attrs {aot_main=true} {
  allocate x: i8[16] align(16) as input
  allocate y: i8[16] align(16) as output
  allocate a: i8[16] align(16) as activation
  allocate b: i8[16] align(16) as activation
  call @first(ptr(x, 0, 16, r), ptr(a, 0, 16, w)) op 0
  call @plain(ptr(a, 0, 16, r), ptr(b, 0, 16, w)) op 1
  for i in 0..2 {
    call @second(ptr(b, 0, 16, r), ptr(a, 0, 16, w)) op 2
    call @first(ptr(a, 0, 16, r), ptr(b, 0, 16, w)) op 3
  }
  call @second(ptr(b, 0, 16, r), ptr(y, 0, 16, w)) op 4
}
"""
SCOPES = ("global", "external", "port", "async")


@pytest.fixture
def net() -> Callable[..., IRModule]:
    """Return the module of the text with constants assigned to the pools and staged."""

    def make(*pools: PoolInfo) -> IRModule:
        module = parse_module(TEXT, "net.fwir")
        module = stage_constants.run(
            assign_constant_memory.run(replace(module, pools=pools))
        )
        verify_module(module, op_table(), BASE_INTRINSICS)
        return module

    return make


def ro(scope: str, size_bytes: int | None = None, name: str = "away") -> PoolInfo:
    return PoolInfo(name, size_bytes, access="ro", scope=scope)


def in_order(module: IRModule) -> list[str]:
    """Return the AOT main's calls and loads in order; a load by its staging buffer."""
    found = []
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    for node in walk(main.body):
        if isinstance(node, tir.PrimFuncCall):
            found.append(node.callee)
        elif isinstance(node, tir.For):
            found.append("loop")
        elif isinstance(node, tir.Evaluate) and isinstance(
            node.call.args[0], tir.AccessPtr
        ):
            found.append(f"{node.call.name} {node.call.args[0].buffer.name}")
    return found


def executed(module: IRModule, x: np.ndarray) -> np.ndarray:
    """Return the planned module's result in a pool with random initial contents."""
    module = plan_memory(module, "greedy_by_size")
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    assert module.plan is not None
    pool = np.full(module.plan.pool_bytes["sram"], 0x55, np.uint8)
    places = module.plan.placements
    pool[places["x"].offset : places["x"].offset + 16] = x.view(np.uint8)
    functions = {
        n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)
    }
    interpret(main, {"sram": pool}, BASE_INTRINSICS, functions, module.constants)
    return pool[places["y"].offset : places["y"].offset + 16].view(np.int8)


@pytest.mark.parametrize("scope", SCOPES)
def test_results_do_not_depend_on_the_constant_memory(
    scope: str, net: Callable[..., IRModule]
) -> None:
    x = np.random.default_rng(3).integers(-128, 128, 16).astype(np.int8)
    np.testing.assert_array_equal(executed(net(ro(scope)), x), executed(net(), x))


def test_without_a_pool_for_constants_nothing_changes() -> None:
    module = parse_module(TEXT, "net.fwir")
    assert assign_constant_memory.run(module) is module
    assert stage_constants.run(module) is module


@pytest.mark.parametrize("scope", ["external", "port", "async"])
def test_kernels_do_not_link_constants_of_separate_pools(
    scope: str, net: Callable[..., IRModule]
) -> None:
    module = net(ro(scope))
    kernels = [f for f in module.functions.values() if f is not module.entry]
    assert not any(
        used_constants(f.body) for f in kernels if isinstance(f, tir.PrimFunc)
    )
    assert {constant.pool for constant in module.constants.values()} == {"away"}


def test_a_synchronous_load_directly_precedes_its_step(
    net: Callable[..., IRModule],
) -> None:
    assert in_order(net(ro("port"))) == [
        "const_load first_constants",
        "first",
        "plain",
        "const_load second_constants",
        "loop",
        "second",
        "first",
        "const_load second_constants_1",
        "second",
    ]


def test_an_asynchronous_load_overlaps_the_previous_step(
    net: Callable[..., IRModule],
) -> None:
    assert in_order(net(ro("async"))) == [
        "const_load_start first_constants",
        "const_load_wait first_constants",
        "first",
        "const_load_start second_constants",
        "plain",
        "const_load_wait second_constants",
        "const_load_start second_constants_1",
        "loop",
        "second",
        "first",
        "const_load_wait second_constants_1",
        "second",
    ]


def test_a_staging_buffer_is_live_from_its_load_to_its_step(
    net: Callable[..., IRModule],
) -> None:
    made = plan_memory(net(ro("async")), "greedy_by_size").plan
    assert made is not None
    live = {buffer.name: buffer.live for buffer in made.buffers}
    # 0 start, 1 wait, 2 first, 3 start, 4 plain, 5 wait, 6 start, 7 and 8 the loop,
    # 9 wait, 10 second
    spans = {
        name: [(r.first, r.end) for r in live[name]]
        for name in live
        if "constants" in name
    }
    assert spans == {
        "first_constants": [(0, 3)],
        "second_constants": [(3, 9)],
        "second_constants_1": [(6, 11)],
    }


def test_the_image_holds_every_block_at_an_aligned_offset(
    net: Callable[..., IRModule],
) -> None:
    module = net(ro("port"))
    (image,) = unlinked_pool_images(module)
    assert list(image.offsets) == [
        "first_constants",
        "second_constants",
        "second_constants_1",
    ]
    for name, offset in image.offsets.items():
        data = module.constants[name].data
        assert offset % IMAGE_ALIGNMENT == 0
        assert image.data[offset : offset + len(data)] == data
    original = parse_module(TEXT, "net.fwir").constants
    whole = module.constants[
        "second_constants"
    ].data  # of the loop: both kernels' constants
    assert [whole.count(constant.data) for constant in original.values()] >= [1, 1, 1]


def test_pools_fill_in_the_order_given_each_up_to_its_limit(
    net: Callable[..., IRModule],
) -> None:
    module = net(ro("global", 32, "near"), ro("port"))
    assert {name: c.pool for name, c in module.constants.items()} == {
        "one": "near",
        "three": "near",
        "second_constants": "away",
    }
    assert len(build_pool_image(module, module.pools[1]).data) == 64 + 16


def test_constants_that_do_not_fit_are_an_error(net: Callable[..., IRModule]) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        net(ro("global", 16, "near"), ro("external", 64))
    assert str(caught.value) == (
        "the constants do not fit: they need 112 bytes, near and away may hold 80. "
        "Try: a further pool for the rest, by --const-pool, or --optimize size."
    )
    assert [r.need_bytes for r in caught.value.regions] == [112]


def test_a_constant_loaded_by_several_steps_is_counted_per_step(
    net: Callable[..., IRModule],
) -> None:
    with pytest.raises(
        DoesNotFitError, match=r"they need 224 bytes, away may hold 112\."
    ):
        net(ro("port", 112))


def test_a_pool_cannot_have_the_name_of_a_buffer(net: Callable[..., IRModule]) -> None:
    with pytest.raises(
        UsageError, match="pool a has the name of one of the model's buffers"
    ):
        net(ro("port", name="a"))


@pytest.mark.parametrize("scope", SCOPES)
def test_module_text_records_constant_pools(
    scope: str, net: Callable[..., IRModule]
) -> None:
    module = net(ro(scope))
    text = print_module(module)
    assert " in(@away)\n" in text
    assert parse_module(text, "net.fwir") == module


def test_loads_occur_only_in_the_aot_main() -> None:
    for name in CONSTANT_LOADS:
        assert "#error" in BASE_INTRINSICS[name].portable
