"""Layers of ONNX Runtime's numerics on RISC-V vectors: sums are scaled as floats."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.quant import Rounding
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import float32_factors, float32_requantization
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.computed_channels import integer_layer
from firmwright.schedules.rvv.conv2d_fully_connected import emit_layer
from firmwright.schedules.rvv.depthwise_conv2d import emit_depthwise
from firmwright.schedules.rvv.endings import FLOAT_BYTES
from firmwright.schedules.rvv.layer_endings import LayerEnding
from firmwright.schedules.rvv.layer_sums import sums_configs


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    configs = sums_configs(op) if op.numerics == "onnx" else ()
    if not configs:
        return ()
    step = integer_layer(op).requantization
    return configs if step and step.rounding is Rounding.FLOAT32 else ()


def _ending(op: OpCall) -> LayerEnding:
    step = float32_requantization(op)
    bits = np.array(float32_factors(op), np.float32).view(np.int32)
    settings = (step.zero_point, step.clamp_min, step.clamp_max)
    return LayerEnding(FLOAT_BYTES, bits[None], np.zeros_like(bits), settings)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    if op.op == "depthwise_conv2d":
        emit_depthwise(op, b, _ending(op))
        return
    kernel = weights_of(op)
    flat = kernel.reshape(len(kernel), -1)
    emit_layer(op, b, flat, kernel_window(op), _ending(op))


SCHEDULES = tuple(
    Schedule(f"rvv.{op}.float32", op, frozenset({"rvvf"}), _configs, _build)
    for op in ("conv2d", "depthwise_conv2d", "fully_connected")
)
