"""Devices and scopes: visible pools, fewest copies, private constants, conflicts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo, Target
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.patterns import op
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import prim_calls
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.target_kind import LoweredFunction
from tests.backends.toy_backends import Toy, chain, default_loops

pytestmark = pytest.mark.usefixtures("no_backends")
POOLS = (PoolInfo("sram"), PoolInfo("npu_sram"))


@dataclass(eq=False)
class Engine(Toy):
    """An accelerator with private memory that another one may share."""

    entries: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    visible_pools: tuple[str, ...] = ("npu_sram",)


def engines() -> str:
    """Two engines with a common private pool: one for sums, one for products."""
    BACKENDS.register(Engine({"sum": op("add")}, name="adder", device="npu0"))

    @dataclass(eq=False)
    class Other(Engine):
        pass

    BACKENDS.register(Other({"product": op("mul")}, name="multiplier", device="npu1"))
    return "adder, multiplier, host"


MODULE = chain(
    ("tanh", "x", "a"), ("add", "a z", "b"), ("mul", "b z", "c"), ("tanh", "c", "d")
)


def compiled(module: IRModule = MODULE, **given: Any) -> Compilation:
    return compile_for(module, target=engines(), **{"pools": POOLS, **given})


def copies(done: Compilation) -> int:
    """Return the number of tensors that a run copies between memories."""
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    kernels = (done.module.functions[call.callee] for call in prim_calls(main.body))
    return sum(kernel.attrs.get("op") == "device_copy" for kernel in kernels)


def is_right(done: Compilation, module: IRModule) -> bool:
    """Return whether a run on the host equals the graph."""
    rng = np.random.Generator(np.random.PCG64(2))
    entry = module.entry
    assert isinstance(entry, Function)
    inputs = {
        v.name: rng.normal(size=v.type.shape).astype(np.float32) for v in entry.params
    }
    with open_session(done, in_process=True) as session:
        result = session.run(inputs)
    error = evaluate_graph(module, inputs, op_table(), {})
    return all(
        np.allclose(result[v.name], error[v.name], atol=1e-6) for v in entry.results
    )


@pytest.mark.host_c
def test_tensor_between_engines_with_common_memory_is_not_copied() -> None:
    done = compiled()
    assert is_right(done, MODULE)
    assert copies(done) == 0, "the core can access the engines' memory"
    assert done.module.plan is not None
    places = done.module.plan.placements
    assert {places[name].pool for name in "abcz"} == {"npu_sram"}
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    run = text[text.index("int32_t toy_run(") :]
    between = run[run.index("npu0.start") : run.index("npu1.start")]
    assert "toy_tanh" not in between
    assert "toy_device_copy" not in run


@pytest.mark.host_c
def test_tensor_is_copied_once_for_all_its_readers() -> None:
    module = chain(("add", "x z", "a"), ("mul", "x a", "b"), ("tanh", "x", "c"))
    done = compiled(module, device_assignments=(("x", "cpu0", "sram"),))
    assert copies(done) == 1
    assert is_right(done, module)
    assert "io_sram" not in print_module(done.module)
    saved = parse_module(print_module(done.imported))
    assert compile_for(saved).tree.files == done.tree.files, "places are in the text"


def with_weights() -> IRModule:
    kind = TensorType((1, 2, 2, 3), FLOAT32)
    x, w, y = Value("x", kind), Value("w", kind, constant="w"), Value("y", kind)
    values = np.arange(12, dtype=np.float32).reshape(kind.shape)
    body = (Call("add", (x, w), (y,), ActivationAttrs(activation="none")),)
    main = Function("main", (x,), body, (y,))
    constants = {"w": Constant.from_array("w", values, FLOAT32)}
    return IRModule("toy", {"main": main}, constants, entry_name="main")


@pytest.mark.host_c
@pytest.mark.parametrize("by", ["backend", "user"])
def test_weights_are_copied_once_before_the_first_run(by: str) -> None:
    module = with_weights()
    if by == "backend":
        done = compiled(module)
    else:
        places = (("w", "cpu0", "npu_sram"),)
        done = compile_for(module, pools=POOLS, device_assignments=places)
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    start, run = text.index("void toy_init("), text.index("int32_t toy_run(")
    assert len(re.findall(r"memcpy\(pools->npu_sram", text[start:run])) == 1
    assert "memcpy" not in text[run:]
    assert copies(done) == 0
    assert is_right(done, module)


@pytest.mark.parametrize(
    ("device_assignments", "message"),
    [
        (
            (("b", "cpu0", ""),),
            "toy: the tensor b has two contradictory assignments: --assign-device b=cpu0 "
            "assigns it to cpu0, and the partition @adder_add_0, which computes b, "
            "assigns it to npu0. Try: omit one of the two.",
        ),
        (
            (("b", "npu0", "sram"),),
            "toy: the tensor b cannot be in sram: the device that computes it can access npu_sram. "
            "Try: another scope for --assign-device, or a --pool of that name.",
        ),
        (
            (("b", "npu0", ""), ("b", "npu1", "")),
            "toy: --assign-device b=npu1 is invalid: it contradicts --assign-device b=npu0.",
        ),
        (
            (("bb", "npu0", ""),),
            "toy: --assign-device bb=npu0 is invalid: the model has no such tensor. Try: b.",
        ),
        (
            (("b", "npu2", ""),),
            "toy: --assign-device b=npu2 is invalid: there is no device npu2. "
            "Try: one of cpu0, npu0, npu1.",
        ),
        (
            (("b", "npu0", "dtcm"),),
            "toy: --assign-device b=npu0:dtcm is invalid: there is no pool dtcm to write to. "
            "Try: one of sram, npu_sram.",
        ),
    ],
)
def test_contradictory_assignments_are_reported_with_both_origins(
    device_assignments: tuple[tuple[str, str, str], ...], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(device_assignments=device_assignments)
    assert str(caught.value) == message


def test_missing_pool_is_reported() -> None:
    with pytest.raises(
        UsageError,
        match=r"no pool can hold the tensor .: the device that .* it cannot access any of sram",
    ):
        compiled(pools=(PoolInfo("sram"),))


def test_scopes_of_kernel_parameters_propagate_to_the_graph() -> None:
    """The parameters of a PrimFunc name a scope, in which its arguments must be."""
    text = """firmwright ir 2
