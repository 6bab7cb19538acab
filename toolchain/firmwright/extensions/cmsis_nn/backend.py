"""Backend cmsis-nn: kernels of Arm's library for int8 and int16.

Each operator becomes a C function that calls the library (decision 0041). The context
buffer is planned workspace of the size that `*_get_buffer_size` returns for the core
(`dsp`, `mve` or neither). The library rounds like TFLM; layers with other rounding
(some with `--numerics litert`) stay on the core.

The user's copy of the library is located by `--cmsis-nn PATH` or CMSIS_NN_PATH; the
files of the called functions are copied to the project. Source of signatures, buffer
sizes and semantics: the public header arm_nnfunctions.h.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import INT8, INT16
from firmwright.base.quant import Rounding
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.cmsis_nn import weighted_layers as layers
from firmwright.extensions.cmsis_nn.c_calls import (
    activation_pointer_type,
    average_pool_workspace_bytes,
    c_shape,
    c_tile,
    core_features,
    dtype_suffix,
    workspace_context,
    write_wrapper_function,
)
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.attributes.layers import (
    AveragePoolAttrs,
    BatchMatmulAttrs,
    Conv2DAttrs,
    PoolAttrs,
    WindowAttrs,
)
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.graph.patterns import Match, constant, op, wildcard
from firmwright.ops import batch_matmul, elementwise_arithmetic, softmax
from firmwright.ops.int16x8 import has_int64_sum
from firmwright.ops.requantize import (
    Requantization,
    has_weight_zero_point,
    per_tensor_quant,
    quantized_activation_range,
)
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.layer_requantization import requantize_step
from firmwright.targets.library_calls import elementwise_arguments, input_offsets
from firmwright.targets.library_sources import collect_needed_files, find_library

_C = read_sections(__file__)


def write_pool(kernel: BackendKernel, call: OpCall) -> None:
    attrs = call.attributes(PoolAttrs)
    x, y, padding = call.input(0), call.output, attrs.padding
    low, high = quantized_activation_range(attrs.activation, y)
    function, size = "max_pool", 0
    if call.op == "average_pool2d":
        function = "avgpool"
        size = average_pool_workspace_bytes(call, core_features(kernel))
    height, width = attrs.size
    params, buffer, more = workspace_context(kernel, size)
    text = fill_text(
        _C["pool"],
        buffer=buffer,
        name=f"{function}_{dtype_suffix(x.dtype)}",
        x=c_shape(x.shape),
        y=c_shape(y.shape),
        stride=c_tile(attrs.stride),
        padding=c_tile((padding[0], padding[2])),
        low=low,
        high=high,
        height=height,
        width=width,
    )
    kind = activation_pointer_type(x.dtype)
    heads = [f"const {kind}x", f"{kind}y", *params]
    arguments = [kernel.inputs[0], kernel.outputs[0], *more]
    write_wrapper_function(kernel, heads, text, arguments)


def write_softmax(kernel: BackendKernel, call: OpCall) -> None:
    x = call.input(0)
    depth = x.shape[-1]
    rows, beta = x.elements // depth, softmax.softmax_beta(call)
    if x.dtype == INT16:
        _write_softmax_int16(kernel, call, rows, depth, beta)
        return
    multiplier, left, reach = softmax.difference_scaling(call, beta)
    text = f"arm_softmax_s8(x, {rows}, {depth}, {multiplier}, {left}, {-reach}, y);"
    arguments = [*kernel.inputs, *kernel.outputs]
    write_wrapper_function(kernel, ["const int8_t *x", "int8_t *y"], text, arguments)


def _write_softmax_int16(
    kernel: BackendKernel, call: OpCall, rows: int, depth: int, beta: float
) -> None:
    scale = per_tensor_quant(call.input(0)).scale
    multiplier, shift = softmax.difference_multiplier(scale, beta)
    powers, inverses = softmax.lookup_tables()
    text = fill_text(
        _C["softmax_int16"],
        rows=rows,
        depth=depth,
        multiplier=multiplier,
        shift=shift,
    )
    heads = [
        "const int16_t *x",
        "int16_t *y",
        "const int16_t *powers",
        "const int16_t *inverses",
    ]
    arguments = [
        *kernel.inputs,
        *kernel.outputs,
        kernel.constant("powers", powers, INT16),
        kernel.constant("inverses", inverses, INT16),
    ]
    write_wrapper_function(kernel, heads, text, arguments)


def write_add(kernel: BackendKernel, call: OpCall) -> None:
    rescaled = rescaled_sum(call)
    before: list[int] = []
    for term in rescaled.terms:
        before += [-term.zero_point, term.multiplier, term.shift]
    before.append(rescaled.terms[0].left)
    _elementwise(kernel, call, "add", before, rescaled.output)


def write_mul(kernel: BackendKernel, call: OpCall) -> None:
    step = elementwise_arithmetic.product_requantization(call)
    _elementwise(kernel, call, "mul", input_offsets(call), step)


def _elementwise(
    kernel: BackendKernel,
    call: OpCall,
    name: str,
    before: list[int],
    step: Requantization,
) -> None:
    """Write a call with `before` in front of the output pointer and `step` after it."""
    first_words, last_words = elementwise_arguments(call, before, step)
    kind = activation_pointer_type(call.output.dtype)
    function = f"arm_elementwise_{name}_{dtype_suffix(call.output.dtype)}"
    text = f"(void){function}(a, b, {first_words}, y, {last_words});"
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y"]
    first, second = (kernel.inputs * 2)[:2]
    write_wrapper_function(kernel, heads, text, [first, second, kernel.outputs[0]])


def write_batch_matmul(kernel: BackendKernel, call: OpCall) -> None:
    """Write batch_matmul; a constant second factor is transposed at compile time."""
    x, other, y = call.input(0), call.input(1), call.output
    step = batch_matmul.requantization_of(call)
    columns, depth = transposed_rhs_shape(call)
    rhs_constant = call.constant(1)
    factor: tir.Buffer = kernel.inputs[-1]
    if rhs_constant is not None:
        rows = rhs_constant.array()
        if not call.attributes(BatchMatmulAttrs).adj_y:
            rows = np.swapaxes(rows, -1, -2)
        factor = kernel.constant("factor", np.ascontiguousarray(rows), other.dtype)
    sums = 4 * columns if "mve" in core_features(kernel) and x.dtype == INT8 else 0
    params, buffer, more = workspace_context(kernel, sums)
    text = fill_text(
        _C["batch_matmul"],
        buffer=buffer,
        left_offset=-per_tensor_quant(x).zero_point,
        right_offset=-per_tensor_quant(other).zero_point,
        zero_point=step.zero_point,
        low=step.clamp_min,
        high=step.clamp_max,
        multiplier=step.multipliers[0],
        shift=step.shifts[0],
        x=c_shape(x.shape),
        y=c_shape(y.shape),
        factor=c_shape((*other.shape[:-2], columns, depth)),
        suffix=dtype_suffix(x.dtype),
    )
    kind = activation_pointer_type(x.dtype)
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y", *params]
    arguments = [kernel.inputs[0], factor, kernel.outputs[0], *more]
    write_wrapper_function(kernel, heads, text, arguments)


def transposed_rhs_shape(call: OpCall) -> tuple[int, int]:
    """Return the rows and columns of the second factor in the library's layout."""
    rows, columns = call.input(1).shape[-2:]
    if call.attributes(BatchMatmulAttrs).adj_y:
        return (rows, columns)
    return (columns, rows)


