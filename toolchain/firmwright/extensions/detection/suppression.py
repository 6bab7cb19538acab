"""non_max_suppression: the best boxes of each class without overlaps, as indices.

Inputs: boxes [samples, boxes, 4], of two opposite corners (y, x) or, with
`center_point_box`, of center and size (x, y, width, height); scores [samples, classes,
boxes]. Output 0 has a row (sample, class, box) for each selected box, samples and
classes in order and boxes in descending order of score (the first of equals first),
then rows of zeros; output 1 is the number of boxes. Boxes with scores above
`score_threshold` are selected unless they overlap a selected one of their class by more
than `iou_threshold`. Semantics: ONNX Runtime's NonMaxSuppression.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, INT64, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.detection.attributes import SuppressionAttrs
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Register,
    binary_expr,
    logical_and,
    maximum,
    minimum,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import lower_fill


def infer(call: OpCall) -> tuple[TensorType, ...]:
    boxes, scores = call.input(0), call.input(1)
    each = call.attributes(SuppressionAttrs).boxes_per_class
    if {boxes.dtype, scores.dtype} != {FLOAT32} or len(scores.shape) != 3:
        raise NotSupportedError(f"boxes and scores of {scores.dtype.name}")
    samples, classes, count = scores.shape
    if boxes.shape != (samples, count, 4) or not 1 <= each <= count:
        raise NotSupportedError(
            f"{each} boxes of {list(boxes.shape)} with scores {list(scores.shape)}"
        )
    rows = TensorType((samples * classes * each, 3), INT64)
    return rows, TensorType((), INT32)


def _corners(attrs: SuppressionAttrs, boxes: Array) -> tuple[Array, Array]:
    """Return the least and greatest corners [boxes, 2]."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if attrs.center_point_box:
        half = second / np.float32(2)
        return first - half, first + half
    return np.minimum(first, second), np.maximum(first, second)


def _overlaps(attrs: SuppressionAttrs, boxes: Array, one: int) -> Array:
    """Return which boxes overlap box `one` beyond the threshold."""
    low, high = _corners(attrs, boxes)
    extents = np.minimum(high, high[one]) - np.maximum(low, low[one])
    shared = extents[:, 0] * extents[:, 1]
    areas = (high - low)[:, 0] * (high - low)[:, 1]
    total = areas + areas[one] - shared
    is_shared = (extents > 0).all(axis=1) & (shared > 0)
    is_valid = is_shared & (areas > 0) & (areas[one] > 0) & (total > 0)
    ratio = shared / np.where(is_valid, total, np.float32(1))
    return np.asarray(is_valid & (ratio > np.float32(attrs.iou_threshold)))


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(SuppressionAttrs)
    boxes, scores = arrays
    rows = np.zeros(call.outputs[0].shape, np.int64)
    total = 0
    for sample, kind in np.ndindex(*scores.shape[:2]):
        line = scores[sample, kind]
        is_open = line > np.float32(attrs.score_threshold)
        selected = 0
        while selected < attrs.boxes_per_class and is_open.any():
            box = int(np.argmax(np.where(is_open, line, -np.inf)))
            rows[total] = sample, kind, box
            total, selected = total + 1, selected + 1
            is_open &= ~_overlaps(attrs, boxes[sample], box)
            is_open[box] = False
    return rows, np.array(total, np.int32)


def _lower_corners(
    b: Kernel, sample: ArithExpr, box: ArithExpr
) -> tuple[list[ArithExpr], list[ArithExpr]]:
    attrs, boxes = b.call.attributes(SuppressionAttrs), b.input(0)
    low: list[ArithExpr] = []
    high: list[ArithExpr] = []
    for axis in (0, 1):
        first = b.let("first", b.load(boxes, [sample, box, axis]))
        second = b.let("second", b.load(boxes, [sample, box, axis + 2]))
        if attrs.center_point_box:
            half = b.let("half", second / 2.0)
            low.append(b.let("low", first - half))
            high.append(b.let("high", first + half))
        else:
            low.append(b.let("low", minimum(first, second)))
            high.append(b.let("high", maximum(first, second)))
    return low, high


def _lower_suppression(
    b: Kernel, is_open: tir.Buffer, sample: ArithExpr, box: ArithExpr
) -> None:
    """Emit code that closes the boxes that overlap `box` beyond the threshold."""
    limit = b.call.attributes(SuppressionAttrs).iou_threshold
    low, high = _lower_corners(b, sample, box)
    area = b.let("area", (high[0] - low[0]) * (high[1] - low[1]))
    with b.for_("j", is_open.shape[0]) as j, b.if_(b.load_i32(is_open, [j]) > 0):
        low_j, high_j = _lower_corners(b, sample, j)
        extents = [
            b.let("extent", minimum(high_j[k], high[k]) - maximum(low_j[k], low[k]))
            for k in (0, 1)
        ]
        shared = b.let("shared", extents[0] * extents[1])
        other = b.let("other", (high_j[0] - low_j[0]) * (high_j[1] - low_j[1]))
        total = b.let("total_area", other + area - shared)
        is_shared = logical_and(extents[0] > 0.0, extents[1] > 0.0, shared > 0.0)
        has_area = logical_and(area > 0.0, other > 0.0, total > 0.0)
        with b.if_(logical_and(is_shared, has_area)), b.if_(shared / total > limit):
            b.store(is_open, [j], 0)


def _lower_best(
    b: Kernel, is_open: tir.Buffer, sample: ArithExpr, kind: ArithExpr
) -> Register:
    """Emit a search for the best open box, -1 if there is none."""
    best = b.register("best", INT32, -1)
    top = b.register("top", FLOAT32, 0.0)
    with b.for_("i", is_open.shape[0]) as i, b.if_(b.load_i32(is_open, [i]) > 0):
        score = b.let("score", b.load(b.input(1), [sample, kind, i]))
        with b.if_(binary_expr("or", best.value < 0, score > top.value)):
            best.set(i.cast(INT32))
            top.set(score)
    return best


def lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(SuppressionAttrs)
    samples, classes, count = call.input(1).shape
    rows, number = b.outputs
    lower_fill(b, rows, 0)
    is_open = b.allocate("is_open", INT8, (count,))
    total = b.register("total", UINT32, 0)
    with b.for_("sample", samples) as sample, b.for_("class", classes) as kind:
        with b.for_("i", count) as i:
            b.store(is_open, [i], 0)
            score = b.let("score", b.load(b.input(1), [sample, kind, i]))
            with b.if_(score > attrs.score_threshold):
                b.store(is_open, [i], 1)
        selected = b.register("selected", INT32, 0)
        with b.while_(selected.value < attrs.boxes_per_class):
            best = _lower_best(b, is_open, sample, kind)
            with b.if_(best.value < 0):
                selected.set(attrs.boxes_per_class)
            with b.else_():
                limited = minimum(maximum(best.value, 0), count - 1)
                box = b.let("box", limited.cast(INDEX))
                place = minimum(total.value, rows.shape[0] - 1).cast(INDEX)
                row = b.let("row", place)
                for column, value in enumerate((sample, kind, box)):
                    b.store(rows, [row, column], value.cast(INT64))
                total.add(1)
                selected.add(1)
                b.store(is_open, [box], 0)
                _lower_suppression(b, is_open, sample, box)
    b.store(number, [], total.value.cast(INT32))


OPDEF = OpDef(
    "non_max_suppression",
    infer,
    reference,
    lower,
    dtypes=("float32",),
    inputs=("boxes", "scores"),
    results=("indices", "count"),
    numerics="neither",
    restrictions="constant limits; unused rows are 0",
)
