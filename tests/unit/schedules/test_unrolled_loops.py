"""Unrolled default loops: fewer instructions by prediction, every iteration once."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16
from firmwright.base.quant import Quantization
from firmwright.ir.core import Target
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.attributes.values import AxesAttrs, ExpressionAttrs
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.lower.lowering import Lowering
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import DEFAULT_SCHEDULE, NO_CONFIG
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.registry import SCHEDULES as EVERY_SCHEDULE
from firmwright.schedules.scalar.unrolled_loops import SCHEDULES
from firmwright.targets.cost_weights import cost_weights_for
from firmwright.targets.registry import parse_target, target_features

IMAGE = TensorType((1, 7, 7, 32), INT8, Quantization((0.1,), (3,)))
MEAN = TensorType((1, 32), INT8, Quantization((0.1,), (3,)))
ROW = TensorType((1, 1000), FLOAT32)
BYTES = TensorType((1, 1000), INT8, Quantization((0.1,), (3,)))
SHORTS = TensorType((1, 1000), INT16, Quantization((2**-12,), (0,)))
CURVE = TensorType((1, 1000), INT16, Quantization((2**-15,), (0,)))
CALLS = (
    (OpCall("mean", (IMAGE,), (MEAN,), AxesAttrs(axes=(1, 2), keep_dims=False)), 0.5),
    (OpCall("add", (ROW, ROW), (ROW,), ActivationAttrs(activation="none")), 0.8),
    (OpCall("quantize", (ROW,), (BYTES,)), 0.95),
    (
        OpCall(
            "expression", (ROW, ROW), (ROW,), ExpressionAttrs(formula="max(a, 0.0) * b")
        ),
        0.85,
    ),
)


@pytest.mark.parametrize(
    ("call", "bar"), CALLS, ids=lambda value: getattr(value, "op", "")
)
def test_unrolled_loops_take_fewer_instructions(call: OpCall, bar: float) -> None:
    (schedule,) = (
        item for item in SCHEDULES if item.name == f"scalar.{call.op}.unrolled"
    )
    default, unrolled = Kernel("kernel", call), Kernel("kernel", call)
    op_table()[call.op].lower(call, default)
    schedule.build(call, NO_CONFIG, unrolled)
    weights = cost_weights_for(Target("cortex-m", (("mcpu", "cortex-m4"),)))
    before, after = (
        estimate_cost(kernel.build(), INTRINSICS, weights).instructions
        for kernel in (default, unrolled)
    )
    assert after <= bar * before


def _pool(kind: TensorType) -> Call:
    size = {
        "size": (2, 2),
        "stride": (2, 2),
        "padding": (0, 0, 0, 0),
        "dilation": (1, 1),
    }
    shape = (1, kind.shape[1] // 2, kind.shape[2] // 2, kind.shape[3])
    result = Value("y", TensorType(shape, kind.dtype, kind.quantization))
    return Call(
        "max_pool2d",
        (Value("x", kind),),
        (result,),
        attrs_from_mapping("max_pool2d", {**size, "activation": "none"}),
    )


def _elementwise(op: str, x: TensorType, y: TensorType, **attrs: str) -> Call:
    return Call(op, (Value("x", x),), (Value("y", y),), attrs_from_mapping(op, attrs))


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"])
@pytest.mark.parametrize(
    "call",
    [
        _pool(TensorType((1, 12, 12, 14), FLOAT32)),
        _pool(TensorType((1, 12, 12, 10), INT8, BYTES.quantization)),
        _elementwise("quantize", ROW, BYTES),
        _elementwise("logistic", SHORTS, CURVE),
        _elementwise("expression", ROW, ROW, formula="max(a, 0.0) * 2.0"),
    ],
    ids=lambda call: f"{call.op} {call.inputs[0].type.dtype.name}",
)
def test_the_fastest_candidate_is_no_default_loop(call: Call, core: str) -> None:
    main = Function("main", call.variables, (call,), call.outputs)
    module = IRModule(
        "net", {"main": main}, targets={"cpu": parse_target(f"cortex-m -mcpu={core}")}
    )
    lowering = Lowering(module, op_table(), EVERY_SCHEDULE, INTRINSICS, target_features)
    (lowered,) = lowering.calls()
    assert min(lowered.candidates, key=lambda item: item.time).rule != DEFAULT_SCHEDULE
