"""Tests of outlining: parameters of shared functions, their cost and the savings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT32
from firmwright.base.errors import InternalError, ModelError
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.tir.cost_model import Cost, estimate_cost
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable, Operand
from firmwright.ir.tir.traversal import Node, rewrite_func, walk
from firmwright.ir.tir.verify import verify_module
from firmwright.passes.tir.dedupe_functions import dedupe_functions
from firmwright.passes.tir.outline_common_kernels import outline_common_kernels
from firmwright.passes.tir.shape_abstraction import (
    fill_holes,
    flatten_buffers,
    make_template,
)

SHIFTED = Intrinsic(
    "shifted",
    (Operand("x", "in", INT32), Operand("by", "imm", INT32)),
    lambda x, by: x >> by,
    "return x >> by;",
    "x shifted.",
    INT32,
)
INTRINSICS: IntrinsicTable = {"shifted": SHIFTED}
ROWS = """\
  for row in 0..{rows} {{
    for i in 0..{width} {{
      y[row, i] = x[row, i] * w[i] + {added}
    }}
  }}"""
IMMEDIATE = """\
  for row in 0..{rows} {{
    for i in 0..{width} {{
      y[row, i] = shifted(x[row, i] * w[i], {width}):i32
    }}
  }}"""


def kernel(number: int, rows: int, width: int, body: str) -> str:
    shape = f"i32[{rows},{width}]"
    text = body.format(rows=rows, width=width, added=number)
    return f"""\