PATH_VARIABLE = "CMSIS_NN_PATH"
HEADER = "Include/arm_nnfunctions.h"
_WRITERS: Mapping[str, Callable[[BackendKernel, OpCall], None]] = {
    "conv2d": layers.write_convolution,
    "depthwise_conv2d": layers.write_convolution,
    "fully_connected": layers.write_fully_connected,
    "transpose_conv": layers.write_transpose_conv,
    "svdf": layers.write_svdf,
    "lstm": layers.write_lstm,
    "average_pool2d": write_pool,
    "max_pool2d": write_pool,
    "softmax": write_softmax,
    "add": write_add,
    "mul": write_mul,
    "batch_matmul": write_batch_matmul,
}
_WEIGHTED = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv")


class CmsisNn(Backend):
    """CMSIS-NN kernels for int8 and int16 layers on Cortex-M."""

    name = "cmsis-nn"
    doc = "CMSIS-NN, Arm's library of int8 and int16 kernels for Cortex-M"

    def patterns(self) -> Sequence[PatternEntry]:
        weighted = (wildcard(), constant(), constant(absent=True))
        entries = []
        for name in _WEIGHTED:
            pattern = op(name, *weighted)
            entries.append(PatternEntry(name, pattern, _supports_weighted_layer))
        for name in _WRITERS:
            if name not in _WEIGHTED:
                entries.append(PatternEntry(name, op(name), _supports_call))
        return entries

    def generate(self, kernel: BackendKernel) -> None:
        (call,) = kernel.ops
        _WRITERS[call.op](kernel, call)

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        return collect_needed_files(_library(), ("Include",), "Source", symbols)

    def library(self, target: Target) -> str:
        return hashlib.sha256((_library() / HEADER).read_bytes()).hexdigest()[:12]


