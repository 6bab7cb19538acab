"""CMSIS-NN calls of layers with weights: convolution, fully connected, SVDF, LSTM.

Weights, bias, multipliers and shifts are constants. The bias of int16 layers has 64
bits unless the call declares 32. Source of signatures and layouts: the public headers
arm_nnfunctions.h and arm_nn_types.h.
"""

from collections.abc import Sequence
from math import frexp

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import quantize_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.cmsis_nn.c_calls import (
    activation_pointer_type,
    c_shape,
    c_tile,
    conv_workspace_bytes,
    core_features,
    depthwise_workspace_bytes,
    dtype_suffix,
    reversed_weights_bytes,
    transpose_conv_workspace_bytes,
    workspace_context,
    write_wrapper_function,
)
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import TransposeConvAttrs, WindowAttrs
from firmwright.ir.graph.attributes.recurrent import LstmAttrs, SvdfAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import conv2d, lstm_layer, svdf
from firmwright.ops.int16x8 import has_int64_sum, is_int16x8
from firmwright.ops.requantize import per_tensor_quant, quantization_of
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.layer_requantization import (
    known_requantization,
    layer_constants,
)

_C = read_sections(__file__)


def weight_scales(call: OpCall) -> tuple[float, ...]:
    return quantization_of(call.input(1)).scales


def _heads(call: OpCall) -> list[str]:
    """Return the C parameters of the input, `layer_constants` and the output."""
    kind = activation_pointer_type(call.input(0).dtype)
    bias = "int64_t" if has_int64_sum(call) else "int32_t"
    tables = ["const int8_t *w", f"const {bias} *bias"]
    tables += ["const int32_t *multipliers", "const int32_t *shifts"]
    return [f"const {kind}x", *tables, f"{kind}y"]


def _layer_values(call: OpCall) -> dict[str, object]:
    """Return the words in the texts of all layers with per-channel requantization."""
    step, x, w, y = (
        known_requantization(call),
        call.input(0),
        call.input(1),
        call.output,
    )
    return {
        "input_offset": -per_tensor_quant(x).zero_point,
        "zero_point": step.zero_point,
        "low": step.clamp_min,
        "high": step.clamp_max,
        "quant": _C["per_channel_quant"],
        "x": c_shape(x.shape),
        "w": c_shape(w.shape),
        "y": c_shape(y.shape),
        "channels": y.shape[-1],
        "suffix": dtype_suffix(x.dtype),
    }


def write_convolution(kernel: BackendKernel, call: OpCall) -> None:
    attrs = call.attributes(WindowAttrs)
    x, is_depthwise = call.input(0), call.op == "depthwise_conv2d"
    padding = attrs.padding
    size = depthwise_workspace_bytes if is_depthwise else conv_workspace_bytes
    params, buffer, more = workspace_context(kernel, size(call, core_features(kernel)))
    kind, name = ("dw_conv", "depthwise_conv") if is_depthwise else ("conv", "convolve")
    bias, bias_struct = "bias", ""
    if is_int16x8(call) and not is_depthwise:
        is_int32 = "false" if has_int64_sum(call) else "true"
        bias, bias_struct = "&sums", fill_text(_C["bias_struct"], is_int32=is_int32)
    text = fill_text(
        _C["convolution"],
        **_layer_values(call),
        buffer=buffer,
        kind=kind,
        name=name,
        bias=bias,
        multiple=f"{call.output.shape[3] // x.shape[3]}, " if is_depthwise else "",
        stride=c_tile(attrs.stride),
        padding=c_tile((padding[0], padding[2])),
        dilation=c_tile(attrs.dilation),
        bias_struct=bias_struct,
    )
    arguments = [
        kernel.inputs[0],
        *layer_constants(kernel, call),
        kernel.outputs[0],
        *more,
    ]
    write_wrapper_function(kernel, [*_heads(call), *params], text, arguments)