func @k{number}(in x: {shape} align(4), out y: {shape} align(4)) index(i32)
    attrs {{op="scale", schedule="rows", comment="scale {width}"}} span("m", 0, {number}) {{
  alloc_const w: i32[{width}] scope(const) align(4) = @k{number}.w
{text}
}}"""


def module(*shapes: tuple[int, int], body: str = ROWS, goal: str = "size") -> IRModule:
    """Return a module with a kernel per shape, each reading the buffer before it."""
    kernels = [kernel(n, *shape, body) for n, shape in enumerate(shapes)]
    constants = [
        f"const @k{n}.w = i32[{w}] {list(range(n + 1, n + 1 + w))}"
        for n, (_, w) in enumerate(shapes)
    ]
    lines, at = [], 0
    calls = []
    for n, (rows, width) in enumerate(shapes):
        size = 4 * rows * width
        for name in ("a", "b"):
            lines.append(
                f"  decl {name}{n}: i32[{rows},{width}] align(4) = ptr(sram, {at}, {size}, rw)"
            )
            at += size
        extent = rows * width
        calls.append(
            f"  call @k{n}(ptr(a{n}, 0, {extent}, r), ptr(b{n}, 0, {extent}, w)) "
            f'op {n} span("m", 0, {n})'
        )
    main = "\n".join(
        [
            f"func @run(pool sram: u8[{at}] scope(pool) align(16)) attrs {{aot_main=true}} {{",
            *lines,
            *calls,
            "}",
        ]
    )
    head = f'attrs {{entry="run", optimize="{goal}"}}'
    return parse_module(
        "\n".join([head, *constants, *kernels, main, ""]), fragment=True
    )


def price(func: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
    """Return the predicted time of a kernel as if its code were large and slow."""
    cost = estimate_cost(func, INTRINSICS, arguments=arguments)
    return replace(cost, instructions=100_000 + cost.instructions, code_bytes=500)


def shared(found: IRModule) -> IRModule:
    """Run the pass and verify the result."""
    after = outline_common_kernels(found, INTRINSICS, price)
    verify_module(after, {}, INTRINSICS)
    return after


def served(found: IRModule) -> list[str]:
    return [f.code for f in found.functions.values() if isinstance(f, tir.PrimFunc)][
        :-1
    ]


def pool_after(found: IRModule) -> Sequence[int]:
    """Return the contents of the pool after a run."""
    main = found.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    size = main.params[0].value.shape[0]  # type: ignore[union-attr]
    pool = np.arange(size // 4, dtype=np.int32).view(np.uint8)
    Interpreter(found.functions, INTRINSICS, found.constants).run("run", {"sram": pool})
    return [int(value) for value in pool]


def test_kernels_of_different_shapes_share_a_function_with_equal_results() -> None:
    before = module((3, 5), (2, 7), (4, 5))
    after = shared(before)
    assert served(after) == ["k0", "k0", "k0"]
    funcs = [after.functions[f"k{n}"] for n in range(3)]
    assert all(isinstance(f, tir.PrimFunc) for f in funcs)
    names = [
        [(p.name, p.role) for p in f.params[2:]]
        for f in funcs
        if isinstance(f, tir.PrimFunc)
    ]
    assert names[0] == [
        ("w", "const"),
        ("row_count", "scalar"),
        ("i_count", "scalar"),
        ("offset", "scalar"),
    ]
    assert names == [names[0]] * 3
    main = after.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    calls = [node for node in walk(main.body) if isinstance(node, tir.PrimFuncCall)]
    given = [
        [a.value for a in call.args if isinstance(a, tir.IntImm)] for call in calls
    ]
    assert given == [[3, 5, 0], [2, 7, 1], [4, 5, 2]]
    assert pool_after(after) == pool_after(before)


def test_shared_code_is_printed_once_and_lists_its_operators() -> None:
    found = replace(shared(module((3, 5), (2, 7))), name="m")
    text = str(emit_model(found, INTRINSICS).files["model/m.c"])
    assert text.count("_KERNEL void") == 1
    assert "scale 5\n * scale 7\n * Shared by operators 0, 1.\n * schedule rows" in text
    assert "y[row * i_count + i] = x[row * i_count + i] * w[i] + offset;" in text
    assert "m_k0(a1, b1, k1_w, 2, 7, 1);" in text


def test_kernels_that_print_differently_cannot_share() -> None:
    after = shared(module((3, 5), (2, 7)))
    other = after.functions["k1"]
    assert isinstance(other, tir.PrimFunc)

    def damaged(node: Node) -> Node | None:
        return (
            tir.IntImm(3, node.dtype)
            if isinstance(node, tir.IntImm) and node.value == 0
            else None
        )

    with pytest.raises(InternalError, match="share k0 print differently"):
        emit_model(after.with_function(rewrite_func(other, damaged)), INTRINSICS)


def test_a_required_immediate_prevents_sharing() -> None:
    assert served(shared(module((3, 5), (2, 7), body=IMMEDIATE))) == ["k0", "k1"]
    assert served(shared(module((3, 5), (2, 5), body=IMMEDIATE))) == ["k0", "k0"]


@pytest.mark.parametrize("goal", ["speed", "balanced", "ram", "size"])
def test_the_goal_limits_the_slowdown_of_sharing(goal: str) -> None:
    found = module((3, 5), (2, 7), goal=goal)

    def slower(func: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
        return Cost(105_000 if arguments else 100_000, None, 500)

    slow = outline_common_kernels(found, INTRINSICS, slower)
    assert (served(slow) == ["k0", "k0"]) == (goal == "size")
    free = outline_common_kernels(
        found, INTRINSICS, lambda *_: Cost(100_000, None, 500)
    )
    assert (served(free) == ["k0", "k0"]) == (goal != "speed")


@pytest.mark.parametrize(
    ("others_time", "is_shared"), [(100_000, False), (10**8, True)]
)
def test_slow_sharing_is_permitted_as_long_as_the_program_loses_little(
    others_time: int, is_shared: bool
) -> None:
    """Two calls lose five percent of their time, and a third call never shares."""
    found = module((3, 5), (2, 7), goal="balanced")
    alone = module((3, 5), (2, 7), (4, 5), goal="balanced", body=IMMEDIATE).functions
    other = alone["k2"]
    assert isinstance(other, tir.PrimFunc)
    found = found.with_function(other)
    main = found.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    call = tir.PrimFuncCall("k2", ())
    body = tir.Seq(
        (
            main.body,
            tir.For(
                tir.Var("i", INT32), tir.IntImm(0, INT32), tir.IntImm(3, INT32), call
            ),
        )
    )
    found = found.with_function(replace(main, body=body))

    def slower(func: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
        if func.name == "k2":
            return Cost(others_time, None, 500)
        return Cost(105_000 if arguments else 100_000, None, 500)

    after = outline_common_kernels(found, INTRINSICS, slower)
    kernels = [after.functions[name] for name in ("k0", "k1")]
    codes = [func.code for func in kernels if isinstance(func, tir.PrimFunc)]
    assert (codes == ["k0", "k0"]) == is_shared


def test_a_group_is_split_by_its_most_used_number() -> None:
    """The width is in every index; if expensive, kernels of one width share code."""
    found = module((3, 5), (3, 7), (2, 5), (2, 7), goal="balanced")

    def dear(func: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
        return Cost(100_000 * (1 + ("i_count" in arguments)), None, 500)

    assert served(outline_common_kernels(found, INTRINSICS, dear)) == [
        "k0",
        "k1",
        "k0",
        "k1",
    ]


def test_kernels_that_differ_little_are_left_to_dedupe_functions() -> None:
    found = module((3, 5), (3, 5))
    assert shared(found) is found
    assert set(dedupe_functions(found).functions) == {"k0", "run"}
    kept = shared(module((3, 5), (2, 7)))
    assert dedupe_functions(kept) is kept


def test_a_shared_kernel_with_the_wrong_shape_is_out_of_bounds() -> None:
    after = shared(module((3, 5), (2, 7)))
    main = after.functions["run"]
    assert isinstance(main, tir.PrimFunc)

    def longer(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall):
            return None
        return replace(
            node, args=(*node.args[:4], tir.IntImm(8, INT32), *node.args[5:])
        )

    with pytest.raises(
        ModelError, match=r"@k1.*index 0 is in 0\.\.\d+, outside of 0\.\.\d+"
    ):
        verify_module(after.with_function(rewrite_func(main, longer)), {}, INTRINSICS)


def test_flattened_kernels_are_equivalent_and_holes_can_be_refilled() -> None:
    before = module((3, 5))
    func = before.functions["k0"]
    assert isinstance(func, tir.PrimFunc)
    flat = flatten_buffers(func)
    assert flat is not None
    assert [p.value.shape for p in flat.params] == [(15,), (15,)]  # type: ignore[union-attr]
    assert pool_after(before.with_function(flat)) == pool_after(before)
    numbers = make_template(flat, INTRINSICS).numbers
    assert fill_holes(flat, {n.place: n.value for n in numbers}) == flat
    assert [n.value.value for n in numbers if n.role == "stride"] == [5, 5]


def test_equal_merging_keys_differ_only_in_constants_and_scalars() -> None:
    found = module((3, 5), (3, 5), (2, 5), (3, 7))
    keys = [
        make_template(f, INTRINSICS).merging_key
        for f in found.functions.values()
        if isinstance(f, tir.PrimFunc)
    ][:-1]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_kernels_with_zeros_of_two_signs_share_no_code() -> None:
    kernels = [
        f"""\
