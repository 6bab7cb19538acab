"""CMSIS-NN calls for layers with weights: convolutions, fully connected layers, SVDF and LSTM.

Weights, bias, multipliers and shifts are constants. The bias of int16 layers has 64 bits unless the
call declares 32. Source of signatures and layouts: the public headers arm_nnfunctions.h and
arm_nn_types.h.
"""

from collections.abc import Sequence
from math import frexp

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ops import conv2d, fully_connected, lstm_layer, svdf
from firmwright.ops.int16x8 import has_int64_sum, is_int16x8
from firmwright.ops.requantize import Requantization, per_tensor_quant, quantization_of
from firmwright.targets.cmsis_nn_codegen import (
    activation_pointer_type,
    c_dims,
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
from firmwright.targets.kernel_builder import BackendKernel


def requantize_step(call: OpCall) -> Requantization | None:
    """Return the requantization of a layer, or None if it is not a multiplier and shift."""
    if call.op != "fully_connected":
        return conv2d.requantization_of(call)
    if is_int16x8(call):
        step = fully_connected.defined_requantization(call)
        return step if isinstance(step, Requantization) else None
    is_plain = fully_connected.has_int32_multiplier(call)
    return fully_connected.requantization_of(call) if is_plain else None


def weight_scales(call: OpCall) -> tuple[float, ...]:
    return quantization_of(call.input(1)).scales


def _step(call: OpCall) -> Requantization:
    step = requantize_step(call)
    assert step is not None  # checked by the predicate
    return step


def _weights(kernel: BackendKernel, call: OpCall) -> list[tir.Buffer]:
    """Add the weights, bias, and per-output multipliers and shifts as constants."""
    step, wide = _step(call), has_int64_sum(call)
    channels = call.output.shape[-1]
    pairs = np.broadcast_to(
        np.array([step.multipliers, step.shifts], np.int32).reshape(2, -1), (2, channels)
    )
    weights = call.constant(1)
    assert weights is not None  # required by the pattern
    return [
        kernel.constant("weights", weights.array(), INT8),
        kernel.constant("bias", conv2d.bias_of(call, "int64"), INT64 if wide else INT32),
        kernel.constant("multipliers", pairs[0], INT32),
        kernel.constant("shifts", pairs[1], INT32),
    ]


def _heads(call: OpCall) -> list[str]:
    """Return the C parameters for the input, the constants of `_weights` and the output."""
    kind = activation_pointer_type(call.input(0).dtype)
    bias = "int64_t" if has_int64_sum(call) else "int32_t"
    tables = ["const int8_t *w", f"const {bias} *bias"]
    tables += ["const int32_t *multipliers", "const int32_t *shifts"]
    return [f"const {kind}x", *tables, f"{kind}y"]


_QUANT = (
    "const cmsis_nn_per_channel_quant_params quant = {(int32_t *)multipliers, (int32_t *)shifts};"
)


def write_convolution(kernel: BackendKernel, call: OpCall) -> None:
    step, x, w, y = _step(call), call.input(0), call.input(1), call.output
    is_depthwise = call.op == "depthwise_conv2d"
    padding = call.ints_attr("padding")
    size = depthwise_workspace_bytes if is_depthwise else conv_workspace_bytes
    params, buffer, more = workspace_context(kernel, size(call, core_features(kernel)))
    kind, name = ("dw_conv", "depthwise_conv") if is_depthwise else ("conv", "convolve")
    multiple = f"{y.shape[3] // x.shape[3]}, " if is_depthwise else ""
    bias = "bias"
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_{kind}_params params = {{{-per_tensor_quant(x).zero_point}, "
        f"{step.zero_point}, {multiple}{c_tile(call.ints_attr('stride'))}, "
        f"{c_tile((padding[0], padding[2]))}, {c_tile(call.ints_attr('dilation'))}, "
        f"{{{step.clamp_min}, {step.clamp_max}}}}};",
        _QUANT,
        f"const cmsis_nn_dims input = {c_shape(x.shape)}, filter = {c_shape(w.shape)};",
        f"const cmsis_nn_dims channels = {c_dims(1, 1, 1, y.shape[3])}, "
        f"output = {c_shape(y.shape)};",
    ]
    if is_int16x8(call) and not is_depthwise:
        narrow = "false" if has_int64_sum(call) else "true"
        lines.append(f"const cmsis_nn_bias_data sums = {{bias, {narrow}}};")
        bias = "&sums"
    lines.append(
        f"(void)arm_{name}_wrapper_{dtype_suffix(x.dtype)}(&context, &params, &quant, &input, x, "
        f"&filter, w, &channels, {bias}, &output, y);"
    )
    arguments = [kernel.inputs[0], *_weights(kernel, call), kernel.outputs[0], *more]
    write_wrapper_function(kernel, [*_heads(call), *params], lines, arguments)


def write_transpose_conv(kernel: BackendKernel, call: OpCall) -> None:
    step, x, w, y = _step(call), call.input(0), call.input(1), call.output
    features = core_features(kernel)
    params, buffer, more = workspace_context(kernel, transpose_conv_workspace_bytes(call, features))
    reversed_params, other, filters = workspace_context(
        kernel, reversed_weights_bytes(call), "turned"
    )
    lines = [
        f"const cmsis_nn_context context = {buffer}, turn = {other};",
        f"const cmsis_nn_transpose_conv_params params = {{{-per_tensor_quant(x).zero_point}, "
        f"{step.zero_point}, {c_tile(call.ints_attr('stride'))}, "
        f"{c_tile(call.ints_attr('before'))}, "
        f"{{0, 0}}, {{1, 1}}, {{{step.clamp_min}, {step.clamp_max}}}}};",
        _QUANT,
        f"const cmsis_nn_dims input = {c_shape(x.shape)}, filter = {c_shape(w.shape)};",
        f"const cmsis_nn_dims channels = {c_dims(1, 1, 1, y.shape[3])}, "
        f"output = {c_shape(y.shape)};",
        "(void)arm_transpose_conv_wrapper_s8(&context, &turn, &params, &quant, &input, x, "
        "&filter, w, &channels, bias, &output, y);",
    ]
    arguments = [kernel.inputs[0], *_weights(kernel, call), kernel.outputs[0], *more, *filters]
    write_wrapper_function(kernel, [*_heads(call), *params, *reversed_params], lines, arguments)


def write_fully_connected(kernel: BackendKernel, call: OpCall) -> None:
    """Write fully_connected; int8 weights may have per-output scales."""
    step, x = _step(call), call.input(0)
    outputs, inputs = call.input(1).shape
    rows, zero_point = x.elements // inputs, per_tensor_quant(x).zero_point
    weights, bias, multipliers, shifts = _weights(kernel, call)
    heads, arguments = _heads(call), [kernel.inputs[0], weights, bias]
    name, quant = f"arm_fully_connected_{dtype_suffix(x.dtype)}", _QUANT
    if step.per_channel:
        name = "arm_fully_connected_per_channel_s8"
        arguments += [multipliers, shifts]
    else:
        heads = [*heads[:3], heads[-1]]
        quant = (
            f"const cmsis_nn_per_tensor_quant_params quant = {{{step.multipliers[0]}, "
            f"{step.shifts[0]}}};"
        )
    arguments.append(kernel.outputs[0])
    buffer = "{NULL, 0}"
    if "mve" in core_features(kernel) and x.dtype == INT8:
        # On MVE the library takes the weight sums precomputed.
        weights_constant = call.constant(1)
        assert weights_constant is not None  # required by the pattern
        totals = weights_constant.array().astype(np.int64).sum(axis=1)
        sums = conv2d.bias_of(call, "int32") - zero_point * totals
        arguments.append(kernel.constant("sums", sums, INT32))
        heads.append("const int32_t *sums")
        buffer = f"{{(void *)sums, {4 * outputs}}}"
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_fc_params params = {{{-zero_point}, 0, {step.zero_point}, "
        f"{{{step.clamp_min}, {step.clamp_max}}}}};",
        quant,
        f"const cmsis_nn_dims input = {c_dims(rows, 1, 1, inputs)};",
        f"const cmsis_nn_dims filter = {c_dims(inputs, 1, 1, outputs)};",
        f"const cmsis_nn_dims channels = {c_dims(1, 1, 1, outputs)};",
        f"const cmsis_nn_dims output = {c_dims(rows, 1, 1, outputs)};",
        f"(void){name}(&context, &params, &quant, &input, x, &filter, w, &channels, bias, "
        "&output, y);",
    ]
    write_wrapper_function(kernel, heads, lines, arguments)


def write_svdf(kernel: BackendKernel, call: OpCall) -> None:
    """Write svdf with int16 state, which the library updates in place."""
    x, feature, time = (call.input(index) for index in (0, 1, 2))
    batch, filters, steps = x.shape[0], feature.shape[0], time.shape[-1]
    units = call.output.shape[-1]
    first, second = svdf.state_and_output_requant(call)
    params, one, more = workspace_context(kernel, 4 * batch * filters, "products")
    others, two, rest = workspace_context(kernel, 4 * batch * units, "totals")
    features, times = call.constant(1), call.constant(2)
    assert features is not None  # both checked by the predicate
    assert times is not None
    bias = call.constant(3)
    totals = np.zeros(units, np.int32) if bias is None else bias.array()
    x_buffer, before = kernel.inputs
    y, after = kernel.outputs
    lines = [
        f"const cmsis_nn_context first = {one}, second = {two};",
        f"const cmsis_nn_svdf_params params = {{{call.int_attr('rank')}, "
        f"{per_tensor_quant(x).zero_point}, {second.zero_point}, {{{INT16.min}, {INT16.max}}}, "
        f"{{{second.clamp_min}, {second.clamp_max}}}}};",
        f"const cmsis_nn_per_tensor_quant_params in = {{{first.multipliers[0]}, "
        f"{first.shifts[0]}}}, out = {{{second.multipliers[0]}, {second.shifts[0]}}};",
        f"const cmsis_nn_dims input = {c_dims(batch, x.shape[1], 1, 1)}, "
        f"kept = {c_dims(batch, filters * steps, 1, 1)};",
        f"const cmsis_nn_dims features = {c_dims(filters, x.shape[1], 1, 1)}, "
        f"times = {c_dims(filters, steps, 1, 1)};",
        f"const cmsis_nn_dims sums = {c_dims(units, 1, 1, 1)}, "
        f"output = {c_dims(batch, units, 1, 1)};",
        f"memmove(after, before, {2 * batch * filters * steps});",
        "(void)arm_svdf_state_s16_s8(&first, &second, &params, &in, &out, &input, x, &kept, after, "
        "&features, feature, &times, time, &sums, bias, &output, y);",
    ]
    heads = ["const int8_t *x", "const int16_t *before", "const int8_t *feature"]
    heads += ["const int16_t *time", "const int32_t *bias", "int8_t *y", "int16_t *after"]
    constants = [
        kernel.constant("feature", features.array(), INT8),
        kernel.constant("time", times.array(), INT16),
        kernel.constant("bias", totals, INT32),
    ]
    arguments = [x_buffer, before, *constants, y, after, *more, *rest]
    write_wrapper_function(kernel, [*heads, *params, *others], lines, arguments)


_ORDER = (1, 0, 2, 3)
"""Gate order of the library (forget, input, cell, output) as indices into the operator's order."""
_NAMES = ("input", "forget", "cell", "output")
_CELL = 2


def supports_lstm(call: OpCall) -> bool:
    """Return whether the layer uses TFLM's rounding and clips cells, as the library requires."""
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
    numbers = [int(call.int_attr("time_major")), batch, time, inputs, units]
    numbers += [-per_tensor_quant(x).zero_point, *one, *new, int(lstm_layer.cell_clip(call)), power]
    numbers += [*lstm_layer.hidden_factor(call), hidden.zero_point]
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
    name, bias = _NAMES[gate], call.constant(lstm_layer.BIAS + gate)
    assert bias is not None  # ensured by the operator's types
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
        weights = call.constant(first + gate)
        assert weights is not None  # ensured by the operator's types
        zero_point = per_tensor_quant(call.input(source)).zero_point
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
