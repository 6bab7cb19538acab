"""All schedule rules and every intrinsic that any lowering may call."""

from __future__ import annotations

from collections.abc import Mapping

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ir.tir.schedule import Rule
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules.cortex_m_dsp import (
    conv2d,
    depthwise_conv2d,
    depthwise_halves,
    depthwise_slide,
    dot_products,
    fully_connected,
    half_columns,
    hybrid_conv2d,
    pools,
    rescaled_sum,
    winograd,
)
from firmwright.schedules.cortex_m_dsp.intrinsics import DSP_INTRINSICS
from firmwright.schedules.cortex_m_dsp.mac_blocks import MAC_INTRINSICS
from firmwright.schedules.fpu import depthwise as fpu_depthwise
from firmwright.schedules.fpu import layers as fpu_layers
from firmwright.schedules.fpu.blocks import BLOCK_INTRINSICS
from firmwright.schedules.helium import average_pool2d as helium_average_pool2d
from firmwright.schedules.helium import conv2d as helium_conv2d
from firmwright.schedules.helium import depthwise_channels as helium_depthwise_channels
from firmwright.schedules.helium import depthwise_conv2d as helium_depthwise_conv2d
from firmwright.schedules.helium import fully_connected as helium_fully_connected
from firmwright.schedules.helium import int16_layers as helium_int16_layers
from firmwright.schedules.helium import sums as helium_sums
from firmwright.schedules.helium.intrinsics import HELIUM_INTRINSICS
from firmwright.schedules.helium_floats import depthwise as helium_float_depthwise
from firmwright.schedules.helium_floats import hybrid_conv2d as helium_hybrid_conv2d
from firmwright.schedules.helium_floats import layers as helium_float_layers
from firmwright.schedules.helium_floats import vectors as helium_float_vectors
from firmwright.schedules.helium_floats.blocks import FLOAT_BLOCKS
from firmwright.schedules.helium_floats.quantize import QUANTIZE_INTRINSICS
from firmwright.schedules.helium_floats.strips import STRIP_INTRINSICS
from firmwright.schedules.helium_floats.vectors import VECTOR_INTRINSICS
from firmwright.schedules.scalar import conv2d as scalar_conv2d
from firmwright.schedules.scalar import depthwise_conv2d as scalar_depthwise_conv2d
from firmwright.schedules.scalar import depthwise_strips as scalar_depthwise_strips
from firmwright.schedules.scalar import fully_connected as scalar_fully_connected
from firmwright.schedules.scalar import half_columns as scalar_half_columns
from firmwright.schedules.scalar import nibbles as scalar_nibbles
from firmwright.schedules.scalar import rescaled_sum as scalar_rescaled_sum
from firmwright.schedules.scalar import thumb1
from firmwright.schedules.scalar import tree_ensemble as scalar_tree_ensemble
from firmwright.schedules.scalar import winograd as scalar_winograd
from firmwright.schedules.scalar.rv32_blocks import RVM_BLOCKS
from firmwright.schedules.scalar.thumb1_blocks import THUMB1_BLOCKS
from firmwright.schedules.scalar.thumb2_blocks import MLA_BLOCKS

RULES: tuple[Rule, ...] = (
    *conv2d.RULES,
    *winograd.RULES,
    *depthwise_conv2d.RULES,
    *depthwise_slide.RULES,
    *depthwise_halves.RULES,
    *fully_connected.RULES,
    *hybrid_conv2d.RULES,
    *pools.RULES,
    *rescaled_sum.RULES,
    *dot_products.RULES,
    *half_columns.RULES,
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
    *thumb1.RULES,
)

INTRINSICS: Mapping[str, Intrinsic] = {
    **BASE_INTRINSICS,
    **DSP_INTRINSICS,
    **MAC_INTRINSICS,
    **BLOCK_INTRINSICS,
    **HELIUM_INTRINSICS,
    **FLOAT_BLOCKS,
    **QUANTIZE_INTRINSICS,
    **STRIP_INTRINSICS,
    **VECTOR_INTRINSICS,
    **helium_hybrid_conv2d.SCALED_INTRINSICS,
    **MLA_BLOCKS,
    **RVM_BLOCKS,
    **THUMB1_BLOCKS,
}