def write_transpose_conv(kernel: BackendKernel, call: OpCall) -> None:
    attrs = call.attributes(TransposeConvAttrs)
    features = core_features(kernel)
    size = transpose_conv_workspace_bytes(call, features)
    params, buffer, more = workspace_context(kernel, size)
    size = reversed_weights_bytes(call)
    turned_params, other, filters = workspace_context(kernel, size, "turned")
    text = fill_text(
        _C["transpose_conv"],
        **_layer_values(call),
        buffer=buffer,
        reversed=other,
        stride=c_tile(attrs.stride),
        padding=c_tile(attrs.before),
    )
    arguments = [
        kernel.inputs[0],
        *layer_constants(kernel, call),
        kernel.outputs[0],
        *more,
        *filters,
    ]
    heads = [*_heads(call), *params, *turned_params]
    write_wrapper_function(kernel, heads, text, arguments)


def write_fully_connected(kernel: BackendKernel, call: OpCall) -> None:
    """Write fully_connected; int8 weights may have per-output scales."""
    step, x = known_requantization(call), call.input(0)
    outputs, inputs = call.input(1).shape
    rows, zero_point = x.elements // inputs, per_tensor_quant(x).zero_point
    weights, bias, multipliers, shifts = layer_constants(kernel, call)
    heads, arguments = _heads(call), [kernel.inputs[0], weights, bias]
    name, values = f"arm_fully_connected_{dtype_suffix(x.dtype)}", _layer_values(call)
    if step.per_channel:
        name = "arm_fully_connected_per_channel_s8"
        arguments += [multipliers, shifts]
    else:
        heads = [*heads[:3], heads[-1]]
        values["quant"] = fill_text(
            _C["per_tensor_quant"],
            multiplier=step.multipliers[0],
            shift=step.shifts[0],
        )
    arguments.append(kernel.outputs[0])
    buffer = "{NULL, 0}"
    if "mve" in core_features(kernel) and x.dtype == INT8:
        # On MVE the library takes the weight sums precomputed.
        totals = call.constant_array(1).astype(np.int64).sum(axis=1)
        sums = conv2d.bias_of(call, "int32") - zero_point * totals
        arguments.append(kernel.constant("sums", sums, INT32))
        heads.append("const int32_t *sums")
        buffer = f"{{(void *)sums, {4 * outputs}}}"
    text = fill_text(
        _C["fully_connected"],
        **values,
        name=name,
        buffer=buffer,
        rows=rows,
        inputs=inputs,
        outputs=outputs,
    )
    write_wrapper_function(kernel, heads, text, arguments)


def write_svdf(kernel: BackendKernel, call: OpCall) -> None:
    """Write svdf with int16 state, which the library updates in place."""
    x, feature, time = (call.input(index) for index in (0, 1, 2))
    batch, filters, steps = x.shape[0], feature.shape[0], time.shape[-1]
    units = call.output.shape[-1]
    first, second = svdf.state_and_output_requant(call)
    params, one, more = workspace_context(kernel, 4 * batch * filters, "products")
    others, two, rest = workspace_context(kernel, 4 * batch * units, "totals")
    bias = call.constant(3)
    totals = np.zeros(units, np.int32) if bias is None else bias.array()
    x_buffer, before = kernel.inputs
    y, after = kernel.outputs
    text = fill_text(
        _C["svdf"],
        first=one,
        second=two,
        rank=call.attributes(SvdfAttrs).rank,
        batch=batch,
        x_zero_point=per_tensor_quant(x).zero_point,
        zero_point=second.zero_point,
        low=second.clamp_min,
        high=second.clamp_max,
        inputs=x.shape[1],
        filters=filters,
        in_quant=f"{{{first.multipliers[0]}, {first.shifts[0]}}}",
        steps=steps,
        units=units,
        out_quant=f"{{{second.multipliers[0]}, {second.shifts[0]}}}",
        state=filters * steps,
        state_bytes=2 * batch * filters * steps,
    )
    heads = [
        "const int8_t *x",
        "const int16_t *before",
        "const int8_t *feature",
        "const int16_t *time",
        "const int32_t *bias",
        "int8_t *y",
        "int16_t *after",
    ]
    constants = [
        kernel.constant("feature", call.constant_array(1), INT8),
        kernel.constant("time", call.constant_array(2), INT16),
        kernel.constant("bias", totals, INT32),
    ]
    arguments = [x_buffer, before, *constants, y, after, *more, *rest]
    write_wrapper_function(kernel, [*heads, *params, *others], text, arguments)


