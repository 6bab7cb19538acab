"""detections and detections_by_class: single-shot detector post-processing.

Inputs: encoded boxes [1, boxes, 4] (y, x, h, w relative to anchors), scores [1, boxes, classes], of
which the last `num_classes` are used, and constant anchors [boxes, 4]. `scales` divide the encoded
values. Outputs: corners (ymin, xmin, ymax, xmax), classes and scores in descending order of score,
and the number of boxes; unused entries are 0.

The box with the highest score (the first of equals), if not below `score_threshold`, is selected,
and all boxes that overlap it by more than `iou_threshold` are removed; this repeats. detections
scores a box by its best class. detections_by_class selects up to `detections_per_class` boxes of
each class and keeps the best of all classes; equal scores are ordered by class, then by selection.
Semantics: TFLite's detection post-processing with fast or regular suppression. In the latter,
TFLite orders equal scores by a partial sort.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.core import Attr
from firmwright.ir.graph import ImportContext, ImportedCall, OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Register,
    binary_expr,
    logical_and,
    maximum,
    minimum,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.kernel import Kernel
from firmwright.ops.strided_copy import lower_fill

NAME = "custom:TFLite_Detection_PostProcess"
_EACH_CLASS = 100


def infer(call: OpCall) -> tuple[TensorType, ...]:
    boxes, scores, anchors = (call.input(index) for index in range(3))
    if {kind.dtype for kind in (boxes, scores, anchors, *call.outputs)} != {FLOAT32}:
        raise NotSupportedError("detections of types other than float32")
    if len(call.outputs) != 4 or len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise NotSupportedError("detections without all of their tensors")
    count = boxes.shape[1]
    if (
        boxes.shape != (1, count, 4)
        or scores.shape[:2] != (1, count)
        or anchors.shape != (count, 4)
    ):
        raise NotSupportedError(f"boxes of {list(boxes.shape)}, scores of {list(scores.shape)}")
    if not 1 <= call.int_attr("num_classes") <= scores.shape[2]:
        raise NotSupportedError(f"{call.int_attr('num_classes')} of {scores.shape[2]} classes")
    limit = call.int_attr("max_detections")
    shapes = ((1, limit, 4), (1, limit), (1, limit), (1,))
    return tuple(TensorType(shape, FLOAT32) for shape in shapes)


def float_attr(call: OpCall, name: str) -> float:
    value = call.attrs[name]
    assert isinstance(value, float)  # ensured on import
    return value


def _scales(call: OpCall) -> tuple[float, ...]:
    values = call.attrs["scales"]
    assert isinstance(values, tuple)  # ensured on import
    return tuple(float(value) for value in values)  # type: ignore[arg-type]  # numbers by import


def decode_corners(call: OpCall, boxes: Array, anchors: Array) -> Array:
    boxes, anchors = boxes.astype(np.float32), anchors.astype(np.float32)
    encoded = boxes / np.array(_scales(call), np.float32)
    center = encoded[:, :2] * anchors[:, 2:] + anchors[:, :2]
    half = np.float32(0.5) * np.exp(encoded[:, 2:]) * anchors[:, 2:]
    return np.concatenate([center - half, center + half], axis=1).astype(np.float32)


def intersection_over_union(box: Array, others: Array) -> Array:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.maximum(high - low, 0).prod(axis=1)
    area, areas = ((b[..., 2:] - b[..., :2]).prod(axis=-1) for b in (box, others))
    total = area + areas - shared
    has_area = (area > 0) & (areas > 0)
    return np.asarray(np.where(has_area, shared / np.where(has_area, total, 1), 0), np.float32)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    count, limit = call.int_attr("num_classes"), call.int_attr("max_detections")
    corners = decode_corners(call, arrays[0][0], arrays[2])
    scores = arrays[1][0][:, -count:]
    best_scores = scores.max(axis=1)
    is_open = best_scores >= np.float32(float_attr(call, "score_threshold"))
    results = [np.zeros(kind.shape, np.float32) for kind in call.outputs]
    box_count = 0
    while box_count < limit and is_open.any():
        chosen = int(np.argmax(np.where(is_open, best_scores, -np.inf)))
        results[0][0, box_count] = corners[chosen]
        results[1][0, box_count] = scores[chosen].argmax()
        results[2][0, box_count] = best_scores[chosen]
        box_count += 1
        is_open &= intersection_over_union(corners[chosen], corners) <= np.float32(
            float_attr(call, "iou_threshold")
        )
        is_open[chosen] = False
    results[3][0] = box_count
    return tuple(results)


def lower(call: OpCall, b: Kernel) -> None:
    count = call.input(0).shape[1]
    for output in b.outputs[:3]:
        lower_fill(b, output, 0)
    corners = b.allocate("corners", FLOAT32, (count, 4))
    best_scores = b.allocate("best", FLOAT32, (count,))
    classes = b.allocate("classes", INT32, (count,))
    is_open = b.allocate("is_open", UINT8, (count,))
    with b.for_("i", count) as i:
        lower_box_decoding(b, corners, i)
        _classify(call, b, (best_scores, classes, is_open), i)
    box_count, chosen = b.register("found", INT32), b.register("chosen", INT32)
    box_count.set(0)
    with b.for_("d", call.int_attr("max_detections")) as d:
        lower_best_box(b, lambda i: b.load(best_scores, [i]), is_open, chosen, count)
        with b.if_(chosen.value >= 0):
            at = b.let("place", minimum(maximum(chosen.value, 0), count - 1).cast(INDEX))
            for k in range(4):
                b.store(b.outputs[0], [0, d, k], b.load(corners, [at, k]))
            b.store(b.outputs[1], [0, d], b.load(classes, [at]).cast(FLOAT32))
            b.store(b.outputs[2], [0, d], b.load(best_scores, [at]))
            box_count.add(1)
            lower_suppression(b, corners, is_open, at)
    b.store(b.outputs[3], [0], box_count.value.cast(FLOAT32))


def lower_box_decoding(b: Kernel, corners: tir.Buffer, i: ArithExpr) -> None:
    boxes, anchors, scales = b.input(0), b.input(2), _scales(b.call)
    for axis in (0, 1):
        size = b.load(anchors, [i, axis + 2])
        center = b.load(boxes, [0, i, axis]) / scales[axis] * size + b.load(anchors, [i, axis])
        power = intrinsic("exp_f32", [b.load(boxes, [0, i, axis + 2]) / scales[axis + 2]], FLOAT32)
        middle = b.let("center", center)
        half = b.let("half", power * 0.5 * size)
        b.store(corners, [i, axis], middle - half)
        b.store(corners, [i, axis + 2], middle + half)


def _classify(call: OpCall, b: Kernel, into: Sequence[tir.Buffer], i: ArithExpr) -> None:
    best_scores, classes, is_open = into
    class_count, column_count = call.int_attr("num_classes"), call.input(1).shape[2]
    score, kind = b.register("score", FLOAT32), b.register("kind", INT32)
    score.set(b.load(b.input(1), [0, i, column_count - class_count]))
    kind.set(0)
    with b.for_("c", class_count) as c:
        item = b.let("item", b.load(b.input(1), [0, i, c + (column_count - class_count)]))
        with b.if_(item > score.value):
            score.set(item)
            kind.set(c.cast(INT32))
    b.store(best_scores, [i], score.value)
    b.store(classes, [i], kind.value)
    b.store(is_open, [i], (score.value >= float_attr(call, "score_threshold")).cast(UINT8))


def lower_best_box(
    b: Kernel, score: Callable[[ArithExpr], ArithExpr], is_open: tir.Buffer, chosen: Register,
    count: int,
) -> None:  # fmt: skip
    """Emit code that stores the best box that is not suppressed, or -1, in `chosen`."""
    highest = b.register("highest", FLOAT32, 0.0)
    chosen.set(-1)
    with b.for_("i", count) as i, b.if_(b.load(is_open, [i]) > 0):
        first = chosen.value < 0
        with b.if_(binary_expr("or", first, score(i) > highest.value)):
            highest.set(score(i))
            chosen.set(i.cast(INT32))


def lower_suppression(b: Kernel, corners: tir.Buffer, is_open: tir.Buffer, at: ArithExpr) -> None:
    """Emit the removal of box `at` and all boxes that overlap it beyond the threshold."""
    b.store(is_open, [at], 0)
    with b.for_("j", b.call.input(0).shape[1]) as j:
        areas: list[ArithExpr] = []
        for name, place in (("area", at), ("other_area", j)):
            height, width = (
                b.load(corners, [place, axis + 2]) - b.load(corners, [place, axis])
                for axis in (0, 1)
            )
            areas.append(b.let(name, height * width))
        extents = [
            maximum(
                minimum(b.load(corners, [at, axis + 2]), b.load(corners, [j, axis + 2]))
                - maximum(b.load(corners, [at, axis]), b.load(corners, [j, axis])),
                0.0,
            )
            for axis in (0, 1)
        ]
        intersection = b.let("intersection", extents[0] * extents[1])
        has_area = logical_and(areas[0] > 0.0, areas[1] > 0.0)
        ratio = intersection / (areas[0] + areas[1] - intersection)
        with b.if_(has_area), b.if_(ratio > float_attr(b.call, "iou_threshold")):
            b.store(is_open, [j], 0)


def import_tflite(context: ImportContext) -> ImportedCall:
    options = context.node.options
    if len(context.inputs) != 3 or None in context.inputs or not options:
        raise NotSupportedError("detections without all of their inputs and options")
    by_class = bool(options.get("use_regular_nms"))
    if not by_class and options.get("max_classes_per_detection", 1) != 1:
        raise NotSupportedError("detections with several classes per box")

    def option(name: str) -> float:
        value = options.get(name)
        if not isinstance(value, int | float):
            raise NotSupportedError(f"detections without the option {name}")
        return float(value)

    attrs: dict[str, Attr] = {
        "scales": tuple(option(f"{axis}_scale") for axis in "yxhw"),
        "score_threshold": option("nms_score_threshold"),
        "iou_threshold": option("nms_iou_threshold"),
        "num_classes": int(option("num_classes")),
        "max_detections": int(option("max_detections")),
    }
    if min(option(f"{axis}_scale") for axis in "yxhw") <= 0 or option("max_detections") < 1:
        raise NotSupportedError("detections with nonpositive scales or max_detections")
    if not by_class:
        return ImportedCall("detections", attrs, (0, 1, 2))
    each = options.get("detections_per_class", _EACH_CLASS)
    if not isinstance(each, int) or each < 1:
        raise NotSupportedError(f"detections with {each} per class")
    attrs["detections_per_class"] = each
    return ImportedCall("detections_by_class", attrs, (0, 1, 2))


_LOWEST = float(np.finfo(np.float32).min)


def reference_by_class(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    count, limit = call.int_attr("num_classes"), call.int_attr("max_detections")
    corners = decode_corners(call, arrays[0][0], arrays[2])
    scores = arrays[1][0][:, -count:].astype(np.float32)
    selections: list[tuple[float, int, int]] = []
    for kind in range(count):
        boxes = _select_boxes(call, corners, scores[:, kind])
        selections += [(float(scores[box, kind]), kind, box) for box in boxes]
        selections = sorted(selections, key=lambda selection: -selection[0])[:limit]
    results = [np.zeros(kind.shape, np.float32) for kind in call.outputs]
    for place, (score, kind, box) in enumerate(selections):
        results[0][0, place] = corners[box]
        results[1][0, place], results[2][0, place] = kind, score
    results[3][0] = len(selections)
    return tuple(results)


def _select_boxes(call: OpCall, corners: Array, scores: Array) -> list[int]:
    is_open = scores >= np.float32(float_attr(call, "score_threshold"))
    iou_limit = np.float32(float_attr(call, "iou_threshold"))
    boxes: list[int] = []
    while len(boxes) < call.int_attr("detections_per_class") and is_open.any():
        box = int(np.argmax(np.where(is_open, scores, -np.inf)))
        boxes.append(box)
        is_open &= intersection_over_union(corners[box], corners) <= iou_limit
        is_open[box] = False
    return boxes


def lower_by_class(call: OpCall, b: Kernel) -> None:
    count, limit = call.input(0).shape[1], call.int_attr("max_detections")
    lower_fill(b, b.outputs[0], 0)
    lower_fill(b, b.outputs[1], 0)
    corners = b.allocate("corners", FLOAT32, (count, 4))
    is_open = b.allocate("is_open", UINT8, (count,))
    boxes = b.allocate("boxes", INT32, (limit,))
    with b.for_("i", count) as i:
        lower_box_decoding(b, corners, i)
    with b.for_("d", limit) as d:
        b.store(boxes, [d], 0)
        b.store(b.outputs[2], [0, d], _LOWEST)
    box_count = b.register("found", INT32, 0)
    _lower_classes(b, corners, is_open, boxes, box_count)
    _lower_results(b, corners, boxes, box_count)


def _lower_classes(
    b: Kernel, corners: tir.Buffer, is_open: tir.Buffer, boxes: tir.Buffer, box_count: Register
) -> None:
    call = b.call
    class_count, column_count = call.int_attr("num_classes"), call.input(1).shape[2]
    count, limit = call.input(0).shape[1], call.int_attr("max_detections")
    chosen = b.register("chosen", INT32)
    with b.for_("c", class_count) as c:

        def score(i: ArithExpr) -> ArithExpr:
            return b.load(b.input(1), [0, i, c + (column_count - class_count)])

        with b.for_("i", count) as i:
            b.store(is_open, [i], (score(i) >= float_attr(call, "score_threshold")).cast(UINT8))
        with b.for_("t", min(call.int_attr("detections_per_class"), count)):
            lower_best_box(b, score, is_open, chosen, count)
            with b.if_(chosen.value >= 0):
                at = b.let("at", minimum(maximum(chosen.value, 0), count - 1).cast(INDEX))
                value = b.let("value", score(at))
                lower_suppression(b, corners, is_open, at)
                box_count.set(minimum(box_count.value + 1, limit))
                with b.if_(value > b.load(b.outputs[2], [0, limit - 1])):
                    _lower_insertion(b, boxes, (value, c, at), limit)


def _lower_insertion(
    b: Kernel, boxes: tir.Buffer, detection: tuple[ArithExpr, ArithExpr, ArithExpr], limit: int
) -> None:
    """Insert `detection` after entries with an equal score; its score must exceed the last one."""
    _, kinds, scores, _ = b.outputs
    value, kind, at = detection
    place = b.register("place", INT32, limit - 1)
    with b.for_("k", limit - 1) as k:
        j = (limit - 1) - k
        with (
            b.if_(binary_expr("eq", place.value, j.cast(INT32))),
            b.if_(value > b.load(scores, [0, j - 1])),
        ):
            b.store(scores, [0, j], b.load(scores, [0, j - 1]))
            b.store(kinds, [0, j], b.load(kinds, [0, j - 1]))
            b.store(boxes, [j], b.load(boxes, [j - 1]))
            place.set((j - 1).cast(INT32))
    slot = b.let("slot", minimum(maximum(place.value, 0), limit - 1).cast(INDEX))
    b.store(scores, [0, slot], value)
    b.store(kinds, [0, slot], kind.cast(INT32).cast(FLOAT32))
    b.store(boxes, [slot], at.cast(INT32))


def _lower_results(b: Kernel, corners: tir.Buffer, boxes: tir.Buffer, total: Register) -> None:
    count = b.call.input(0).shape[1]
    with b.for_("d", b.call.int_attr("max_detections")) as d:
        with b.if_(d.cast(INT32) < total.value):
            box = b.let("box", minimum(maximum(b.load(boxes, [d]), 0), count - 1).cast(INDEX))
            for k in range(4):
                b.store(b.outputs[0], [0, d, k], b.load(corners, [box, k]))
        with b.if_(d.cast(INT32) >= total.value):
            b.store(b.outputs[2], [0, d], 0.0)
    b.store(b.outputs[3], [0], total.value.cast(FLOAT32))


OPDEFS: tuple[OpDef, ...] = (
    OpDef("detections", infer, reference, lower, {f"tflite:{NAME}": import_tflite}),
    OpDef("detections_by_class", infer, reference_by_class, lower_by_class),
)
