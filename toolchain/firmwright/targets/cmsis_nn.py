"""cmsis-nn: Arm's library of int8 kernels takes what it has functions for.

Each operator becomes one C function of its own, which fills the library's structs with numbers and
calls it; weights, multipliers and shifts are constants, the context's buffer is workspace that the
planner places, as large as the library's `*_get_buffer_size` says for the core: `dsp`, `mve` or
neither. The library rounds twice everywhere, so layers that are defined otherwise stay on the core
(per-tensor fully connected layers and softmax are under `--numerics litert`).

The user's copy is found by `--cmsis-nn PATH` or CMSIS_NN_PATH; of it the files become part of the
project that define what is called. Source of signatures, buffer sizes and semantics: the library's
public header arm_nnfunctions.h.
"""

from __future__ import annotations

import hashlib
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import UsageError
from firmwright.base.quant import Rounding
from firmwright.ir.core import Target
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.graph.patterns import Match, constant, op, wildcard
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops import conv2d, fully_connected, softmax
from firmwright.ops.fixed_point import Requant, per_tensor, quantized_activation_range
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.targets import cortex_m
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.c_library import needed_files
from firmwright.targets.cmsis_nn_buffers import average_pool_bytes, conv_bytes, depthwise_bytes
from firmwright.targets.composite import Composite

PATH_VARIABLE = "CMSIS_NN_PATH"
HEADER = "Include/arm_nnfunctions.h"
_COLUMNS = 100
_LAYERS = ("conv2d", "depthwise_conv2d", "fully_connected")


class CmsisNn(Backend):
    """Arm's kernels for int8 layers on Cortex-M."""

    name = "cmsis-nn"
    doc = "CMSIS-NN, Arm's library of int8 kernels for Cortex-M"

    def patterns(self) -> Sequence[PatternEntry]:
        weighted = (wildcard(), constant(), constant(absent=True))
        layers = [PatternEntry(name, op(name, *weighted), _takes_layer) for name in _LAYERS]
        others = ("average_pool2d", "max_pool2d", "softmax", "add")
        return [*layers, *(PatternEntry(name, op(name), _takes) for name in others)]

    def generate(self, kernel: Composite) -> None:
        (call,) = kernel.ops
        match call.op:
            case "conv2d" | "depthwise_conv2d":
                _convolution(kernel, call)
            case "fully_connected":
                _fully_connected(kernel, call)
            case "softmax":
                _softmax(kernel, call)
            case "add":
                _add(kernel, call)
            case _:
                _pool(kernel, call)

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        return needed_files(_library(), ("Include",), "Source", symbols)

    def library(self, target: Target) -> str:
        return hashlib.sha256((_library() / HEADER).read_bytes()).hexdigest()[:12]


def _library() -> Path:
    path = Path(os.environ.get(PATH_VARIABLE, ""))
    if not os.environ.get(PATH_VARIABLE) or not (path / HEADER).is_file():
        where = f"{path}" if os.environ.get(PATH_VARIABLE) else ""
        raise UsageError(
            f"the backend cmsis-nn needs a copy of the library, with the file {HEADER} in it.",
            where=where,
            hint=f"--cmsis-nn PATH or the variable {PATH_VARIABLE}.",
        )
    return path


# ---- what it takes -------------------------------------------------------------------------------


def _takes(match: Match) -> bool:
    (call,) = match.ops
    kinds = [kind for kind in call.inputs if kind is not None]
    if any(kind.dtype != INT8 for kind in (*kinds, call.output)):
        return False
    if call.op == "softmax":
        return call.numerics == "tflm"
    if call.op == "add":
        variable = all(c is None for c in call.constants)
        return variable and len(kinds) == 2 and kinds[0].shape == kinds[1].shape
    return call.ints_attr("dilation") == (1, 1)


def _takes_layer(match: Match) -> bool:
    (call,) = match.ops
    if call.input(0).dtype != INT8 or call.input(1).dtype != INT8:
        return False
    if call.op == "fully_connected":
        if not fully_connected.has_multiplier(call):
            return False
        step = fully_connected.requant_of(call)
        return step.rounding == Rounding.TWICE and not step.per_channel
    if _step(call).rounding != Rounding.TWICE:
        return False
    return call.op != "conv2d" or call.input(1).shape[3] == call.input(0).shape[3]


