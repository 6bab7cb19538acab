"""hybrid_lstm: an LSTM layer of floats with int8 weights (dynamic range).

Inputs, outputs and gates are those of lstm.py. At each time step, the input and hidden
values of a batch are quantized (dynamic_range.py; with `asymmetric` asymmetrically) and
multiplied in integers; a gate is (bias + scaled W x) + scaled R hidden in float32.
Semantics: TFLite's hybrid UnidirectionalSequenceLSTM.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.recurrent import HybridLstmAttrs
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import lstm, lstm_layer
from firmwright.ops.dynamic_range import (
    FloatRow,
    QuantizedRow,
    check_hybrid,
    quantize_array,
    quantize_row,
)
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.lstm_layer import (
    BIAS,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import per_tensor_quant

_GATES = 4
_WEIGHTS = (INPUT_WEIGHTS, RECURRENT_WEIGHTS)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    kinds = lstm_layer.infer(call)
    check_hybrid(call, None, tuple(range(INPUT_WEIGHTS, BIAS)))
    return kinds


def _weight_scale(call: OpCall, index: int) -> float:
    return per_tensor_quant(call.input(index)).scale


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(HybridLstmAttrs)
    weights = [array.astype(np.int64) for array in arrays[INPUT_WEIGHTS:BIAS]]
    x = np.swapaxes(arrays[0], 0, 1) if attrs.time_major else arrays[0]
    hidden = arrays[HIDDEN_STATE].copy()
    cells = arrays[HIDDEN_STATE + 1].copy()
    y = np.zeros((*x.shape[:2], hidden.shape[1]), np.float32)
    for n in range(x.shape[0]):
        for t in range(x.shape[1]):
            parts = _products(call, x[n, t], weights, INPUT_WEIGHTS)
            recurrent = _products(call, hidden[n], weights, RECURRENT_WEIGHTS)
            gates: list[Array] = []
            for gate in range(_GATES):
                gates.append((arrays[BIAS + gate] + parts[gate]) + recurrent[gate])
            hidden[n], cells[n] = _finish(call, gates, cells[n])
            y[n, t] = hidden[n]
    y = np.swapaxes(y, 0, 1) if attrs.time_major else y
    return y, hidden, cells


def _products(
    call: OpCall, row: Array, weights: Sequence[Array], first: int
) -> list[Array]:
    attrs = call.attributes(HybridLstmAttrs)
    quantized, scale, offset = quantize_array(row, asymmetric=attrs.asymmetric)
    steps = quantized.astype(np.int64) - offset
    products = []
    for gate in range(_GATES):
        sums = (weights[first - INPUT_WEIGHTS + gate] @ steps).astype(np.float32)
        products.append(sums * (np.float32(_weight_scale(call, first + gate)) * scale))
    return products


def _finish(call: OpCall, gates: Sequence[Array], cells: Array) -> tuple[Array, Array]:
    i, f, g, o = (gate.astype(np.float64) for gate in gates)
    cells = _logistic(f) * cells + _logistic(i) * np.tanh(g).astype(np.float32)
    limit = np.float32(lstm_layer.cell_clip(call))
    cells = np.clip(cells, -limit, limit) if limit else cells
    hidden = _logistic(o) * np.tanh(cells.astype(np.float64)).astype(np.float32)
    return hidden, cells


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(HybridLstmAttrs)
    batch, time, inputs = lstm_layer.batch_time_inputs(call)
    units = call.input(HIDDEN_STATE).shape[1]
    hidden = b.outputs[1]
    time_major = attrs.time_major
    lstm.copy_state(call, b)
    with Nest() as enter:
        n = enter(b.for_("n", batch))
        t = enter(b.for_("t", time))
        step = [t, n] if time_major else [n, t]
        start = (t * batch + n if time_major else n * time + t) * inputs
        sources = (
            FloatRow(b.input(0), start, inputs),
            FloatRow(hidden, n * units, units),
        )
        rows, asymmetric = [], attrs.asymmetric
        for name, source in zip(("x", "h"), sources, strict=True):
            target = b.allocate(f"quantized_{name}", INT8, (source.size,))
            quantized = quantize_row(
                b, source, target, weight_scale=None, asymmetric=asymmetric
            )
            rows.append((target, quantized))
        with b.for_("u", units) as u:
            sums = b.reg("gates", FLOAT32, _GATES)
            for gate in range(_GATES):
                b.store(sums, [gate], b.load(b.input(BIAS + gate), [u]))
            for first, row in zip(_WEIGHTS, rows, strict=True):
                _add_products(call, b, sums, row, first, u)
            lstm.finish_float(call, b, sums, [n, u], [*step, u])
        with b.for_("u", units) as u:
            b.store(hidden, [n, u], b.load(b.y, [*step, u]))


def _add_products(
    call: OpCall,
    b: Kernel,
    sums: tir.Buffer,
    source: tuple[tir.Buffer, QuantizedRow],
    first: int,
    u: ArithExpr,
) -> None:
    quantized, row = source
    products = b.reg("products", INT32, _GATES)
    for gate in range(_GATES):
        b.store(products, [gate], 0)
    with b.for_("i", quantized.elements) as i:
        item = b.let("item", row.load(b, quantized, [i]))
        for gate in range(_GATES):
            product = item * b.load_i32(b.input(first + gate), [u, i])
            b.store(products, [gate], b.load(products, [gate]) + product)
    for gate in range(_GATES):
        scale = row.scale.value * _weight_scale(call, first + gate)
        scaled = b.load(products, [gate]).cast(FLOAT32) * scale
        b.store(sums, [gate], b.load(sums, [gate]) + scaled)


OPDEF = OpDef("hybrid_lstm", infer, reference, lower, macs=lstm_layer.macs)
