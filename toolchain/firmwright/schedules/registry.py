"""All schedules, and every intrinsic that a lowering may call."""

from __future__ import annotations

from collections.abc import Mapping

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ir.tir.schedule import Schedule
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules.cortex_m_dsp import (
    add_sub,
    conv2d,
    depthwise_conv2d,
    depthwise_sliding_window,
    direct_dot_products,
    fully_connected,
    hybrid_conv2d,
    int16_depthwise_conv2d,
    int16_im2col,
    pool2d,
    winograd,
)
from firmwright.schedules.cortex_m_dsp.intrinsics import DSP_INTRINSICS
from firmwright.schedules.cortex_m_dsp.microkernels import MICROKERNEL_INTRINSICS
from firmwright.schedules.fpu import conv2d_fully_connected as fpu_layers
from firmwright.schedules.fpu import depthwise_conv2d as fpu_depthwise
from firmwright.schedules.fpu.microkernels import FPU_MICROKERNELS
from firmwright.schedules.helium import add_sub as helium_sums
from firmwright.schedules.helium import average_pool2d as helium_average_pool2d
from firmwright.schedules.helium import conv2d as helium_conv2d
from firmwright.schedules.helium import depthwise_channel_groups as helium_depthwise_channels
from firmwright.schedules.helium import depthwise_channel_planes as helium_depthwise_conv2d
from firmwright.schedules.helium import fully_connected as helium_fully_connected
from firmwright.schedules.helium import int16_conv2d_fully_connected as helium_int16_layers
from firmwright.schedules.helium.intrinsics import HELIUM_INTRINSICS
from firmwright.schedules.helium_floats import conv2d_fully_connected as helium_float_layers
from firmwright.schedules.helium_floats import depthwise_conv2d as helium_float_depthwise
from firmwright.schedules.helium_floats import elementwise_and_pool2d as helium_float_vectors
from firmwright.schedules.helium_floats import hybrid_conv2d as helium_hybrid_conv2d
from firmwright.schedules.helium_floats.depthwise_strip_microkernels import STRIP_INTRINSICS
from firmwright.schedules.helium_floats.elementwise_and_pool2d import VECTOR_INTRINSICS
from firmwright.schedules.helium_floats.microkernels import FLOAT_MICROKERNEL_INTRINSICS
from firmwright.schedules.helium_floats.quantize_activations import QUANTIZE_INTRINSICS
from firmwright.schedules.scalar import add_sub as scalar_rescaled_sum
from firmwright.schedules.scalar import conv2d as scalar_conv2d
from firmwright.schedules.scalar import depthwise_conv2d as scalar_depthwise_conv2d
from firmwright.schedules.scalar import depthwise_strips as scalar_depthwise_strips
from firmwright.schedules.scalar import fully_connected as scalar_fully_connected
from firmwright.schedules.scalar import int4_weights as scalar_int4_weights
from firmwright.schedules.scalar import int16_im2col as scalar_int16_im2col
from firmwright.schedules.scalar import thumb1_conv2d_fully_connected
from firmwright.schedules.scalar import tree_ensemble as scalar_tree_ensemble
from firmwright.schedules.scalar import winograd as scalar_winograd
from firmwright.schedules.scalar.rv32_microkernels import RV32M_MICROKERNELS
from firmwright.schedules.scalar.thumb1_microkernels import THUMB1_MICROKERNELS
from firmwright.schedules.scalar.thumb2_microkernels import MLA_MICROKERNELS

SCHEDULES: tuple[Schedule, ...] = (
    *conv2d.SCHEDULES,
    *winograd.SCHEDULES,
    *depthwise_conv2d.SCHEDULES,
    *depthwise_sliding_window.SCHEDULES,
    *int16_depthwise_conv2d.SCHEDULES,
    *fully_connected.SCHEDULES,
    *hybrid_conv2d.SCHEDULES,
    *pool2d.SCHEDULES,
    *add_sub.SCHEDULES,
    *direct_dot_products.SCHEDULES,
    *int16_im2col.SCHEDULES,
    *fpu_layers.SCHEDULES,
    *fpu_depthwise.SCHEDULES,
    *helium_average_pool2d.SCHEDULES,
    *helium_conv2d.SCHEDULES,
    *helium_depthwise_channels.SCHEDULES,
    *helium_depthwise_conv2d.SCHEDULES,
    *helium_fully_connected.SCHEDULES,
    *helium_int16_layers.SCHEDULES,
    *helium_sums.SCHEDULES,
    *helium_float_depthwise.SCHEDULES,
    *helium_float_layers.SCHEDULES,
    *helium_float_vectors.SCHEDULES,
    *helium_hybrid_conv2d.SCHEDULES,
    *scalar_conv2d.SCHEDULES,
    *scalar_depthwise_conv2d.SCHEDULES,
    *scalar_fully_connected.SCHEDULES,
    *scalar_depthwise_strips.SCHEDULES,
    *scalar_int16_im2col.SCHEDULES,
    *scalar_int4_weights.SCHEDULES,
    *scalar_rescaled_sum.SCHEDULES,
    *scalar_tree_ensemble.SCHEDULES,
    *scalar_winograd.SCHEDULES,
    *thumb1_conv2d_fully_connected.SCHEDULES,
)

INTRINSICS: Mapping[str, Intrinsic] = {
    **BASE_INTRINSICS,
    **DSP_INTRINSICS,
    **MICROKERNEL_INTRINSICS,
    **FPU_MICROKERNELS,
    **HELIUM_INTRINSICS,
    **FLOAT_MICROKERNEL_INTRINSICS,
    **QUANTIZE_INTRINSICS,
    **STRIP_INTRINSICS,
    **VECTOR_INTRINSICS,
    **helium_hybrid_conv2d.HYBRID_GEMM_INTRINSICS,
    **MLA_MICROKERNELS,
    **RV32M_MICROKERNELS,
    **THUMB1_MICROKERNELS,
}
