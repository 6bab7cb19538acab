"""lstm of int8 on the DSP extension: both products of a step by the int8 GEMM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index, UnitBuilder, copy_state
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    folded_biases,
    weights_at,
)
from firmwright.schedules.constant_channels import ChannelOrder
from firmwright.schedules.cortex_m_dsp.gemm_kernel import plan_gemm_without_bias
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.epilogue import FinishElement
from firmwright.schedules.schedule_factories import dsp_schedule

# A step copies x and the hidden values to aligned columns, which are padded with zeros, multiplies
# each by the weights of all gates, and then updates the units. Rows of weights are in the order
# [unit, gate], so that the gate of each of a block's eight rows is known; the units are even.

_CHANNELS = 8
_GROUP = 4
_UNROLL = (4, 2)
_ODD_SHIFT = 8


@dataclass(frozen=True, slots=True)
class _GateEpilogue:
    """Converts a product's sums to gate steps; adds `x_steps` to that with the hidden values."""

    layer: UnitBuilder
    bias: tir.Buffer
    x_steps: tir.Buffer | None
    is_paired: bool

    def bind_shared(self, b: Kernel) -> Mapping[str, ArithExpr] | None:
        return None

    def bind_channel(
        self, b: Kernel, index: ArithExpr, place: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> FinishElement:  # fmt: skip
        gate, bias = place % len(GATES), b.load(self.bias, [index])

        def finish(total: ArithExpr) -> ArithExpr:
            acc = bias + (total >> _ODD_SHIFT if self.is_paired and place % 2 == 1 else total)
            if self.x_steps is None:
                return self.layer.input_steps(acc, gate).cast(INT16)
            return self.layer.gate_steps(acc, gate, b.load_i32(self.x_steps, [index])).cast(INT16)

        return finish


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == INT8 else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    (batch, time, _), units = batch_time_inputs(op), op.input(HIDDEN_STATE).shape[1]
    layer, hidden = UnitBuilder(op, b), b.outputs[1]
    rows = len(GATES) * (units + units % 2)
    x_steps, steps = (b.allocate(name, INT16, (rows,)) for name in ("x_steps", "steps"))
    of_x = _Product(op, b, layer, INPUT_WEIGHTS, None)
    of_hidden = _Product(op, b, layer, RECURRENT_WEIGHTS, x_steps)
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        at = [t, n] if op.int_attr("time_major") else [n, t]
        of_x.emit(b, b.input(0), at, x_steps)
        of_hidden.emit(b, hidden, [n], steps)
        with b.for_("u", units) as u:
            gates = [b.load_i32(steps, [u * len(GATES) + gate]) for gate in range(len(GATES))]
            layer.finish(gates, [n, u], [*at, u])
            b.store(hidden, [n, u], b.load(b.y, [*at, u]))


class _Product:
    """The product of a vector and the weights of all gates, which begin at input `first`."""

    def __init__(
        self, op: OpCall, b: Kernel, layer: UnitBuilder, first: int, x_steps: tir.Buffer | None
    ) -> None:
        weights = np.stack([weights_at(op, first + gate) for gate in range(len(GATES))], axis=1)
        pad = (0, len(weights) % 2), (0, 0), (0, -weights.shape[2] % _GROUP)
        kernel = np.pad(weights, pad).reshape(-1, 1, 1, weights.shape[2] + pad[2][1])
        folded = [folded_biases(op, gate)[x_steps is not None] for gate in range(len(GATES))]
        bias = np.pad(np.stack(folded, axis=1), pad[:2]).reshape(-1)
        name = "bias" if x_steps is None else "recurrent_bias"

        def end(order: ChannelOrder, is_paired: bool) -> _GateEpilogue:
            return _GateEpilogue(layer, b.constant(name, bias, INT32), x_steps, is_paired)

        depth, window = kernel.shape[-1], ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
        self.size, self.column = weights.shape[2], b.allocate("column", INT8, (depth,))
        self.gemm = plan_gemm_without_bias(b, Im2colLayout(window, depth), kernel, end, _CHANNELS)
        for place in range(self.size, depth):
            b.store(self.column, [place], 0)

    def emit(self, b: Kernel, x: tir.Buffer, at: Index, y: tir.Buffer) -> None:
        with b.unrolled("i", self.size, *_UNROLL) as i:
            b.store(self.column, [i], b.load(x, [*at, i]))
        size = self.column.elements // _GROUP
        words = b.view("words", self.column, 0, (size,), dtype=UINT32, alignment=4)
        self.gemm.emit_from_bytes(b, words, 0, y)


SCHEDULES = (dsp_schedule("dsp.lstm.steps", "lstm", configs=_configs, build=_build),)
