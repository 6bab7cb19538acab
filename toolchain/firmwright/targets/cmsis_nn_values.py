"""CMSIS-NN's functions without weights: pools, softmax, sums and products.

In: a `Composite` of one call. Out: its kernel. Source of signatures and layouts: the library's
public header arm_nnfunctions.h.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import INT8, INT16
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops import batch_matmul, mul, softmax, softmax_int16
from firmwright.ops.fixed_point import per_tensor, quantized_activation_range
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.targets.cmsis_nn_buffers import average_pool_bytes
from firmwright.targets.cmsis_nn_c import (
    activation_pointer,
    context,
    dims,
    dims_of,
    features_of,
    pair,
    suffix,
    write,
)
from firmwright.targets.composite import Composite


def pool(kernel: Composite, call: OpCall) -> None:
    """average_pool2d and max_pool2d."""
    x, y, padding = call.input(0), call.output, call.ints_attr("padding")
    low, high = quantized_activation_range(call.str_attr("activation"), y)
    is_average = call.op == "average_pool2d"
    size = average_pool_bytes(call, features_of(kernel)) if is_average else 0
    height, width = call.ints_attr("size")
    params, buffer, more = context(kernel, size)
    name = f"{'avgpool' if is_average else 'max_pool'}_{suffix(x.dtype)}"
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_pool_params params = {{{pair(call.ints_attr('stride'))}, "
        f"{pair((padding[0], padding[2]))}, {{{low}, {high}}}}};",
        f"const cmsis_nn_dims input = {dims_of(x.shape)}, output = {dims_of(y.shape)};",
        f"const cmsis_nn_dims filter = {dims(1, height, width, 1)};",
        f"(void)arm_{name}(&context, &params, &input, x, &filter, &output, y);",
    ]
    kind = activation_pointer(x.dtype)
    heads = [f"const {kind}x", f"{kind}y", *params]
    write(kernel, heads, lines, [kernel.inputs[0], kernel.outputs[0], *more])


def soften(kernel: Composite, call: OpCall) -> None:
    """softmax."""
    x = call.input(0)
    depth = x.shape[-1]
    rows, beta = x.elements // depth, softmax.beta_of(call)
    if x.dtype == INT16:
        _soften_int16(kernel, call, rows, depth, beta)
        return
    multiplier, left, reach = softmax.difference_scaling(call, beta)
    lines = [f"arm_softmax_s8(x, {rows}, {depth}, {multiplier}, {left}, {-reach}, y);"]
    write(kernel, ["const int8_t *x", "int8_t *y"], lines, [*kernel.inputs, *kernel.outputs])


def _soften_int16(kernel: Composite, call: OpCall, rows: int, depth: int, beta: float) -> None:
    multiplier, shift = softmax_int16.multiplier_of(per_tensor(call.input(0)).scale, beta)
    powers, inverses = softmax_int16.tables()
    lines = [
        "const cmsis_nn_softmax_lut_s16 tables = {powers, inverses};",
        f"(void)arm_softmax_s16(x, {rows}, {depth}, {multiplier}, {shift}, &tables, y);",
    ]
    heads = ["const int16_t *x", "int16_t *y", "const int16_t *powers", "const int16_t *inverses"]
    arguments = [
        *kernel.inputs,
        *kernel.outputs,
        kernel.constant("powers", powers, INT16),
        kernel.constant("inverses", inverses, INT16),
    ]
    write(kernel, heads, lines, arguments)


def add(kernel: Composite, call: OpCall) -> None:
    """add of equal shapes."""
    found = rescaled_sum(call)
    numbers: list[int] = []
    for term in found.terms:
        numbers += [-term.zero_point, term.multiplier, term.shift]
    step = found.output
    after = [step.zero_point, step.multipliers[0], step.shifts[0], step.clamp_min, step.clamp_max]
    _elementwise(kernel, call, "add", [*numbers, found.terms[0].left], after)


def multiply(kernel: Composite, call: OpCall) -> None:
    """mul of equal shapes."""
    step = mul.requant_of(call)
    before = [-per_tensor(call.input(index)).zero_point for index in (0, 1)]
    after = [step.zero_point, step.multipliers[0], step.shifts[0], step.clamp_min, step.clamp_max]
    _elementwise(kernel, call, "mul", before, after)


def _elementwise(
    kernel: Composite, call: OpCall, name: str, before: list[int], after: list[int]
) -> None:
    """Numbers of the inputs stand before the output's pointer, those of the output behind it."""
    words = ", ".join(map(str, before)), ", ".join(map(str, [*after, call.output.elements]))
    kind = activation_pointer(call.output.dtype)
    function = f"arm_elementwise_{name}_{suffix(call.output.dtype)}"
    lines = [f"(void){function}(a, b, {words[0]}, y, {words[1]});"]
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y"]
    first, second = (kernel.inputs * 2)[:2]
    write(kernel, heads, lines, [first, second, kernel.outputs[0]])


def matrices(kernel: Composite, call: OpCall) -> None:
    """batch_matmul. The second factor lies transposed, a constant one is turned here."""
    x, other, y = call.input(0), call.input(1), call.output
    step, (columns, depth) = batch_matmul.requant_of(call), turned_shape(call)
    known = call.constant(1)
    factor: Buffer = kernel.inputs[-1]
    if known is not None:
        array = known.array()
        straight = array if call.int_attr("adj_y") else np.swapaxes(array, -1, -2)
        factor = kernel.constant("factor", np.ascontiguousarray(straight), other.dtype)
    sums = 4 * columns if "mve" in features_of(kernel) and x.dtype == INT8 else 0
    params, buffer, more = context(kernel, sums)
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_bmm_params params = {{false, true, {{{-per_tensor(x).zero_point}, "
        f"{-per_tensor(other).zero_point}, {step.zero_point}, "
        f"{{{step.clamp_min}, {step.clamp_max}}}}}}};",
        f"const cmsis_nn_per_tensor_quant_params quant = {{{step.multipliers[0]}, "
        f"{step.shifts[0]}}};",
        f"const cmsis_nn_dims left = {dims_of(x.shape)}, "
        f"right = {dims_of((*other.shape[:-2], columns, depth))}, output = {dims_of(y.shape)};",
        f"(void)arm_batch_matmul_{suffix(x.dtype)}(&context, &params, &quant, &left, a, &right, b, "
        "&output, y);",
    ]
    kind = activation_pointer(x.dtype)
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y", *params]
    write(kernel, heads, lines, [kernel.inputs[0], factor, kernel.outputs[0], *more])


def turned_shape(call: OpCall) -> tuple[int, int]:
    """Rows and columns of the second factor as the library wants it."""
    rows, columns = call.input(1).shape[-2:]
    return (rows, columns) if call.int_attr("adj_y") else (columns, rows)
