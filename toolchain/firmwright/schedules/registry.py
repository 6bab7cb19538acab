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
from firmwright.schedules.scalar import int4_weights as scalar_nibbles
from firmwright.schedules.scalar import int16_im2col as scalar_half_columns
from firmwright.schedules.scalar import thumb1_conv2d_fully_connected
from firmwright.schedules.scalar import tree_ensemble as scalar_tree_ensemble
from firmwright.schedules.scalar import winograd as scalar_winograd
from firmwright.schedules.scalar.rv32_microkernels import RV32M_MICROKERNELS
from firmwright.schedules.scalar.thumb1_microkernels import THUMB1_MICROKERNELS
from firmwright.schedules.scalar.thumb2_microkernels import MLA_MICROKERNELS

RULES: tuple[Schedule, ...] = (
    *conv2d.RULES,
    *winograd.RULES,
    *depthwise_conv2d.RULES,
    *depthwise_sliding_window.RULES,
    *int16_depthwise_conv2d.RULES,
    *fully_connected.RULES,
    *hybrid_conv2d.RULES,
    *pool2d.RULES,
    *add_sub.RULES,
    *direct_dot_products.RULES,
    *int16_im2col.RULES,
    *fpu_layers.RULES,
    *fpu_depthwise.RULES,
    *helium_average_pool2d.RULES,
    *helium_conv2d.RULES,
    *helium_depthwise_channels.RULES,
    *helium_depthwise_conv2d.RULES,
    *helium_fully_connected.RULES,
    *helium_int16_layers.RULES,
    *helium_sums.RULES,
    *helium_float_depthwise.RULES,
    *helium_float_layers.RULES,
    *helium_float_vectors.RULES,
    *helium_hybrid_conv2d.RULES,
    *scalar_conv2d.RULES,
    *scalar_depthwise_conv2d.RULES,
    *scalar_fully_connected.RULES,
    *scalar_depthwise_strips.RULES,
    *scalar_half_columns.RULES,
    *scalar_nibbles.RULES,
    *scalar_rescaled_sum.RULES,
    *scalar_tree_ensemble.RULES,
    *scalar_winograd.RULES,
    *thumb1_conv2d_fully_connected.RULES,
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