func @k{n}(in x: f32[4], out y: f32[4]) attrs {{op="scale", comment="scale 4"}} {{
  for i in 0..4 {{
    y[i] = 1.0 / (x[i] * {zero})
  }}
}}"""
        for n, zero in enumerate(("0.0", "-0.0"))
    ]
    main = """\
func @run(pool sram: u8[48] scope(pool) align(16)) attrs {aot_main=true} {
  decl a: f32[4] align(4) = ptr(sram, 0, 16, rw)
  decl b: f32[4] align(4) = ptr(sram, 16, 16, rw)
  decl c: f32[4] align(4) = ptr(sram, 32, 16, rw)
  call @k0(ptr(a, 0, 4, r), ptr(b, 0, 4, w)) op 0
  call @k1(ptr(a, 0, 4, r), ptr(c, 0, 4, w)) op 1
}
"""
    head = 'attrs {entry="run", optimize="size"}'
    found = parse_module("\n".join([head, *kernels, main]), fragment=True)
    first, second = found.kernel("k0"), found.kernel("k1")
    assert first.body != second.body
    templates = [make_template(kernel, {}) for kernel in (first, second)]
    assert templates[0].key != templates[1].key
    assert set(dedupe_functions(found, {}).functions) == {"k0", "k1", "run"}
