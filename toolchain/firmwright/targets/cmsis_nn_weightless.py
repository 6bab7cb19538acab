"""CMSIS-NN calls for operators without weights: pools, softmax, add, mul and batch_matmul.

Source of signatures and layouts: the public header arm_nnfunctions.h.
"""

import numpy as np

from firmwright.base.dtypes import INT8, INT16
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ops import batch_matmul, elementwise_arithmetic, softmax, softmax_int16
from firmwright.ops.requantize import per_tensor_quant, quantized_activation_range
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.targets.cmsis_nn_codegen import (
    activation_pointer_type,
    average_pool_workspace_bytes,
    c_dims,
    c_shape,
    c_tile,
    core_features,
    dtype_suffix,
    workspace_context,
    write_wrapper_function,
)
from firmwright.targets.kernel_builder import BackendKernel


def write_pool(kernel: BackendKernel, call: OpCall) -> None:
    x, y, padding = call.input(0), call.output, call.ints_attr("padding")
    low, high = quantized_activation_range(call.str_attr("activation"), y)
    is_average = call.op == "average_pool2d"
    size = average_pool_workspace_bytes(call, core_features(kernel)) if is_average else 0
    height, width = call.ints_attr("size")
    params, buffer, more = workspace_context(kernel, size)
    name = f"{'avgpool' if is_average else 'max_pool'}_{dtype_suffix(x.dtype)}"
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_pool_params params = {{{c_tile(call.ints_attr('stride'))}, "
        f"{c_tile((padding[0], padding[2]))}, {{{low}, {high}}}}};",
        f"const cmsis_nn_dims input = {c_shape(x.shape)}, output = {c_shape(y.shape)};",
        f"const cmsis_nn_dims filter = {c_dims(1, height, width, 1)};",
        f"(void)arm_{name}(&context, &params, &input, x, &filter, &output, y);",
    ]
    kind = activation_pointer_type(x.dtype)
    heads = [f"const {kind}x", f"{kind}y", *params]
    write_wrapper_function(kernel, heads, lines, [kernel.inputs[0], kernel.outputs[0], *more])


def write_softmax(kernel: BackendKernel, call: OpCall) -> None:
    x = call.input(0)
    depth = x.shape[-1]
    rows, beta = x.elements // depth, softmax.softmax_beta(call)
    if x.dtype == INT16:
        _write_softmax_int16(kernel, call, rows, depth, beta)
        return
    multiplier, left, reach = softmax.difference_scaling(call, beta)
    lines = [f"arm_softmax_s8(x, {rows}, {depth}, {multiplier}, {left}, {-reach}, y);"]
    write_wrapper_function(
        kernel, ["const int8_t *x", "int8_t *y"], lines, [*kernel.inputs, *kernel.outputs]
    )


def _write_softmax_int16(
    kernel: BackendKernel, call: OpCall, rows: int, depth: int, beta: float
) -> None:
    multiplier, shift = softmax_int16.difference_multiplier(
        per_tensor_quant(call.input(0)).scale, beta
    )
    powers, inverses = softmax_int16.lookup_tables()
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
    write_wrapper_function(kernel, heads, lines, arguments)


def write_add(kernel: BackendKernel, call: OpCall) -> None:
    rescaled = rescaled_sum(call)
    numbers: list[int] = []
    for term in rescaled.terms:
        numbers += [-term.zero_point, term.multiplier, term.shift]
    step = rescaled.output
    after = [step.zero_point, step.multipliers[0], step.shifts[0], step.clamp_min, step.clamp_max]
    _elementwise(kernel, call, "add", [*numbers, rescaled.terms[0].left], after)


def write_mul(kernel: BackendKernel, call: OpCall) -> None:
    step = elementwise_arithmetic.product_requantization(call)
    before = [-per_tensor_quant(call.input(index)).zero_point for index in (0, 1)]
    after = [step.zero_point, step.multipliers[0], step.shifts[0], step.clamp_min, step.clamp_max]
    _elementwise(kernel, call, "mul", before, after)


def _elementwise(
    kernel: BackendKernel, call: OpCall, name: str, before: list[int], after: list[int]
) -> None:
    """Write a call with the numbers `before` the output pointer and the numbers `after` it."""
    words = ", ".join(map(str, before)), ", ".join(map(str, [*after, call.output.elements]))
    kind = activation_pointer_type(call.output.dtype)
    function = f"arm_elementwise_{name}_{dtype_suffix(call.output.dtype)}"
    lines = [f"(void){function}(a, b, {words[0]}, y, {words[1]});"]
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y"]
    first, second = (kernel.inputs * 2)[:2]
    write_wrapper_function(kernel, heads, lines, [first, second, kernel.outputs[0]])


def write_batch_matmul(kernel: BackendKernel, call: OpCall) -> None:
    """Write batch_matmul; a constant second factor is transposed at compile time."""
    x, other, y = call.input(0), call.input(1), call.output
    step, (columns, depth) = batch_matmul.requantization_of(call), transposed_rhs_shape(call)
    rhs_constant = call.constant(1)
    factor: tir.Buffer = kernel.inputs[-1]
    if rhs_constant is not None:
        array = rhs_constant.array()
        straight = array if call.int_attr("adj_y") else np.swapaxes(array, -1, -2)
        factor = kernel.constant("factor", np.ascontiguousarray(straight), other.dtype)
    sums = 4 * columns if "mve" in core_features(kernel) and x.dtype == INT8 else 0
    params, buffer, more = workspace_context(kernel, sums)
    lines = [
        f"const cmsis_nn_context context = {buffer};",
        f"const cmsis_nn_bmm_params params = {{false, true, {{{-per_tensor_quant(x).zero_point}, "
        f"{-per_tensor_quant(other).zero_point}, {step.zero_point}, "
        f"{{{step.clamp_min}, {step.clamp_max}}}}}}};",
        f"const cmsis_nn_per_tensor_quant_params quant = {{{step.multipliers[0]}, "
        f"{step.shifts[0]}}};",
        f"const cmsis_nn_dims left = {c_shape(x.shape)}, "
        f"right = {c_shape((*other.shape[:-2], columns, depth))}, output = {c_shape(y.shape)};",
        f"(void)arm_batch_matmul_{dtype_suffix(x.dtype)}(&context, &params, &quant, "
        "&left, a, &right, b, "
        "&output, y);",
    ]
    kind = activation_pointer_type(x.dtype)
    heads = [f"const {kind}a", f"const {kind}b", f"{kind}y", *params]
    write_wrapper_function(
        kernel, heads, lines, [kernel.inputs[0], factor, kernel.outputs[0], *more]
    )


def transposed_rhs_shape(call: OpCall) -> tuple[int, int]:
    """Return the rows and columns of the second factor in the library's layout."""
    rows, columns = call.input(1).shape[-2:]
    return (rows, columns) if call.int_attr("adj_y") else (columns, rows)
