"""Removal of constant channels: their consumers take the constants into their biases.

Trained networks contain channels whose output no input changes: the scale is so small,
or the bias so large, that the activation always clamps. Interval arithmetic finds them,
from the weights and the bounds of the input channels. A channel is removed from the
layer that computes it and from all calls that work channel by channel, if every layer
that reads it can add a constant to its bias instead. Where a layer pads its input, this
requires the zero point, so that all windows add the same. The results are equal bit for
bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.layers import WindowAttrs, activation_of
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value, unique_name
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.ir.settings import Minimize
from firmwright.ops import conv2d, fully_connected, requantize
from firmwright.passes.map_functions import names_of

_MULTIPLE = 2
"""The number of channels that remain is a multiple of this: schedules pair channels."""
_INPUT_CHANNELS = {"conv2d": 3, "fully_connected": 1}
_OUTPUT_CHANNELS = {"conv2d": 0, "depthwise_conv2d": 3, "fully_connected": 0}
"""The axes of weights, by operator."""
_TIMED = (Minimize.SPEED, Minimize.BALANCED)
_SAVED_SHARE = 8
"""A removal that saves one multiplication in this many is never slower.

Person detection with 2 percent fewer multiplications takes 2 percent fewer
instructions; the visual wake words with half of them, 47 percent fewer.
"""
_AT_MOST_PERCENT = 99
"""The predicted time of the changed layers that is less than before beyond doubt."""
PredictTime = Callable[[IRModule], int]
"""The predicted time of the entry's calls, each by its fastest kernel."""
_POOLS = ("max_pool2d", "average_pool2d")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least and the greatest value of each channel.

    The channel of an element is its flat index modulo their number, also after a
    reshape.
    """

    low: Array
    high: Array


def run(module: IRModule) -> IRModule:
    if keeps_constants_apart(module) or module.settings.all_channels:
        return module
    functions, constants = dict(module.functions), dict(module.constants)
    live: dict[str, tuple[int, ...]] = {}
    for name, function in module.functions.items():
        if isinstance(function, Function) and not function.attrs.get("target"):
            folding = _Folding(module, function, constants)
            functions[name] = folding.folded()
            live |= folding.live
    if not live:
        return module
    results = replace(module.results, live_channels=tuple(live.items()))
    return replace(module, functions=functions, constants=constants, results=results)


def fold_if_not_slower(module: IRModule, predict: PredictTime) -> IRModule:
    """Return `module` without constant channels unless its layers would be slower.

    Schedules suit certain numbers of channels, so fewer channels can take longer. A
    removal that saves much of the multiplications is not checked, nor one for a goal
    other than time: fewer channels need less memory.
    """
    folded = run(module)
    is_timed = module.settings.objective.minimize in _TIMED
    if folded is module or not is_timed or not isinstance(module.entry, Function):
        return folded
    before, after = module.entry_graph, folded.entry_graph
    pairs = zip(before.body, after.body, strict=True)
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    old = _with_body(module, [pair[0] for pair in changed])
    new = _with_body(folded, [pair[1] for pair in changed])
    saved = _multiplications(old) - _multiplications(new)
    if saved * _SAVED_SHARE >= _multiplications(module):
        return folded
    is_faster = predict(new) * 100 <= predict(old) * _AT_MOST_PERCENT
    return folded if is_faster else module


def _with_body(module: IRModule, body: Sequence[Call]) -> IRModule:
    entry = replace(module.entry_graph, body=tuple(body))
    return replace(module, functions={**module.functions, entry.name: entry})


def _multiplications(module: IRModule) -> int:
    """Return the multiplications of the layers of the entry."""
    total = 0
    for call in module.entry_graph.body:
        if _is_layer(call):
            described = make_op_call(call, module)
            count = conv2d.count_macs
            if call.op == "depthwise_conv2d":
                count = conv2d.count_depthwise_macs
            elif call.op == "fully_connected":
                count = fully_connected.macs
            total += count(described)
    return total


@dataclass(slots=True)
class _Folding:
    """The folding of one function; `constants` receives the new weights and biases."""

    module: IRModule
    function: Function
    constants: dict[str, Constant]
    live: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _body: list[Call] = field(default_factory=list)
    _readers: dict[str, list[int]] = field(default_factory=dict)
    _bounds: dict[str, _Bounds] = field(default_factory=dict)

    def folded(self) -> Function:
        self._body = list(self.function.body)
        for index, call in enumerate(self._body):
            for value in call.variables:
                self._readers.setdefault(value.name, []).append(index)
            if _is_layer(call) or _is_channelwise(call):
                self._bounds[call.outputs[0].name] = self._bounds_of(call)
        sinks = names_of(self.function.sinks)
        for index, call in enumerate(self.function.body):
            if call.op in _INPUT_CHANNELS and _is_layer(call):
                value = call.outputs[0]
                live = _live_channels(self._removable(value, value.shape[-1], sinks))
                if len(live) < value.shape[-1]:
                    self._restrict(index, live)
        if not self.live:
            return self.function
        return replace(self.function, body=tuple(map(self._renewed, self._body)))

    def _op_call(self, call: Call) -> OpCall:
        return make_op_call(call, replace(self.module, constants=self.constants))

    # ---- analysis --------------------------------------------------------------------

    def _bounds_of(self, call: Call) -> _Bounds:
        """Return the bounds of the result of a layer or a channel-by-channel call."""
        source, y = call.variables[0], call.outputs[0]
        x = self._bounds.get(source.name) or _unknown(source.shape[-1])
        if call.op == "reshape":
            return x if y.shape[-1] % len(x.low) == 0 else _unknown(y.shape[-1])
        if not _is_layer(call):
            activation = activation_of(call.attrs)
            least, greatest = requantize.quantized_activation_range(activation, y.type)
            low = np.clip(x.low, least, greatest)
            return _Bounds(low, np.clip(x.high, least, greatest))
        layer = self._op_call(call)
        offsets = self._input_offsets(call, layer, x)
        if call.op == "fully_connected":
            step = fully_connected.int8_requantization(layer)
        else:
            step = conv2d.requantization_of(layer)
        if not isinstance(step, requantize.Requantization):
            return _unknown(y.shape[-1])
        sums = _sum_bounds(layer, offsets)
        return _Bounds(*requantize.output_bounds(step, sums.low, sums.high))

    def _input_offsets(self, call: Call, layer: OpCall, x: _Bounds) -> _Bounds:
        """Return the bounds of the input less its zero point, by channel of weights.

        If the weights have several times the channels of the bounds, as after a
        flatten, these repeat. Padding is zero.
        """
        source = call.variables[0]
        channels = source.shape[-1]
        if call.op in _INPUT_CHANNELS:
            channels = layer.input(1).shape[-1]
        periods, rest = divmod(channels, len(x.low))
        if rest:
            x, periods = _unknown(channels), 1
        # Offsets are added with weights, so the zero point is taken off first: padding
        # is then 0.
        low = np.tile(x.low, periods) - _zero_point(source)
        high = np.tile(x.high, periods) - _zero_point(source)
        if _is_padded(call):
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        return _Bounds(low, high)

    def _removable(self, value: Value, channels: int, sinks: set[str]) -> Array:
        """Return the channels that every reader of `value` can do without."""
        readers = self._readers.get(value.name, ())
        removable = np.full(channels, bool(readers) and value.name not in sinks)
        for index in readers:
            call = self._body[index]
            if _is_channelwise(call) and _keeps_channels(call, channels):
                removable &= self._removable(call.outputs[0], channels, sinks)
            elif call.op in _INPUT_CHANNELS and _is_layer(call):
                removable &= self._foldable(call, value, channels)
            else:
                removable[:] = False
        return removable

    def _foldable(self, call: Call, value: Value, channels: int) -> Array:
        """Return the channels of `value` that `call` can take into its bias."""
        weights = conv2d.weight_offsets(self._op_call(call))
        bounds = self._bounds[value.name]
        if weights.shape[-1] % channels:
            return np.zeros(channels, bool)
        # A channel c of x adds sum(w[.., c]) * x[c] to each output. If x[c] is
        # constant, that is a constant, too, unless part of the window is padding, where
        # x is the zero point instead: then it must be the zero point everywhere, which
        # adds nothing.
        is_constant = bounds.low == bounds.high
        if _is_padded(call):
            is_constant &= bounds.low == _zero_point(value)
        # Weights of zero read a channel without effect, whatever its values are.
        is_unread = ~weights.reshape(-1, channels).any(axis=0)
        return np.asarray(is_constant | is_unread)

    # ---- change ----------------------------------------------------------------------

    def _restrict(self, index: int, live: tuple[int, ...]) -> None:
        """Compute only the live channels of the layer at `index` and of its readers.

        `changed` grows by the readers that work channel by channel.
        """
        channels = self._body[index].outputs[0].shape[-1]
        changed = [index]
        # The list grows while it is walked: appended readers are visited, too.
        for at in changed:
            call = self._body[at]
            if call.op in _OUTPUT_CHANNELS:
                self._body[at] = self._with_outputs(call, live)
            value = call.outputs[0]
            # After a flatten, the last axis has each channel several times:
            # c, c + channels, ...
            elements = np.arange(value.shape[-1]).reshape(-1, channels)
            self.live[value.name] = tuple(elements[:, live].ravel().tolist())
            for reader in self._readers[value.name]:
                call = self._body[reader]
                if _is_channelwise(call):
                    changed.append(reader)
                else:
                    fewer = self._without_inputs(call, value, live, channels)
                    self._body[reader] = fewer

    def _with_outputs(self, call: Call, live: tuple[int, ...]) -> Call:
        """Return the layer with the weights and biases of the live channels."""
        stem = call.outputs[0].name
        x, weights, *biases = call.inputs
        assert weights is not None
        axis = _OUTPUT_CHANNELS[call.op]
        inputs = [x, self._sliced(weights, f"{stem}/weights", axis, live)]
        for bias in biases:
            if bias is not None:
                bias = self._sliced(bias, f"{stem}/bias", 0, live)
            inputs.append(bias)
        return replace(call, inputs=tuple(inputs))

    def _sliced(
        self, value: Value, name: str, axis: int, live: tuple[int, ...]
    ) -> Value:
        """Return a new constant with the live entries of an axis, quantized alike."""
        array = self.constants[str(value.constant)].array().take(live, axis)
        quantization = value.type.quantization
        if quantization is not None and len(quantization.scales) > 1:
            scales = tuple(quantization.scales[channel] for channel in live)
            zero_points = tuple(quantization.zero_points[channel] for channel in live)
            quantization = replace(quantization, scales=scales, zero_points=zero_points)
        return self._constant(name, array, value.type.dtype, quantization)

    def _without_inputs(
        self, call: Call, value: Value, live: tuple[int, ...], channels: int
    ) -> Call:
        """Return the layer that reads the live channels, with a bias for the others."""
        x, weights, *bias = call.inputs
        assert weights is not None
        stem, layer = call.outputs[0].name, self._op_call(call)
        offsets = conv2d.weight_offsets(layer).astype(np.int64)
        sums = offsets.reshape(len(offsets), -1, channels).sum(axis=1)
        constants = self._bounds[value.name].low - _zero_point(value)
        # The live channels remain inputs; only the others become part of the bias.
        constants[list(live)] = 0
        added = sums @ constants
        if added.any():
            total = conv2d.bias_of(layer, "int64") + added
            kind = bias[0].type.quantization if bias and bias[0] is not None else None
            bias = [self._constant(f"{stem}/bias", total, INT32, kind)]
        array = self.constants[str(weights.constant)].array()
        lead = array.shape[:-1]
        fewer = array.reshape(*lead, -1, channels).take(live, -1).reshape(*lead, -1)
        kind = weights.type.quantization
        sliced = self._constant(f"{stem}/weights", fewer, weights.type.dtype, kind)
        return replace(call, inputs=(x, sliced, *bias))

    def _constant(
        self, name: str, array: Array, dtype: DType, quantization: Quantization | None
    ) -> Value:
        name = unique_name(name, set(self.constants))
        self.constants[name] = Constant.from_array(name, array, dtype)
        return Value(name, TensorType(array.shape, dtype, quantization), name)

    def _renewed(self, call: Call) -> Call:
        """Return the call with the new shapes of its values."""

        def renewed(value: Value) -> Value:
            live = self.live.get(value.name)
            if live is None:
                return value
            shape = (*value.shape[:-1], len(live))
            return replace(value, type=replace(value.type, shape=shape))

        inputs: list[Value | None] = []
        for operand in call.inputs:
            inputs.append(None if operand is None else renewed(operand))
        outputs = tuple(map(renewed, call.outputs))
        return replace(call, inputs=tuple(inputs), outputs=outputs)


def _sum_bounds(layer: OpCall, offsets: _Bounds) -> _Bounds:
    """Return the least and the greatest sums of each output channel.

    A sum is least if positive weights meet the least input offsets and negative ones
    the greatest. Weights of a window that meet the same channel are added first.
    """
    weights = conv2d.weight_offsets(layer).astype(np.int64)
    positive, negative = np.maximum(weights, 0), np.minimum(weights, 0)
    low, high = offsets.low, offsets.high
    if layer.op == "depthwise_conv2d":
        positive, negative = positive.sum(axis=(0, 1, 2)), negative.sum(axis=(0, 1, 2))
        multiplier = len(positive) // len(low)  # outputs of each input channel
        low, high = np.repeat(low, multiplier), np.repeat(high, multiplier)
        least = positive * low + negative * high
        most = positive * high + negative * low
    else:
        shape = (len(weights), -1, len(low))
        positive = positive.reshape(shape).sum(axis=1)
        negative = negative.reshape(shape).sum(axis=1)
        least = positive @ low + negative @ high
        most = positive @ high + negative @ low
    bias = conv2d.bias_of(layer, "int64")
    return _Bounds(least + bias, most + bias)


def _is_layer(call: Call) -> bool:
    """Whether `call` is an int8 layer with constant operands that may be replaced."""
    if call.op not in _OUTPUT_CHANNELS:
        return False
    x, weights, *biases = call.inputs
    if weights is None or not _is_int8(x, call.outputs[0]):
        return False
    for operand in (weights, *biases):
        if operand is not None and (operand.constant is None or is_placed(operand)):
            return False
    return True


def _is_channelwise(call: Call) -> bool:
    """Whether each channel of the int8 result depends on the same one of the input."""
    is_depthwise = call.op == "depthwise_conv2d" and _is_layer(call)
    if not (call.op == "reshape" or call.op in _POOLS or is_depthwise):
        return False
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not _is_int8(x, y) or not (x.shape and y.shape):
        return False
    return call.op == "reshape" or x.shape[-1] == y.shape[-1]


def _keeps_channels(call: Call, channels: int) -> bool:
    """Whether the channels of the result are its flat indices modulo `channels`."""
    last = call.outputs[0].shape[-1]
    return last % channels == 0 if call.op == "reshape" else last == channels


def _is_int8(x: Value | None, y: Value) -> bool:
    """Whether the variable `x` and the result `y` are int8."""
    return x is not None and x.constant is None and x.type.dtype == y.type.dtype == INT8


def _live_channels(removable: Array) -> tuple[int, ...]:
    """Return the channels to keep: those needed, and others up to a full multiple.

    At least one multiple remains, as a layer has at least one channel.
    """
    channels = np.arange(len(removable))
    needed, others = channels[~removable], channels[removable]
    spare = -len(needed) % _MULTIPLE
    if not len(needed):
        spare = _MULTIPLE
    return tuple(sorted((*needed.tolist(), *others[:spare].tolist())))


def _unknown(channels: int) -> _Bounds:
    return _Bounds(np.full(channels, INT8.min), np.full(channels, INT8.max))


def _zero_point(value: Value) -> int:
    return requantize.per_tensor_quant(value.type).zero_point


def _is_padded(call: Call) -> bool:
    return isinstance(call.attrs, WindowAttrs) and any(call.attrs.padding)


PASS = Pass("fold-constant-channels", run)