def _step(call: OpCall) -> Requant:
    if call.op == "fully_connected":
        return fully_connected.requant_of(call)
    return conv2d.requant_of(call)


# ---- what it writes ------------------------------------------------------------------------------


def _features(kernel: Composite) -> frozenset[str]:
    """Of the core that the library's code will run on."""
    core = kernel.module.targets.get("cpu", Target("c"))
    return cortex_m.KIND.features(core) if core.kind == "cortex-m" else frozenset()


def _dims(n: int, h: int, w: int, c: int) -> str:
    return f"{{{n}, {h}, {w}, {c}}}"


def _pair(values: Sequence[int]) -> str:
    """Rows and columns, which the library has the other way round."""
    return f"{{{values[1]}, {values[0]}}}"


def _write(
    kernel: Composite, params: Sequence[str], lines: Sequence[str], arguments: Sequence[Buffer]
) -> None:
    """One C file with one function."""
    head = _filled(f"void {kernel.symbol}({', '.join(params)})", "")
    body = "\n".join(_filled(line, "    ") for line in lines)
    text = f'#include "arm_nnfunctions.h"\n\n{head}\n{{\n{body}\n}}\n'
    kernel.file(f"{kernel.symbol}.c", text)
    kernel.extern(kernel.symbol, list(arguments))


