"""CMSIS-NN calls for LSTM layers.

Zero points are folded into the biases; the library updates the state in place. Source of
signatures, members and their order: the public headers arm_nnfunctions.h and arm_nn_types.h.
"""

from collections.abc import Sequence
from math import frexp

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ops import lstm
from firmwright.ops.requantize import tensor_quant
from firmwright.targets.cmsis_nn_codegen import (
    activation_pointer_type,
    dtype_suffix,
    write_wrapper_function,
)
from firmwright.targets.kernel_builder import BackendKernel

_ORDER = (1, 0, 2, 3)
"""Gate order of the library (forget, input, cell, output) as indices into the operator's order."""
_NAMES = ("input", "forget", "cell", "output")
_CELL = 2


def supports_lstm(call: OpCall) -> bool:
    """Return whether the layer uses TFLM's rounding and clips cells, as the library requires."""
    x = call.input(0)
    as_tflm = x.dtype == INT16 or (x.dtype == INT8 and call.numerics == "tflm")
    return as_tflm and lstm.cell_clip(call) > 0


def write_lstm(kernel: BackendKernel, call: OpCall) -> None:
    x, (batch, time, inputs) = call.input(0), lstm.batch_time_inputs(call)
    units = call.input(lstm.HIDDEN_STATE).shape[1]
    hidden, cells = (
        tensor_quant(call.input(lstm.HIDDEN_STATE)),
        tensor_quant(call.input(lstm.CELL_STATE)),
    )
    power = frexp(cells.scale)[1] - 1
    one, new = quantize_multiplier(2.0**-15), quantize_multiplier(2.0 ** -(30 + power))
    numbers = [int(call.int_attr("time_major")), batch, time, inputs, units]
    numbers += [-tensor_quant(x).zero_point, *one, *new, int(lstm.cell_clip(call)), power]
    numbers += [*lstm.hidden_factor(call), hidden.zero_point]
    gates = [_gate(kernel, call, gate) for gate in _ORDER]
    kind, size = activation_pointer_type(x.dtype), x.dtype.size_bytes
    temporary = [kernel.workspace(name, batch * units, INT16) for name in ("first", "second")]
    lines = [
        f"const cmsis_nn_lstm_params params = {{{', '.join(map(str, numbers))}, "
        f"{', '.join(text for text, _, _ in gates)}}};",
        "cmsis_nn_lstm_context buffers = {first, second, cells_after, hidden_after};",
        f"memmove(hidden_after, hidden, {size * batch * units});",
        f"memmove(cells_after, cells, {2 * batch * units});",
        f"(void)arm_lstm_unidirectional_{dtype_suffix(x.dtype)}(x, y, &params, &buffers);",
    ]
    heads = [f"const {kind}x", f"const {kind}hidden", "const int16_t *cells", f"{kind}y"]
    heads += [f"{kind}hidden_after", "int16_t *cells_after"]
    heads += [head for _, items, _ in gates for head in items]
    arguments = [*kernel.inputs, *kernel.outputs]
    arguments += [buffer for _, _, items in gates for buffer in items]
    heads += ["int16_t *first", "int16_t *second"]
    write_wrapper_function(kernel, heads, lines, [*arguments, *temporary])


def _gate(
    kernel: BackendKernel, call: OpCall, gate: int
) -> tuple[str, Sequence[str], Sequence[tir.Buffer]]:
    """Return a gate's initializer, parameters and arguments."""
    name, bias = _NAMES[gate], call.constant(lstm.BIAS + gate)
    assert bias is not None  # ensured by the operator's types
    wide = INT64 if call.input(0).dtype == INT16 else INT32
    words = "int64_t" if wide == INT64 else "int32_t"
    parts: list[str] = []
    heads: list[str] = []
    buffers: list[tir.Buffer] = []
    factors = lstm.gate_factors(call, gate)
    for side, first, source in (
        ("x", lstm.INPUT_WEIGHTS, 0),
        ("hidden", lstm.RECURRENT_WEIGHTS, lstm.HIDDEN_STATE),
    ):
        weights = call.constant(first + gate)
        assert weights is not None  # ensured by the operator's types
        zero_point = tensor_quant(call.input(source)).zero_point
        sums = -zero_point * weights.array().astype(np.int64).sum(axis=1)
        totals = sums + bias.array() if side == "x" else sums
        multiplier, shift = factors[side == "hidden"]
        stem = f"{name}_{side}"
        parts.append(f"{multiplier}, {shift}, {stem}, {stem}_bias")
        heads += [f"const int8_t *{stem}", f"const {words} *{stem}_bias"]
        buffers.append(kernel.constant(stem, weights.array(), INT8))
        buffers.append(kernel.constant(f"{stem}_bias", totals, wide))
    kind = "ARM_TANH" if gate == _CELL else "ARM_SIGMOID"
    return f"{{{', '.join(parts)}, NULL, {kind}}}", heads, buffers
