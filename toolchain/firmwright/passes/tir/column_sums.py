"""The sum of all accumulators of a fully connected layer, known from its input.

    sum over o of c[o] (b[o] + sum over k of w[o, k] x[k])
        = sum over o of c[o] b[o] + sum over k of s[k] x[k]
    with s[k] = sum over o of c[o] w[o, k]

A hardened run computes both sides modulo 2^32 (algorithm-based fault tolerance, Huang
and Abraham, 1984). The right one takes as long as one output, whereas a sum of the
weights, each of which such a layer reads once, would take a good part of the time of
the layer. The factors c are those by which a kernel's accumulators are too large.
"""

from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32, Array
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import AnyFunction, IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import prim_calls, used_constants

PRODUCTS = "products"
"""Kernel attribute: the constants of weights and bias, and the input's zero point."""
_FACTORS = ((1, 1), (1, 256))
"""Factors of even and odd outputs; kernels that pack two weights have the second."""
_UNROLLED = (8, 4, 2, 1)
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """The right side of a layer: `start` plus the sums of columns times the input."""

    sums: Array
    start: int

    def value(self, x: Array) -> int:
        products = self.sums.astype(np.int64) * x.reshape(-1)
        return (self.start + int(products.sum())) & _MASK


def record_products(graph: IRModule, lowered: IRModule) -> IRModule:
    """Note the weights of fully connected calls of `graph` on their kernels."""
    entry, main = graph.entry, lowered.entry
    if not isinstance(entry, Function) or not isinstance(main, tir.PrimFunc):
        return lowered
    calls = {call.span: call for call in entry.body if _is_one_row(graph, call)}
    functions = dict(lowered.functions)
    for step in prim_calls(main.body):
        call = calls.get(step.span)
        if call is None or step.op < 0:
            continue
        kernel = lowered.kernel(step.callee)
        weights, bias = (_constant(graph, call, index) for index in (1, 2))
        names = (weights.name if weights else "", bias.name if bias else "")
        attrs: dict[str, Attr] = {**kernel.attrs, PRODUCTS: (*names, _zero_point(call))}
        functions[kernel.name] = replace(kernel, attrs=attrs)
    return replace(lowered, functions=functions)


def _is_one_row(graph: IRModule, call: Call) -> bool:
    """Return whether a call multiplies int8 weights, each once, with an int8 input."""
    weights = _constant(graph, call, 1)
    if call.op != "fully_connected" or weights is None or call.inputs[0] is None:
        return False
    kinds = {call.inputs[0].type.dtype, call.outputs[0].type.dtype, weights.dtype}
    return kinds == {INT8} and (
        call.inputs[0].type.elements * weights.shape[0] == np.prod(weights.shape)
    )


def _constant(graph: IRModule, call: Call, index: int) -> Constant | None:
    value = call.inputs[index] if index < len(call.inputs) else None
    if value is None or value.constant is None:
        return None
    return graph.constants[value.constant]


def _zero_point(call: Call) -> int:
    assert call.inputs[0] is not None
    quantization = call.inputs[0].type.quantization
    return 0 if quantization is None else quantization.zero_points[0]


def find_column_sums(
    module: IRModule, summing: tir.PrimFunc, intrinsics: IntrinsicTable
) -> ColumnSums | None:
    """Return the right side that equals the sum of a kernel's accumulators.

    It is compared for an input without regularity; None if no factors suit.
    """
    (x,) = (p.value for p in summing.params if p.role == "in")
    assert isinstance(x, tir.Buffer)
    values = np.random.default_rng(0).integers(-128, 128, x.shape).astype(np.int8)
    found = _sum_of_products(module, summing, x.name, values, intrinsics)
    for factors in _FACTORS:
        columns = _column_sums(module, summing, factors)
        if columns.value(values) == found:
            return columns
    return None


def _sum_of_products(
    module: IRModule,
    summing: tir.PrimFunc,
    x: str,
    values: Array,
    intrinsics: IntrinsicTable,
) -> int:
    args: dict[str, int | Array] = {}
    for param in summing.params:
        args[param.name] = 0
        if isinstance(param.value, tir.Buffer):
            args[param.name] = np.zeros(param.value.shape, param.value.dtype.np)
    args[x] = values
    sums = np.zeros(2, np.uint32)
    args[summing.params[-1].name] = sums
    interpret(
        summing, args, intrinsics, constants=module.constants, check_overflow=False
    )
    return int(sums[1])


def _column_sums(
    module: IRModule, kernel: tir.PrimFunc, factors: tuple[int, int]
) -> ColumnSums:
    weights_name, bias_name, zero_point = _recorded(kernel)
    weights = module.constants[weights_name].array().astype(np.int64)
    each = np.resize(np.array(factors), len(weights))
    sums = each @ weights
    start = -zero_point * int(sums.sum())
    if bias_name:
        start += int(each @ module.constants[bias_name].array().reshape(-1))
    return ColumnSums(sums, start)


def product_sum_kernel(
    kernel: tir.PrimFunc, columns: ColumnSums
) -> tuple[tir.PrimFunc, Constant]:
    """Build the kernel of the right side, and the constant s that it reads."""
    name = f"{kernel.name}.column_sums"
    wrapped = (columns.sums & _MASK).astype(np.uint32)
    constant = Constant.from_array(name, wrapped, UINT32)
    (x,) = (p.value for p in kernel.params if p.role == "in")
    assert isinstance(x, tir.Buffer)
    b = Builder(f"products_{kernel.name}")
    values = b.buffer_param("x", INT8, (x.elements,), "in", x.alignment)
    result = b.buffer_param("sum", UINT32, (1,), "out", 4)
    table = tir.Buffer(b.unique("s"), UINT32, constant.shape, None, "const", 4)
    start = tir.IntImm(columns.start & _MASK, UINT32)
    total = b.register("total", UINT32, start)
    with b.unrolled("k", x.elements, *_UNROLLED) as k:
        factor = b.load(values, [k]).cast(INT32).cast(UINT32)
        total.add(factor * b.load(table, [k]))
    b.store(result, [0], total.value)
    target = str(kernel.attrs.get("target", ""))
    comment = "The sum of all accumulators, from the sums of the columns of weights."
    func = b.build(comment=comment, target=target)
    return replace(func, body=tir.AllocateConst(table, name, func.body)), constant


def largest_constants(module: IRModule, kernel: tir.PrimFunc) -> set[str]:
    """Return the constants of a kernel that have all of its recorded weights."""
    weights = module.constants[_recorded(kernel)[0]]
    constants = map(module.constants.__getitem__, used_constants(kernel.body))
    return {item.name for item in constants if item.size_bytes >= weights.size_bytes}


def without_products(function: AnyFunction) -> AnyFunction:
    """Return the kernel without the note, which would keep equal kernels apart."""
    if isinstance(function, Function) or PRODUCTS not in function.attrs:
        return function
    attrs = {key: value for key, value in function.attrs.items() if key != PRODUCTS}
    return replace(function, attrs=attrs)


def _recorded(kernel: tir.PrimFunc) -> tuple[str, str, int]:
    match kernel.attrs[PRODUCTS]:
        case (str(weights), str(bias), int(zero_point)):
            return weights, bias, zero_point
    raise InternalError(f"the kernel {kernel.name} has an invalid {PRODUCTS}")
