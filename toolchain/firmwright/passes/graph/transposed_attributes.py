"""Operators that take any layout, and their attributes for the layout of a source.

A call on transposed inputs, whose axis i is axis perm[i] of their sources, is applied
to the sources instead, with axes and lists by axis in the order of the source.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.attributes.movement import (
    AxisAttrs,
    PadAttrs,
    ResampleAttrs,
    StridedSliceAttrs,
)
from firmwright.ir.graph.attributes.values import AxesAttrs, ReductionAttrs
from firmwright.ir.graph.nodes import Call, Value
from firmwright.passes.graph.transposed_reshapes import Perm

_ELEMENTWISE = """
    abs add cast ceil cos div elu equal exp expression fitted_product floor gelu greater
    greater_equal hard_swish leaky_relu less less_equal log logical_and logical_not
    logical_or logistic maximum minimum mul neg not_equal quantize dequantize relu relu6
    relu_n1_to_1 round rsqrt sign sin sqrt square squared_difference sub table_sum tanh
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
REDUCTIONS = frozenset({"mean", "reduce_max", "reduce_min", "reduction", "sum"})
ALONG_AN_AXIS = frozenset({"concatenation", "gather", "split", "resample"})


def _reduction_attrs(call: Call, perm: Perm) -> OpAttrs:
    if isinstance(call.attrs, ReductionAttrs):
        return replace(call.attrs, axes=_moved_axes(call.attrs.axes, perm))
    attrs = call.attributes(AxesAttrs)
    order = tuple(perm[axis] for axis in attrs.float_order)
    return replace(attrs, axes=_moved_axes(attrs.axes, perm), float_order=order)


def _moved_axes(axes: tuple[int, ...], perm: Perm) -> tuple[int, ...]:
    return tuple(sorted(perm[axis] for axis in axes))


def keeps_order(axes: tuple[int, ...], perm: Perm) -> bool:
    """Return whether reduced axes are adjacent and in order in the source."""
    moved = [perm[axis] for axis in axes]
    return moved == list(range(moved[0], moved[0] + len(moved)))


def _pad_attrs(call: Call, perm: Perm) -> OpAttrs:
    attrs = call.attributes(PadAttrs)
    paddings: list[int] = []
    for axis in inverse(perm):
        paddings += attrs.paddings[2 * axis : 2 * axis + 2]
    return replace(attrs, paddings=tuple(paddings))


def _slice_attrs(call: Call, perm: Perm) -> OpAttrs:
    attrs, order = call.attributes(StridedSliceAttrs), inverse(perm)
    return replace(
        attrs,
        begin=tuple(attrs.begin[axis] for axis in order),
        strides=tuple(attrs.strides[axis] for axis in order),
        counts=tuple(attrs.counts[axis] for axis in order),
    )


def _along_axis_attrs(call: Call, perm: Perm) -> OpAttrs:
    if isinstance(call.attrs, ResampleAttrs):
        return replace(call.attrs, axis=perm[call.attrs.axis])
    attrs = call.attributes(AxisAttrs)
    return replace(attrs, axis=perm[attrs.axis])


def _same_attrs(call: Call, perm: Perm) -> OpAttrs:
    return call.attrs


SOURCE_ATTRS: Mapping[str, Callable[[Call, Perm], OpAttrs]] = {
    **dict.fromkeys(ELEMENTWISE, _same_attrs),
    **dict.fromkeys(REDUCTIONS, _reduction_attrs),
    **dict.fromkeys(ALONG_AN_AXIS, _along_axis_attrs),
    "byte_table": _same_attrs,
    "pad": _pad_attrs,
    "softmax": _same_attrs,
    "strided_slice": _slice_attrs,
}
"""The operators that take any layout: their attributes when applied to sources."""
FIRST_INPUT_ONLY = ALONG_AN_AXIS - {"concatenation"} | {
    "byte_table",
    "pad",
    "strided_slice",
}
"""Operators that read only their first input in the layout of the output."""


def takes_any_layout(call: Call) -> bool:
    """Return whether a call can be applied to its sources, with suitable attributes."""
    if call.op in ELEMENTWISE:
        return not any(map(_is_quantized_by_axis, (*call.inputs, *call.outputs)))
    if call.op in ALONG_AN_AXIS:
        first, rank = call.inputs[0], len(call.outputs[0].type.shape)
        return first is not None and len(first.type.shape) == rank
    if call.op == "strided_slice":
        return not call.attributes(StridedSliceAttrs).shrunk
    return call.op in SOURCE_ATTRS


def inverse(perm: Perm) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def is_identity(perm: Perm) -> bool:
    return perm == tuple(range(len(perm)))


def _is_quantized_by_axis(value: Value | None) -> bool:
    quantization = None if value is None else value.type.quantization
    return quantization is not None and quantization.axis is not None