_ORDER = (1, 0, 2, 3)
"""The library's gates (forget, input, cell, output) as indices into the operator's."""
_NAMES = ("input", "forget", "cell", "output")
_CELL = 2


def supports_lstm(call: OpCall) -> bool:
    """Return whether the layer rounds like TFLM and clips cells, as is required."""
    x = call.input(0)
    as_tflm = x.dtype == INT16 or (x.dtype == INT8 and call.numerics == "tflm")
    return as_tflm and lstm_layer.cell_clip(call) > 0


def write_lstm(kernel: BackendKernel, call: OpCall) -> None:
    x, (batch, time, inputs) = call.input(0), lstm_layer.batch_time_inputs(call)
    units = call.input(lstm_layer.HIDDEN_STATE).shape[1]
    hidden = per_tensor_quant(call.input(lstm_layer.HIDDEN_STATE))
    cells = per_tensor_quant(call.input(lstm_layer.CELL_STATE))
    power = frexp(cells.scale)[1] - 1
    one, new = quantize_multiplier(2.0**-15), quantize_multiplier(2.0 ** -(30 + power))
    numbers = [
        int(call.attributes(LstmAttrs).time_major),
        batch,
        time,
        inputs,
        units,
        -per_tensor_quant(x).zero_point,
        *one,
        *new,
        int(lstm_layer.cell_clip(call)),
        power,
        *lstm_layer.hidden_factor(call),
        hidden.zero_point,
    ]
    gates = [_gate(kernel, call, gate) for gate in _ORDER]
    kind, size = activation_pointer_type(x.dtype), x.dtype.size_bytes
    first = kernel.workspace("first", batch * units, INT16)
    second = kernel.workspace("second", batch * units, INT16)
    text = fill_text(
        _C["lstm"],
        numbers=", ".join(map(str, numbers)),
        suffix=dtype_suffix(x.dtype),
        gates=", ".join(gate[0] for gate in gates),
        hidden_bytes=size * batch * units,
        cell_bytes=2 * batch * units,
    )
    heads = [
        f"const {kind}x",
        f"const {kind}hidden",
        "const int16_t *cells",
        f"{kind}y",
        f"{kind}hidden_after",
        "int16_t *cells_after",
    ]
    arguments: list[tir.Buffer] = [*kernel.inputs, *kernel.outputs]
    for _, params, buffers in gates:
        heads += params
        arguments += buffers
    heads += ["int16_t *first", "int16_t *second"]
    arguments += [first, second]
    write_wrapper_function(kernel, heads, text, arguments)


def _gate(
    kernel: BackendKernel, call: OpCall, gate: int
) -> tuple[str, Sequence[str], Sequence[tir.Buffer]]:
    """Return a gate's initializer, parameters and arguments."""
    name, bias = _NAMES[gate], call.constant_array(lstm_layer.BIAS + gate)
    wide = INT64 if call.input(0).dtype == INT16 else INT32
    words = "int64_t" if wide == INT64 else "int32_t"
    parts: list[str] = []
    heads: list[str] = []
    buffers: list[tir.Buffer] = []
    factors = lstm_layer.gate_factors(call, gate)
    for side, first, source in (
        ("x", lstm_layer.INPUT_WEIGHTS, 0),
        ("hidden", lstm_layer.RECURRENT_WEIGHTS, lstm_layer.HIDDEN_STATE),
    ):
        weights = call.constant_array(first + gate)
        zero_point = per_tensor_quant(call.input(source)).zero_point
        sums = -zero_point * weights.astype(np.int64).sum(axis=1)
        totals = sums + bias if side == "x" else sums
        multiplier, shift = factors[side == "hidden"]
        stem = f"{name}_{side}"
        parts.append(f"{multiplier}, {shift}, {stem}, {stem}_bias")
        heads += [f"const int8_t *{stem}", f"const {words} *{stem}_bias"]
        buffers.append(kernel.constant(stem, weights, INT8))
        buffers.append(kernel.constant(f"{stem}_bias", totals, wide))
    kind = "ARM_TANH" if gate == _CELL else "ARM_SIGMOID"
    initializer = ", ".join([*parts, "NULL", kind])
    return f"{{{initializer}}}", heads, buffers