module @net attrs {entry="main"}
pool @sram {}
pool @fast {}
func @k(in x: i8[8] scope(fast), out y: i8[8] scope(fast)) { for i in 0..8 { y[i] = x[i] } }
graph @main(%x: i8[8] quant(0.5, 0)) -> (%z) {
  %a: i8[8] quant(0.5, 0) = relu(%x)
  %b: i8[8] quant(0.5, 0) = @k(%a)
  %z: i8[8] quant(0.5, 0) = relu(%b)
}
"""
    done = compile_for(parse_module(text))
    assert done.module.plan is not None
    pools = {name: place.pool for name, place in done.module.plan.placements.items()}
    assert (pools["a"], pools["b"], pools["x"]) == ("fast", "fast", "sram")
    pinned = replace(parse_module(text)).functions["main"]
    assert isinstance(pinned, Function)
    with_copy = compile_for(parse_module(text), pool_assignments=(("a", "sram"),))
    assert copies(with_copy) == 1


def test_regions_have_the_scopes_of_their_tensors() -> None:
    seen: list[tuple[str, ...]] = []

    def hook(function: Function, module: IRModule, target: Target) -> LoweredFunction:
        kernel = BackendKernel(function, module, target)
        seen.append(tuple(kernel.scope(b) for b in (*kernel.inputs, *kernel.outputs)))
        return default_loops(function, module, target)

    BACKENDS.register(
        Engine({"sum": op("add")}, name="adder", device="npu0", hook=hook)
    )
    module = chain(("add", "x z", "a"), ("tanh", "a", "b"))
    compile_for(module, target="adder, host", pools=POOLS)
    assert seen == [("npu_sram", "npu_sram", "npu_sram")]
