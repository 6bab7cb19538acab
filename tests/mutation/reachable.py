"""Whether a requantisation of other numbers gives other results, for any sum that a layer can have.

In: a lowered module, its graph, and the table `NAME.requant` of a kernel as it is and changed. Out:
why the results are the same, "" where they are not or where that is not known. The sums of a layer
lie within the largest |bias| + 255 sum |weight| of its channels; each of them is tried.
"""

from __future__ import annotations

import numpy as np

from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import Binary, Call, IntImm, PrimFunc
from firmwright.ir.tir.walk import walk

LARGEST_SUM = 30_000_000
INPUT_SPAN = 255


def same_results(module: IRModule, graph: IRModule, name: str, changed: Constant) -> str:
    """Why every sum gives the result that it gave; "" if one does not, or nobody knows."""
    kernel = module.functions.get(name.removesuffix(".requant"))
    limit = _largest_sum(graph, kernel) if isinstance(kernel, PrimFunc) else 0
    shifts = _shifts(kernel) if isinstance(kernel, PrimFunc) else set()
    if not 0 < limit <= LARGEST_SUM or not shifts or changed.shape[-1] < 2:
        return ""
    before, after = module.constants[name].array(), changed.array()
    sums = np.arange(-limit, limit + 1, dtype=np.int64)
    for row in np.flatnonzero((before != after).any(axis=1)):
        for shift in sorted(shifts):
            if not np.array_equal(
                _result(sums, before[row], shift), _result(sums, after[row], shift)
            ):
                return ""
    return f"all {2 * limit + 1:,} sums give the same results"


def _result(sums: np.ndarray, row: np.ndarray, shift: int) -> np.ndarray:
    """As the kernel has it: the upper word of a product and an addend, shifted and saturated."""
    left = int(row[2]) if len(row) > 2 else 0
    product = (sums << left) * int(row[0]) + (int(row[1]) << 32)
    return np.clip(product >> 32 >> shift, -128, 127)


def _shifts(kernel: PrimFunc) -> set[int]:
    """What the upper words of products are shifted by; empty if any is used otherwise."""
    products, shifted = 0, set[int]()
    for node in walk(kernel.body):
        products += isinstance(node, Call) and node.name == "smmla"
        match node:
            case Binary("shr", Call("smmla"), IntImm(amount, _)):
                shifted.add(amount)
                products -= 1
            case _:
                pass
    return shifted if products == 0 else set()


def _largest_sum(graph: IRModule, kernel: PrimFunc) -> int:
    """Of the call of the graph that the kernel is of."""
    main = graph.entry
    assert isinstance(main, Function)
    for call in main.body:
        if call.span == kernel.span and len(call.inputs) == 3:
            weights, bias = (value and value.constant for value in call.inputs[1:])
            if weights and bias:
                return _bound(graph.constants[weights], graph.constants[bias], call.op)
    return 0


def _bound(weights: Constant, bias: Constant, op: str) -> int:
    values = np.abs(weights.array().astype(np.int64))
    channels = values.shape[-1] if op == "depthwise_conv2d" else values.shape[0]
    axis = -1 if op == "depthwise_conv2d" else 0
    sums = np.moveaxis(values, axis, 0).reshape(channels, -1).sum(axis=1)
    return int((np.abs(bias.array().astype(np.int64)) + INPUT_SPAN * sums).max())
