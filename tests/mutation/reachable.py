"""Proof that changed requantization gives equal results for every reachable sum.

The sums of a channel are bounded by the extreme inputs for the sign of each weight;
every sum in that range is tried with the table `NAME.requant` as it is and as changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import walk

MOST_SUMS = 60_000_000
LEAST, GREATEST = -128, 127
"""Range of a quantized input."""


def same_results(
    module: IRModule, graph: IRModule, name: str, changed: Constant
) -> str:
    """Return why every sum gives the same result, or "" if that is false or unknown."""
    kernel = module.functions.get(name.removesuffix(".requant"))
    ranges = _ranges(graph, kernel) if isinstance(kernel, tir.PrimFunc) else []
    steps = _steps(kernel) if isinstance(kernel, tir.PrimFunc) else set()
    before, after = module.constants[name].array(), changed.array()
    if len(ranges) != len(before) or not steps:
        return ""
    tried = 0
    for row in np.flatnonzero((before != after).any(axis=1)):
        low, high = ranges[row]
        if high - low > MOST_SUMS:
            return ""
        sums = np.arange(low, high + 1, dtype=np.int64)
        tried += len(sums)
        for step in steps:
            if not np.array_equal(
                step.of(sums, before[row]), step.of(sums, after[row])
            ):
                return ""
    return f"all {tried:,} sums give the same results"


@dataclass(frozen=True)
class _Step:
    """The steps from a sum to a result; None means columns 1 and 2 of the table row."""

    left: int | None
    addend: int | None
    shift: int

    def of(self, sums: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Apply the steps: upper word of product plus addend, shifted and saturated."""
        left = int(row[2]) if self.left is None else self.left
        addend = int(row[1]) if self.addend is None else self.addend
        product = (sums << left) * int(row[0]) + (addend << 32)
        return np.clip(product >> 32 >> self.shift, -128, 127)


def _steps(kernel: tir.PrimFunc) -> set[_Step]:
    """Return the steps applied to sums; empty if a product has an unknown use."""
    products, found = 0, set[_Step]()
    for node in walk(kernel.body):
        products += isinstance(node, tir.IntrinsicCall) and node.name == "smmla"
        match node:
            case tir.Binary(
                "shr",
                tir.IntrinsicCall("smmla", (value, _, addend)),
                tir.IntImm(amount, _),
            ):
                found.add(_Step(_left(value), _number(addend), amount))
                products -= 1
            case _:
                pass
    return found if products == 0 else set()


def _left(value: tir.Expr) -> int | None:
    """Return the left shift of a sum before the multiplication."""
    match value:
        case tir.Binary("shl", _, amount):
            return _number(amount)
        case _:
            return 0


def _number(value: tir.Expr) -> int | None:
    return value.value if isinstance(value, tir.IntImm) else None


def _ranges(graph: IRModule, kernel: tir.PrimFunc) -> list[tuple[int, int]]:
    """Return the least and the greatest sum of each channel of the kernel's call."""
    main = graph.entry
    assert isinstance(main, Function)
    for call in main.body:
        if call.span == kernel.span and len(call.inputs) == 3:
            x, weights, bias = call.inputs
            if x and weights and bias and weights.constant and bias.constant:
                assert x.type.quantization is not None
                return _sums(
                    graph.constants[weights.constant],
                    graph.constants[bias.constant],
                    call.op,
                    x.type.quantization.zero_point,
                )
    return []


def _sums(
    weights: Constant, bias: Constant, op: str, zero_point: int
) -> list[tuple[int, int]]:
    axis = -1 if op == "depthwise_conv2d" else 0
    values = np.moveaxis(weights.array().astype(np.int64), axis, 0)
    values = values.reshape(len(values), -1)
    ends = values * (LEAST - zero_point), values * (GREATEST - zero_point)
    start = bias.array().astype(np.int64)
    # A border of padding adds nothing, so nothing may be missing either.
    low = start + np.minimum(np.minimum(*ends), 0).sum(axis=1)
    high = start + np.maximum(np.maximum(*ends), 0).sum(axis=1)
    return list(zip(low.tolist(), high.tolist(), strict=True))
