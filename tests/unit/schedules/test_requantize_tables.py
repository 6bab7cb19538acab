"""Tables and rounding multiply-highs in default loops, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import BOOL, INT8, INT16, UINT8, DType
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.graph.attributes.base import NO_ATTRS, OpAttrs
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.attributes.values import LeakyReluAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import declared_buffers, walk
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from tests.unit.ir.verified import verify_prim_func

COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
TABLES = {
    "add_n": 0,
    "prelu": 1,
    "quantize": 1,
    "relu": 1,
    "relu6": 1,
    "relu_0_to_1": 1,
    "relu_n1_to_1": 1,
    "squared_difference": 2,
    **dict.fromkeys(COMPARISONS, 2),
}
"""Operators of int8, and the number of tables of their kernels."""
SHORTS = (
    "abs",
    "add",
    "equal",
    "leaky_relu",
    "mul",
    "quantize",
    "relu",
    "squared_difference",
    "sub",
)
TWO_INPUTS = {
    "add",
    "add_n",
    "mul",
    "prelu",
    "squared_difference",
    "sub",
    *COMPARISONS,
}
ATTRS: dict[str, OpAttrs] = {
    "add": ActivationAttrs(activation="relu"),
    "mul": ActivationAttrs(activation="none"),
    "sub": ActivationAttrs(activation="none"),
    "leaky_relu": LeakyReluAttrs(alpha=0.1),
}


def call_of(op: str, kind: DType, seed: int) -> OpCall:
    rng = np.random.default_rng(seed)
    shape = (256, 256)
    result = BOOL if op in COMPARISONS else kind

    def tensor(dtype: DType, scale: float) -> TensorType:
        point = 0 if kind == INT16 else int(rng.integers(dtype.min, dtype.max + 1))
        return TensorType(
            shape, dtype, Quantization((float(np.float32(scale)),), (point,))
        )

    inputs = [
        tensor(kind, rng.uniform(0.01, 0.1)) for _ in range(1 + (op in TWO_INPUTS))
    ]
    y = (
        tensor(result, rng.uniform(0.03, 0.1))
        if result != BOOL
        else TensorType(shape, BOOL)
    )
    if op == "add_n":
        inputs, y = [inputs[0]] * 2, inputs[0]
    return OpCall(op, tuple(inputs), (y,), ATTRS.get(op, NO_ATTRS))


def check(call: OpCall, name: str) -> tir.PrimFunc:
    """Compare the kernel with the reference for all pairs of int8, or many of int16."""
    rng, kind = np.random.default_rng(7), call.input(0).dtype
    if kind == INT16:
        low, high = kind.min, kind.max + 1
        arrays = [
            np.arange(low, high).reshape(256, 256),
            rng.integers(low, high, (256, 256)),
        ]
        arrays[1][0, :4] = low, low, high - 1, high - 1
    else:
        arrays = list(np.meshgrid(*[np.arange(kind.min, kind.max + 1)] * 2))
    arrays = [array.astype(kind.np) for array in arrays[: len(call.inputs)]]
    (schedule,) = (each for each in SCHEDULES if each.name == name)
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    y = np.zeros(call.output.shape, call.output.dtype.np)
    args = dict(zip([param.name for param in func.params], [*arrays, y], strict=True))
    interpret(func, args, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, op_table()[call.op].reference(call, arrays)[0])
    return func


def intrinsics_of(func: tir.PrimFunc) -> set[str]:
    return {
        part.name for part in walk(func.body) if isinstance(part, tir.IntrinsicCall)
    }


@pytest.mark.parametrize("op", TABLES)
def test_int8_functions_of_one_value_are_tables(op: str) -> None:
    for seed in range(3):
        func = check(call_of(op, INT8, seed), f"scalar.{op}.unrolled")
        tables = [
            name for name in declared_buffers(func.body) if name.startswith("table")
        ]
        assert len(tables) == TABLES[op]
        assert "requantize_twice" not in intrinsics_of(func)


@pytest.mark.parametrize("op", SHORTS)
def test_int16_requantizes_by_rounding_multiply_highs(op: str) -> None:
    for seed in range(3):
        func = check(call_of(op, INT16, seed), f"scalar.{op}.unrolled")
        assert "requantize_doubled" in intrinsics_of(func)


@pytest.mark.parametrize("kind", [INT8, UINT8], ids=lambda kind: kind.name)
def test_cores_without_wide_offsets_have_tables_in_loops(kind: DType) -> None:
    func = check(call_of("quantize", kind, 5), "scalar.quantize.requantized")
    assert "table" in declared_buffers(func.body)


def test_a_value_too_wide_for_one_multiply_high_is_requantized_as_defined() -> None:
    wide = TensorType((256, 256), INT8, Quantization((1.0,), (0,)))
    fine = TensorType((256, 256), INT8, Quantization((2.0**-24,), (0,)))
    func = check(OpCall("prelu", (wide, wide), (fine,)), "scalar.prelu.unrolled")
    assert "requantize_twice" in intrinsics_of(func)