def _library() -> Path:
    return find_library(CmsisNn.name, PATH_VARIABLE, HEADER)


def _supports_call(match: Match) -> bool:
    (call,) = match.ops
    if call.op == "svdf":
        kinds = [call.input(index).dtype for index in (0, 1, 2, 4)]
        return kinds == [INT8, INT8, INT16, INT16]
    if call.op == "lstm":
        return layers.supports_lstm(call)
    kinds = [kind.dtype for kind in (*call.inputs, call.output) if kind is not None]
    if kinds[0] not in (INT8, INT16) or len(set(kinds)) > 1:
        return False
    match call.op:
        case "softmax":
            return call.numerics == "tflm" or kinds[0] == INT16
        case "add" | "mul":
            variable = all(constant_value is None for constant_value in call.constants)
            return variable and call.input(0).shape == call.input(1).shape
        case "batch_matmul":
            return _supports_batch_matmul(call)
        case _:
            is_dilated = call.attributes(WindowAttrs).dilation != (1, 1)
            return not is_dilated and not _is_unsigned(call)


def _is_unsigned(call: OpCall) -> bool:
    match call.attrs:
        case Conv2DAttrs(unsigned=True) | AveragePoolAttrs(unsigned=True):
            return True
    return False


def _supports_batch_matmul(call: OpCall) -> bool:
    attrs = call.attributes(BatchMatmulAttrs)
    x, other = call.input(0).shape, call.input(1).shape
    if call.constant(0) is not None or attrs.adj_x or len(x) != len(other):
        return False
    turned = call.constant(1) is not None or attrs.adj_y
    return turned and len(x) <= 4 and x[:-2] == other[:-2]


def _supports_weighted_layer(match: Match) -> bool:
    (call,) = match.ops
    x, w = call.input(0), call.input(1)
    if x.dtype not in (INT8, INT16) or w.dtype != INT8 or call.output.dtype != x.dtype:
        return False
    if has_weight_zero_point(call):
        return False
    step = requantize_step(call)
    if step is None or (x.dtype == INT16 and not _supports_int16_layer(call)):
        return False
    narrow = not has_int64_sum(call)
    if step.rounding != (Rounding.TWICE if narrow else Rounding.ONCE):
        return False
    return call.op != "conv2d" or w.shape[3] == x.shape[3]


def _supports_int16_layer(call: OpCall) -> bool:
    """Return whether the library supports it; only conv2d may have a 32-bit bias."""
    if call.op == "transpose_conv":
        return False
    one_scale = call.op != "fully_connected" or len(layers.weight_scales(call)) == 1
    return one_scale and (call.op == "conv2d" or has_int64_sum(call))
