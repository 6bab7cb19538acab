"""fully_connected on the DSP extension: eight outputs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.fully_connected import has_int32_multiplier, requantization_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules.cortex_m_dsp.gemm_kernel import plan_gemm
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout, Im2colPacker
from firmwright.schedules.cortex_m_dsp.microkernels import alternative_unrolls
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.schedule_factories import dsp_schedule

# The input vector is widened once to int16 pairs in the order of SXTB16, and each block of eight
# weight rows multiplies it. With `input=bytes` the vector stays int8: it needs no scratch memory,
# and each block widens it again. Weights are packed in pairs of rows as for conv2d (im2col.py).

_WORD = 4


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    outputs, depth = op.input(1).shape
    rows = next((count for count in (8, 4, 2) if count <= outputs + 1), 0)
    if not rows or not has_int32_multiplier(op):
        return ()
    whole_words = depth % _WORD == 0
    return ({"rows": rows}, {"rows": rows, "input": "bytes"}) if whole_words else ({"rows": rows},)


def _space(op: OpCall) -> Sequence[Config]:
    words = _layout(op.input(1).shape[-1]).words
    return [
        {**config, "steps": steps}
        for config in _configs(op)[:1]
        for steps in alternative_unrolls(words)
    ]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = op.constants[1]
    assert weights is not None
    matrix = np.asarray(weights.array())
    outputs, depth = matrix.shape
    block = int(config["rows"])
    zero_point = tensor_quant(op.input(0)).zero_point
    bias = fold_zero_point_into_bias(op, matrix)
    layout = _layout(depth)
    kernel = matrix.reshape(outputs, 1, 1, depth)
    gemm = plan_gemm(b, layout, kernel, bias, requantization_of(op), block, 1)
    batch = op.output.elements // outputs
    if "steps" in config:
        gemm = replace(gemm, steps=int(config["steps"]))
    if config.get("input") == "bytes":
        words = depth // _WORD
        with (
            b.for_("n", batch) as n,
            b.view("words", b.input(0), n * depth, (words,), dtype=UINT32, alignment=4) as x,
        ):
            gemm.emit_from_bytes(b, x, n)
        return
    with b.for_("n", batch) as n, b.allocate("wide", UINT32, (layout.words, 1)) as wide:
        Im2colPacker(b, layout, wide, b.input(0), zero_point).points([n * depth])
        gemm.emit(b, wide, n)


def _layout(depth: int) -> Im2colLayout:
    return Im2colLayout(ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)), depth)


SCHEDULES = (
    dsp_schedule(
        "dsp.fully_connected.rows", "fully_connected", configs=_configs, build=_build, space=_space
    ),
)
