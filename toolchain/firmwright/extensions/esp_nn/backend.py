"""Backend esp-nn: int8 kernels of Espressif's library, in C for any core.

Each operator becomes a C function that calls the library, as for CMSIS-NN (decision
0041). `-kernels=opt` are the generic optimizations that ESP-IDF builds for the ESP32
and the ESP32-C3, `ansi` the reference kernels; the assembly of the ESP32-S3 and P4 is
not used. The library rounds like TFLM.

The user's copy of the library is located by `--esp-nn PATH` or ESP_NN_PATH. Source of
signatures and semantics: the public headers esp_nn_ansi_headers.h and esp_nn_defs.h.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Rounding
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.attributes.layers import Conv2DAttrs, PoolAttrs, WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.graph.patterns import Match, constant, op, wildcard
from firmwright.ops import elementwise_arithmetic, softmax
from firmwright.ops.requantize import (
    Requantization,
    has_weight_zero_point,
    per_tensor_quant,
    quantized_activation_range,
)
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.layer_requantization import (
    known_requantization,
    layer_constants,
    requantize_step,
)
from firmwright.targets.library_calls import (
    elementwise_arguments,
    input_offsets,
    write_library_call,
)
from firmwright.targets.library_sources import collect_needed_files, find_library
from firmwright.targets.target_kind import TargetAttribute

_C = read_sections(__file__)
_FOLDERS = ("include", "src/common", "src/softmax")
_WINDOW_MAX = 0xFFFF
"""Sizes of pools are parameters of 16 bits."""
_SOFTMAX_MAX = 255
"""A row of more elements may ask for a shift by 31 bits, which overflows an int."""
HEADER = "include/esp_nn_ansi_headers.h"
_HEADERS = (HEADER, "include/esp_nn_defs.h")
PATH_VARIABLE = "ESP_NN_PATH"


def _dims(shape: Sequence[int]) -> str:
    """Return the data_dims_t initializer of a shape (batch, rows, columns, depth)."""
    _, rows, columns, depth = shape
    return f"{{{columns}, {rows}, {depth}, 1}}"


def _pair(values: Sequence[int]) -> str:
    """Return width and height of (rows, columns)."""
    return f"{values[1]}, {values[0]}"


def _write(
    kernel: BackendKernel,
    heads: Sequence[str],
    text: str,
    arguments: Sequence[tir.Buffer],
) -> None:
    write_library_call(kernel, Path(HEADER).name, heads, text, arguments)


def write_convolution(kernel: BackendKernel, call: OpCall) -> None:
    attrs, step = call.attributes(WindowAttrs), known_requantization(call)
    x, w, y = call.input(0), call.input(1), call.output
    is_depthwise = call.op == "depthwise_conv2d"
    name = "esp_nn_depthwise_conv_s8" if is_depthwise else "esp_nn_conv_s8"
    text = fill_text(
        _C["convolution"],
        name=f"{name}_{kernel.target.attr('kernels')}",
        kind="dw_conv" if is_depthwise else "conv",
        multiple=f"{y.shape[3] // x.shape[3]}, " if is_depthwise else "",
        x=_dims(x.shape),
        w=_dims(w.shape),
        y=_dims(y.shape),
        input_offset=-per_tensor_quant(x).zero_point,
        zero_point=step.zero_point,
        stride=f"{{{_pair(attrs.stride)}}}",
        padding=f"{{{_pair((attrs.padding[0], attrs.padding[2]))}}}",
        low=step.clamp_min,
        high=step.clamp_max,
    )
    heads = ["const int8_t *x", "const int8_t *w", "const int32_t *bias"]
    heads += ["const int32_t *multipliers", "const int32_t *shifts", "int8_t *y"]
    arguments = [kernel.inputs[0], *layer_constants(kernel, call), kernel.outputs[0]]
    _write(kernel, heads, text, arguments)


def write_fully_connected(kernel: BackendKernel, call: OpCall) -> None:
    """Write fully_connected; the weights may have a scale for each output."""
    step, x = known_requantization(call), call.input(0)
    outputs, inputs = call.input(1).shape
    weights, bias, multipliers, shifts = layer_constants(kernel, call)
    name, multiplier, shift = "esp_nn_fully_connected_s8", step.multipliers, step.shifts
    heads = ["const int8_t *x", "const int8_t *w", "const int32_t *bias"]
    arguments = [kernel.inputs[0], weights, bias]
    factor: tuple[object, object] = (multiplier[0], shift[0])
    if step.per_channel:
        name, factor = "esp_nn_fully_connected_per_ch_s8", ("multipliers", "shifts")
        heads += ["const int32_t *multipliers", "const int32_t *shifts"]
        arguments += [multipliers, shifts]
    text = fill_text(
        _C["fully_connected"],
        name=f"{name}_ansi",
        rows=x.elements // inputs,
        inputs=inputs,
        outputs=outputs,
        input_offset=-per_tensor_quant(x).zero_point,
        zero_point=step.zero_point,
        multiplier=factor[0],
        shift=factor[1],
        low=step.clamp_min,
        high=step.clamp_max,
    )
    _write(kernel, [*heads, "int8_t *y"], text, [*arguments, kernel.outputs[0]])


def write_pool(kernel: BackendKernel, call: OpCall) -> None:
    attrs = call.attributes(PoolAttrs)
    x, y = call.input(0), call.output
    low, high = quantized_activation_range(attrs.activation, y)
    kind = "avg" if call.op == "average_pool2d" else "max"
    text = fill_text(
        _C["pool"],
        name=f"esp_nn_{kind}_pool_s8_ansi",
        input_size=_pair(x.shape[1:3]),
        output_size=_pair(y.shape[1:3]),
        stride=_pair(attrs.stride),
        window=_pair(attrs.size),
        padding=_pair((attrs.padding[0], attrs.padding[2])),
        low=low,
        high=high,
        channels=x.shape[3],
    )
    arguments = [kernel.inputs[0], kernel.outputs[0]]
    _write(kernel, ["const int8_t *x", "int8_t *y"], text, arguments)


def write_softmax(kernel: BackendKernel, call: OpCall) -> None:
    x = call.input(0)
    beta = softmax.softmax_beta(call)
    multiplier, left, reach = softmax.difference_scaling(call, beta)
    text = fill_text(
        _C["softmax"],
        rows=x.elements // x.shape[-1],
        depth=x.shape[-1],
        multiplier=multiplier,
        left=left,
        least=-reach,
    )
    arguments = [kernel.inputs[0], kernel.outputs[0]]
    _write(kernel, ["const int8_t *x", "int8_t *y"], text, arguments)


def write_add(kernel: BackendKernel, call: OpCall) -> None:
    rescaled = rescaled_sum(call)
    first, second = rescaled.terms
    before = [-first.zero_point, -second.zero_point]
    before += [first.multiplier, second.multiplier, first.shift, second.shift]
    _elementwise(kernel, call, "add", [*before, first.left], rescaled.output)


def write_mul(kernel: BackendKernel, call: OpCall) -> None:
    step = elementwise_arithmetic.product_requantization(call)
    _elementwise(kernel, call, "mul", input_offsets(call), step)


def _elementwise(
    kernel: BackendKernel,
    call: OpCall,
    name: str,
    before: Sequence[int],
    step: Requantization,
) -> None:
    """Write a call with `before` in front of the output and `step` after it."""
    first_words, last_words = elementwise_arguments(call, before, step)
    text = fill_text(
        _C["elementwise"],
        name=f"esp_nn_{name}_elementwise_s8_ansi",
        before=first_words,
        after=last_words,
    )
    heads = ["const int8_t *a", "const int8_t *b", "int8_t *y"]
    first, second = (kernel.inputs * 2)[:2]
    _write(kernel, heads, text, [first, second, kernel.outputs[0]])


_WRITERS: Mapping[str, Callable[[BackendKernel, OpCall], None]] = {
    "conv2d": write_convolution,
    "depthwise_conv2d": write_convolution,
    "fully_connected": write_fully_connected,
    "average_pool2d": write_pool,
    "max_pool2d": write_pool,
    "softmax": write_softmax,
    "add": write_add,
    "mul": write_mul,
}
_WEIGHTED = ("conv2d", "depthwise_conv2d", "fully_connected")


class EspNn(Backend):
    """ESP-NN kernels for int8 layers, on any core with a C compiler."""

    name = "esp-nn"
    doc = "ESP-NN, Espressif's library of int8 kernels (its C sources)"
    attrs: Mapping[str, TargetAttribute] = {
        "kernels": TargetAttribute("opt", "of convolutions", ("opt", "ansi"))
    }

    def patterns(self) -> Sequence[PatternEntry]:
        weighted = (wildcard(), constant(), constant(absent=True))
        entries = []
        for name in _WRITERS:
            is_weighted = name in _WEIGHTED
            pattern = op(name, *weighted) if is_weighted else op(name)
            supports = _supports_weighted if is_weighted else _supports_call
            entries.append(PatternEntry(name, pattern, supports))
        return entries

    def generate(self, kernel: BackendKernel) -> None:
        (call,) = kernel.ops
        _WRITERS[call.op](kernel, call)

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        library = _library()
        files = dict(collect_needed_files(library, _FOLDERS, "src", symbols))
        # Kernels that need no other declarations include neither.
        for header in _HEADERS:
            files[Path(header).name] = (library / header).read_bytes()
        return files

    def library(self, target: Target) -> str:
        return hashlib.sha256((_library() / HEADER).read_bytes()).hexdigest()[:12]


def _library() -> Path:
    return find_library(EspNn.name, PATH_VARIABLE, HEADER)


def _supports_call(match: Match) -> bool:
    (call,) = match.ops
    if any(kind is None or kind.dtype != INT8 for kind in (*call.inputs, call.output)):
        return False
    match call.op:
        case "softmax":
            is_short = call.input(0).shape[-1] <= _SOFTMAX_MAX
            return is_short and call.numerics == "tflm"
        case "add" | "mul":
            is_variable = all(values is None for values in call.constants)
            return is_variable and call.input(0).shape == call.input(1).shape
        case _:
            return _is_one_image(call)


def _is_one_image(call: OpCall) -> bool:
    attrs = call.attributes(WindowAttrs)
    sizes = [*call.input(0).shape, *call.output.shape]
    is_small = max(sizes) <= _WINDOW_MAX
    return call.input(0).shape[0] == 1 and attrs.dilation == (1, 1) and is_small


def _supports_weighted(match: Match) -> bool:
    (call,) = match.ops
    x, w = call.input(0), call.input(1)
    if {x.dtype, w.dtype, call.output.dtype} != {INT8} or has_weight_zero_point(call):
        return False
    step = requantize_step(call)
    if step is None or step.rounding != Rounding.TWICE:
        return False
    if call.op == "fully_connected":
        return max(w.shape) <= _WINDOW_MAX
    match call.attrs:
        case Conv2DAttrs(unsigned=True):
            return False
    whole = call.op == "depthwise_conv2d" or w.shape[3] == x.shape[3]
    return whole and _is_one_image(call)