def _filled(line: str, indent: str) -> str:
    """A line of C, broken where it is too long."""
    return textwrap.fill(line, _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    ")


def _context(kernel: Composite, size_bytes: int) -> tuple[list[str], str, list[Buffer]]:
    """Parameter, initialiser and argument for the context's buffer."""
    if not size_bytes:
        return [], "{NULL, 0}", []
    # Words: the library keeps int16 and int32 there.
    workspace = kernel.workspace("workspace", -(-size_bytes // 4), INT32)
    return ["int32_t *workspace"], f"{{workspace, {size_bytes}}}", [workspace]


def _convolution(kernel: Composite, call: OpCall) -> None:
    step, x, w, y = _step(call), call.input(0), call.input(1), call.output
    is_depthwise = call.op == "depthwise_conv2d"
    channels = y.shape[3]
    pairs = np.broadcast_to(np.array([step.multipliers, step.shifts], np.int32), (2, channels))
    padding = call.ints_attr("padding")
    size = depthwise_bytes if is_depthwise else conv_bytes
    params, context, more = _context(kernel, size(call, _features(kernel)))
    kind, name = ("dw_conv", "depthwise_conv") if is_depthwise else ("conv", "convolve")
    multiple = f"{channels // x.shape[3]}, " if is_depthwise else ""
    lines = [
        f"const cmsis_nn_context context = {context};",
        f"const cmsis_nn_{kind}_params params = {{{-per_tensor(x).zero_point}, {step.zero_point}, "
        f"{multiple}{_pair(call.ints_attr('stride'))}, {_pair((padding[0], padding[2]))}, "
        f"{_pair(call.ints_attr('dilation'))}, {{{step.clamp_min}, {step.clamp_max}}}}};",
        "const cmsis_nn_per_channel_quant_params quant = {(int32_t *)multipliers, "
        "(int32_t *)shifts};",
        f"const cmsis_nn_dims input = {_dims(*x.shape)}, filter = {_dims(*w.shape)};",
        f"const cmsis_nn_dims channels = {_dims(1, 1, 1, channels)}, output = {_dims(*y.shape)};",
        f"(void)arm_{name}_wrapper_s8(&context, &params, &quant, &input, x, &filter, w, "
        "&channels, bias, &output, y);",
    ]
    heads = ["const int8_t *x", "const int8_t *w", "const int32_t *bias"]
    heads += ["const int32_t *multipliers", "const int32_t *shifts", "int8_t *y", *params]
    weights = call.constant(1)
    assert weights is not None  # the pattern says so
    arguments = [
        kernel.inputs[0],
        kernel.constant("weights", weights.array(), INT8),
        kernel.constant("bias", conv2d.bias_of(call, "int32"), INT32),
        kernel.constant("multipliers", pairs[0], INT32),
        kernel.constant("shifts", pairs[1], INT32),
        kernel.outputs[0],
        *more,
    ]
    _write(kernel, heads, lines, arguments)


def _fully_connected(kernel: Composite, call: OpCall) -> None:
    step, x = _step(call), call.input(0)
    outputs, inputs = call.input(1).shape
    rows, zero_point = x.elements // inputs, per_tensor(x).zero_point
    found = call.constant(1)
    assert found is not None  # the pattern says so
    weights, bias = found.array(), conv2d.bias_of(call, "int32")
    heads = ["const int8_t *x", "const int8_t *w", "const int32_t *bias", "int8_t *y"]
    arguments = [
        kernel.inputs[0],
        kernel.constant("weights", weights, INT8),
        kernel.constant("bias", bias, INT32),
        kernel.outputs[0],
    ]
    context = "{NULL, 0}"
    if "mve" in _features(kernel):  # there the sums of the weights are known beforehand
        sums = bias - zero_point * weights.astype(np.int64).sum(axis=1)
        arguments.append(kernel.constant("sums", sums, INT32))
        heads.append("const int32_t *sums")
        context = f"{{(void *)sums, {4 * outputs}}}"
    lines = [
        f"const cmsis_nn_context context = {context};",
        f"const cmsis_nn_fc_params params = {{{-zero_point}, 0, {step.zero_point}, "
        f"{{{step.clamp_min}, {step.clamp_max}}}}};",
        f"const cmsis_nn_per_tensor_quant_params quant = {{{step.multipliers[0]}, "
        f"{step.shifts[0]}}};",
        f"const cmsis_nn_dims input = {_dims(rows, 1, 1, inputs)};",
        f"const cmsis_nn_dims filter = {_dims(inputs, 1, 1, outputs)};",
        f"const cmsis_nn_dims channels = {_dims(1, 1, 1, outputs)};",
        f"const cmsis_nn_dims output = {_dims(rows, 1, 1, outputs)};",
        "(void)arm_fully_connected_s8(&context, &params, &quant, &input, x, &filter, w, "
        "&channels, bias, &output, y);",
    ]
    _write(kernel, heads, lines, arguments)


def _pool(kernel: Composite, call: OpCall) -> None:
    x, y, padding = call.input(0), call.output, call.ints_attr("padding")
    low, high = quantized_activation_range(call.str_attr("activation"), y)
    is_average = call.op == "average_pool2d"
    size = average_pool_bytes(call, _features(kernel)) if is_average else 0
    height, width = call.ints_attr("size")
    params, context, more = _context(kernel, size)
    name = "avgpool" if is_average else "max_pool"
    lines = [
        f"const cmsis_nn_context context = {context};",
        f"const cmsis_nn_pool_params params = {{{_pair(call.ints_attr('stride'))}, "
        f"{_pair((padding[0], padding[2]))}, {{{low}, {high}}}}};",
        f"const cmsis_nn_dims input = {_dims(*x.shape)}, output = {_dims(*y.shape)};",
        f"const cmsis_nn_dims filter = {_dims(1, height, width, 1)};",
        f"(void)arm_{name}_s8(&context, &params, &input, x, &filter, &output, y);",
    ]
    heads = ["const int8_t *x", "int8_t *y", *params]
    _write(kernel, heads, lines, [kernel.inputs[0], kernel.outputs[0], *more])


def _softmax(kernel: Composite, call: OpCall) -> None:
    multiplier, left, reach = softmax.difference_scaling(call, softmax.beta_of(call))
    depth = call.input(0).shape[-1]
    rows = call.input(0).elements // depth
    lines = [f"arm_softmax_s8(x, {rows}, {depth}, {multiplier}, {left}, {-reach}, y);"]
    _write(kernel, ["const int8_t *x", "int8_t *y"], lines, [*kernel.inputs, *kernel.outputs])


def _add(kernel: Composite, call: OpCall) -> None:
    found = rescaled_sum(call)
    numbers: list[int] = []
    for term in found.terms:
        numbers += [-term.zero_point, term.multiplier, term.shift]
    step = found.output
    after = [step.zero_point, step.multipliers[0], step.shifts[0], step.clamp_min, step.clamp_max]
    before = ", ".join(map(str, [*numbers, found.terms[0].left]))
    tail = ", ".join(map(str, [*after, call.output.elements]))
    lines = [f"(void)arm_elementwise_add_s8(a, b, {before}, y, {tail});"]
    heads = ["const int8_t *a", "const int8_t *b", "int8_t *y"]
    first, second = (kernel.inputs * 2)[:2]
    _write(kernel, heads, lines, [first, second, kernel.outputs[0]])
