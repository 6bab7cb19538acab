"""concatenation: the inputs one after another along `axis`.

Stored values are copied, so inputs and output must be quantised alike: LiteRT refuses int8 that is
not, TFLM's result would mean something else.
Source of the semantics: TFLite's reference Concatenation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    NumericsSpec,
    OpCall,
    OpDef,
    RowWindow,
    Subviews,
)
from firmwright.ops.importing import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import import_activation
from firmwright.ops.row_windows import elementwise_row_window
from firmwright.ops.strided_copy import DTYPES


def infer(call: OpCall) -> tuple[TensorType, ...]:
    first, y, axis = call.input(0), call.output, call.int_attr("axis")
    if first.dtype not in DTYPES:
        raise NotSupportedError(f"{first.dtype.name} inputs")
    if not 0 <= axis < len(first.shape):
        raise NotSupportedError(f"axis {axis} of {len(first.shape)} dimensions")
    total = 0
    for index in range(len(call.inputs)):
        x = call.input(index)
        if x.dtype != y.dtype or _but(x.shape, axis) != _but(first.shape, axis):
            raise NotSupportedError(
                f"{x.dtype.name} {list(x.shape)} beside {first.dtype.name} {list(first.shape)}"
            )
        if x.quantization != y.quantization:
            raise NotSupportedError("inputs and output quantised differently")
        total += x.shape[axis]
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return (TensorType(shape, first.dtype, y.quantization),)


def rows(call: OpCall) -> RowWindow | None:
    """Rows are made of rows where they are not what is joined."""
    return elementwise_row_window(call) if call.int_attr("axis") > 1 else None


def windows(call: OpCall) -> Subviews | None:
    """What is joined along the outermost axis lies one behind the other."""
    axis = call.int_attr("axis")
    if math.prod(call.output.shape[:axis]) > 1:
        return None
    sizes = [call.input(index).elements for index in range(len(call.inputs))]
    return Subviews("output", tuple(accumulate(sizes[:-1], initial=0)))


def _but(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """The rank and every size but that of `axis`."""
    return (len(shape), *shape[:axis], -1, *shape[axis + 1 :])


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.concatenate(arrays, axis=call.int_attr("axis")),)


def lower(call: OpCall, b: Kernel) -> None:
    axis, shape = call.int_attr("axis"), call.output.shape
    rows, row = math.prod(shape[:axis]), math.prod(shape[axis:])
    with b.view("rows", b.y, 0, (rows, row), access="w") as y:
        begin = 0
        for index in range(len(call.inputs)):
            part = math.prod(call.input(index).shape[axis:])
            with (
                b.view("part", b.input(index), 0, (rows, part)) as x,
                b.for_("r", rows) as r,
                b.for_("i", part) as i,
            ):
                b.store(y, [r, i + begin], b.load(x, [r, i]))
            begin += part


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, max(1, len(context.inputs)))
    if import_activation(context.node.options["fused_activation_function"]) != "none":
        raise NotSupportedError("a concatenation with an activation")
    axis = context.node.options["axis"]
    assert isinstance(axis, int)
    if axis < 0:
        axis += len(context.outputs[0].shape)
    return ImportedCall("concatenation", {"axis": axis}, tuple(range(len(context.inputs))))


_CASES = (
    # name, axis, input shapes; the last input is constant where so named
    ("channels", 3, ((1, 3, 2, 4), (1, 3, 2, 1), (1, 3, 2, 6))),
    ("rows", -2, ((2, 3, 5), (2, 1, 5))),
    ("batch", 0, ((1, 7), (3, 7))),
    ("one", 1, ((2, 3),)),
    ("constant", -1, ((2, 3), (2, 2))),
)


def cases() -> Iterator[ConformanceCase]:
    for name, axis, shapes in _CASES:
        total = list(shapes[0])
        total[axis] = sum(shape[axis] for shape in shapes)
        options = {"axis": axis, "fused_activation_function": "NONE"}
        for dtype in ("int8", "float32"):
            *inputs, y = (
                CaseTensor(shape, dtype, *(((0.25,), (11,)) if dtype == "int8" else ()))
                for shape in (*shapes, tuple(total))
            )
            if name == "constant":
                values = np.arange(4).reshape(2, 2).astype(dtype)
                inputs[-1] = replace(inputs[-1], data=values)
            yield ConformanceCase(f"{name}_{dtype}", "CONCATENATION", tuple(inputs), (y,), options)


OPDEF = OpDef(
    name="concatenation",
    infer=infer,
    reference=reference,
    lower=lower,
    subviews=windows,
    row_access=rows,
    imports={"tflite:CONCATENATION": import_tflite},
    cases=cases,
    dtypes=tuple(kind.name for kind in DTYPES),
    numerics={
        profile: NumericsSpec(None, "copies", "reference_ops Concatenation")
        for profile in ("litert", "tflm")
    },
    restrictions="inputs quantised alike",
)
