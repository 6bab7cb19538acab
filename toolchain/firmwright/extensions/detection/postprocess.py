"""detections and detections_by_class: single-shot detector post-processing.

Inputs: encoded boxes [1, boxes, 4] (y, x, h, w relative to anchors), scores [1, boxes,
classes], of which the last `num_classes` are used, and constant anchors [boxes, 4];
each float32 or quantized. `scales` divide the encoded values. Outputs: corners (ymin,
xmin, ymax, xmax), classes and scores in descending order of score, and the number of
boxes; unused entries are 0.

Boxes with scores not below `score_threshold` are examined in descending order of score
(the first of equals first). A box is selected unless it overlaps a selected one by more
than `iou_threshold`. detections scores a box by its best class. detections_by_class
selects up to `detections_per_class` boxes of each class and keeps the best of all
classes; equal scores are ordered by class, then by selection. Semantics: TFLite's
detection post-processing with fast or regular suppression. In the latter, TFLite orders
equal scores by a partial sort.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, INT64, UINT8, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.detection.attributes import (
    DetectionsAttrs,
    DetectionsByClassAttrs,
)
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Register,
    as_expr,
    binary_expr,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.strided_copy import lower_fill


def infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(DetectionsAttrs)
    boxes, scores, anchors = call.input(0), call.input(1), call.input(2)
    kinds = (boxes, scores, anchors)
    dtypes = {kind.dtype for kind in kinds}
    results = {kind.dtype for kind in call.outputs}
    if dtypes - {FLOAT32, INT8, UINT8} or results != {FLOAT32}:
        what = "detections of types other than float32, int8 and uint8"
        raise NotSupportedError(what)
    for kind in kinds:
        if kind.dtype != FLOAT32:
            # Raises NotSupportedError without such a quantization.
            per_tensor_quant(kind)
    if len(call.outputs) != 4 or len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise NotSupportedError("detections without all of their tensors")
    count = boxes.shape[1]
    has_boxes = boxes.shape == (1, count, 4) and anchors.shape == (count, 4)
    if not has_boxes or scores.shape[:2] != (1, count):
        sizes = f"boxes of {list(boxes.shape)}, scores of {list(scores.shape)}"
        raise NotSupportedError(sizes)
    if not 1 <= attrs.num_classes <= scores.shape[2]:
        raise NotSupportedError(f"{attrs.num_classes} of {scores.shape[2]} classes")
    limit = attrs.max_detections
    shapes = ((1, limit, 4), (1, limit), (1, limit), (1,))
    return tuple(TensorType(shape, FLOAT32) for shape in shapes)


def _real_value(kind: TensorType, x: Any) -> Any:
    """Return the value of a stored number or array of `kind`, as dequantize does."""
    if kind.dtype == FLOAT32:
        return x
    quant = per_tensor_quant(kind)
    if isinstance(x, ArithExpr):
        return (x.cast(INT32) - quant.zero_point).cast(FLOAT32) * quant.scale
    differences = (x.astype(np.int64) - quant.zero_point).astype(np.float32)
    return differences * np.float32(quant.scale)


def _corners_and_scores(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, Array]:
    attrs = call.attributes(DetectionsAttrs)
    real = [_real_value(call.input(k), x) for k, x in enumerate(arrays)]
    boxes, scores, anchors = real
    encoded = boxes[0] / np.array(attrs.scales, np.float32)
    center = encoded[:, :2] * anchors[:, 2:] + anchors[:, :2]
    half = np.float32(0.5) * np.exp(encoded[:, 2:]) * anchors[:, 2:]
    corners = np.concatenate([center - half, center + half], axis=1).astype(np.float32)
    return corners, scores[0][:, -attrs.num_classes :]


def intersection_over_union(box: Array, others: Array) -> Array:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.maximum(high - low, 0).prod(axis=1)
    area = (box[2:] - box[:2]).prod(axis=-1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=-1)
    total = area + areas - shared
    has_area = (area > 0) & (areas > 0)
    ratio = shared / np.where(has_area, total, 1)
    return np.asarray(np.where(has_area, ratio, 0), np.float32)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(DetectionsAttrs)
    limit, iou_limit = attrs.max_detections, np.float32(attrs.iou_threshold)
    corners, scores = _corners_and_scores(call, arrays)
    best_scores = scores.max(axis=1)
    is_open = best_scores >= np.float32(attrs.score_threshold)
    results = [np.zeros(kind.shape, np.float32) for kind in call.outputs]
    box_count = 0
    while box_count < limit and is_open.any():
        chosen = int(np.argmax(np.where(is_open, best_scores, -np.inf)))
        results[0][0, box_count] = corners[chosen]
        results[1][0, box_count] = scores[chosen].argmax()
        results[2][0, box_count] = best_scores[chosen]
        box_count += 1
        is_open &= intersection_over_union(corners[chosen], corners) <= iou_limit
        is_open[chosen] = False
    results[3][0] = box_count
    return tuple(results)


def lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(DetectionsAttrs)
    limit, classes = attrs.max_detections, attrs.num_classes
    for output in b.outputs[:3]:
        lower_fill(b, output, 0)
    corners = b.view("found_corners", b.y, 0, (limit, 4), access="rw")

    def best_key(box: ArithExpr) -> ArithExpr:
        best = b.register("best", INT32, INT32.min)
        with b.for_("c", classes) as c:
            best.set(maximum(best.value, _score_key(b, box, c)))
        return best.value

    def take(place: ArithExpr, box: ArithExpr, key: ArithExpr) -> None:
        kind = b.register("kind", INT32, 0)
        with b.for_("c", classes) as c:
            last = (classes - 1) - c
            with b.if_(_score_key(b, box, last) >= key):
                kind.set(last.cast(INT32))
        at = minimum(maximum(kind.value, 0), classes - 1).cast(INDEX)
        b.store(b.outputs[1], [0, place], kind.value.cast(FLOAT32))
        b.store(b.outputs[2], [0, place], _real(b, 1, _place(b, box, at)))

    entries = b.allocate("entries", INT64, (call.input(0).shape[1],), 8)
    total = _lower_selection(b, entries, corners, best_key, take)
    b.store(b.outputs[3], [0], total.cast(FLOAT32))


def _real(b: Kernel, index: int, at: Sequence[ArithExpr | int]) -> ArithExpr:
    stored = b.load(b.input(index), at)
    return ArithExpr(as_expr(_real_value(b.call.input(index), stored)))


def _place(b: Kernel, box: ArithExpr, kind: ArithExpr) -> list[ArithExpr | int]:
    classes = b.call.attributes(DetectionsAttrs).num_classes
    return [0, box, kind + b.input(1).shape[2] - classes]


def _score_key(b: Kernel, box: ArithExpr, kind: ArithExpr) -> ArithExpr:
    """Emit a score as an int32 of the same order.

    The bits of nonnegative floats have that order. Those of negative ones have the
    reverse, and need not be changed if the threshold refuses all of them.
    """
    scores, at = b.input(1), _place(b, box, kind)
    if not scores.dtype.is_float:
        return b.load_i32(scores, at)
    bits = b.load(b.view("bits", scores, 0, scores.shape, dtype=INT32, alignment=4), at)
    if b.call.attributes(DetectionsAttrs).score_threshold > 0:
        return bits
    return select(bits < 0, INT32.min - minimum(bits, 0), bits)


def _least_key(call: OpCall) -> int:
    """Return the least key of a score that is not below the threshold."""
    kind = call.input(1)
    limit = np.float32(call.attributes(DetectionsAttrs).score_threshold)
    if kind.dtype.is_float:
        bits = int(limit.view(np.int32))
        return bits if bits >= 0 else INT32.min - bits
    values = np.arange(kind.dtype.min, kind.dtype.max + 1)
    return int(kind.dtype.min + (_real_value(kind, values) < limit).sum())


def _lower_corners(b: Kernel, i: ArithExpr) -> list[ArithExpr]:
    scales = b.call.attributes(DetectionsAttrs).scales
    lows: list[ArithExpr] = []
    highs: list[ArithExpr] = []
    for axis in (0, 1):
        size = b.let("size", _real(b, 2, [i, axis + 2]))
        shift = _real(b, 0, [0, i, axis]) / scales[axis] * size
        center = shift + _real(b, 2, [i, axis])
        encoded = _real(b, 0, [0, i, axis + 2]) / scales[axis + 2]
        middle = b.let("center", center)
        half = b.let("half", intrinsic("exp_f32", [encoded], FLOAT32) * 0.5 * size)
        lows.append(b.let("low", middle - half))
        highs.append(b.let("high", middle + half))
    return lows + highs


def _lower_selection(
    b: Kernel,
    entries: tir.Buffer,
    corners: tir.Buffer,
    key: Callable[[ArithExpr], ArithExpr],
    take: Callable[[ArithExpr, ArithExpr, ArithExpr], None],
) -> ArithExpr:
    """Move the best boxes without overlap to rows of `corners`; return their number.

    `take` receives the row, the box and its key. Open boxes form a heap, the first one
    on top. Entries compare like their keys; of equal keys, the first box is the
    greatest:

        bits 63 to 32    key of the score
        bits 31 to 0     number of boxes after this one
    """
    size = b.register("size", UINT32, 0)
    (count,), limit = entries.shape, corners.shape[0]

    def sift(first: ArithExpr | int) -> None:
        heap = b.pointer(entries, 0, count, "rw")
        b.evaluate("sift_down", [heap, first, size.value.cast(INT32)])

    with b.for_("i", count) as i:
        best = b.let("key", key(i))
        with b.if_(best >= _least_key(b.call)):
            end = minimum(size.value, count - 1).cast(INDEX)
            b.store(entries, [end], best.cast(INT64) * (1 << 32) + ((count - 1) - i))
            size.add(1)
    half = b.let("half_size", minimum(size.value >> 1, count - 1).cast(INDEX))
    with b.for_("k", half) as k:
        sift((half - 1 - k).cast(INT32))
    selected = b.register("selected", UINT32, 0)
    with b.while_(logical_and(selected.value < limit, size.value > 0)):
        entry = b.let("entry", b.load(entries, [0]))
        size.set(size.value - 1)
        last = minimum(size.value, count - 1).cast(INDEX)
        b.store(entries, [0], b.load(entries, [last]))
        sift(0)
        box = b.let("box", maximum((count - 1) - (entry & 0xFFFFFFFF), 0))
        box_corners = _lower_corners(b, box)
        place = b.let("place", minimum(selected.value, limit - 1).cast(INDEX))
        is_free = b.register("is_free", INT32, 1)
        with b.for_("j", place) as j:
            other_corners = [b.load(corners, [j, k]) for k in range(4)]
            _lower_overlap(b, box_corners, other_corners, is_free)
        with b.if_(is_free.value > 0):
            for axis, value in enumerate(box_corners):
                b.store(corners, [place, axis], value)
            take(place, box, b.let("key", (entry >> 32).cast(INT32)))
            selected.add(1)
    return selected.value


def _lower_overlap(
    b: Kernel, box: Sequence[ArithExpr], other: Sequence[ArithExpr], is_free: Register
) -> None:
    """Emit code that clears `is_free` if the corners overlap beyond the threshold."""
    area = b.let("area", (box[2] - box[0]) * (box[3] - box[1]))
    other_area = b.let("area", (other[2] - other[0]) * (other[3] - other[1]))
    extents = []
    for axis in (0, 1):
        high = minimum(box[axis + 2], other[axis + 2])
        low = maximum(box[axis], other[axis])
        extents.append(maximum(high - low, 0.0))
    intersection = b.let("intersection", extents[0] * extents[1])
    ratio = intersection / (other_area + area - intersection)
    with (
        b.if_(logical_and(area > 0.0, other_area > 0.0)),
        b.if_(ratio > b.call.attributes(DetectionsAttrs).iou_threshold),
    ):
        is_free.set(0)


_LOWEST = float(np.finfo(np.float32).min)


def reference_by_class(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(DetectionsAttrs)
    count, limit = attrs.num_classes, attrs.max_detections
    corners, scores = _corners_and_scores(call, arrays)
    selections: list[tuple[float, int, int]] = []
    for kind in range(count):
        chosen = _select_boxes(call, corners, scores[:, kind])
        selections += [(float(scores[box, kind]), kind, box) for box in chosen]
        selections = sorted(selections, key=lambda selection: -selection[0])[:limit]
    results = [np.zeros(kind.shape, np.float32) for kind in call.outputs]
    for place, (score, kind, box) in enumerate(selections):
        results[0][0, place] = corners[box]
        results[1][0, place], results[2][0, place] = kind, score
    results[3][0] = len(selections)
    return tuple(results)


def _select_boxes(call: OpCall, corners: Array, scores: Array) -> list[int]:
    attrs = call.attributes(DetectionsByClassAttrs)
    is_open = scores >= np.float32(attrs.score_threshold)
    iou_limit = np.float32(attrs.iou_threshold)
    boxes: list[int] = []
    while len(boxes) < attrs.detections_per_class and is_open.any():
        box = int(np.argmax(np.where(is_open, scores, -np.inf)))
        boxes.append(box)
        is_open &= intersection_over_union(corners[box], corners) <= iou_limit
        is_open[box] = False
    return boxes


def lower_by_class(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(DetectionsByClassAttrs)
    count, limit = call.input(0).shape[1], attrs.max_detections
    lower_fill(b, b.outputs[0], 0)
    lower_fill(b, b.outputs[1], 0)
    lower_fill(b, b.outputs[2], _LOWEST)
    boxes = b.allocate("boxes", INT32, (limit,))
    with b.for_("d", limit) as d:
        b.store(boxes, [d], 0)
    each = min(attrs.detections_per_class, count)
    corners = b.allocate("corners", FLOAT32, (each, 4))
    entries = b.allocate("entries", INT64, (count,), 8)
    box_count = b.register("total", UINT32, 0)
    with b.for_("c", attrs.num_classes) as c:

        def take(place: ArithExpr, box: ArithExpr, key: ArithExpr) -> None:
            value = b.let("value", _real(b, 1, _place(b, box, c)))
            with b.if_(value > b.load(b.outputs[2], [0, limit - 1])):
                _lower_insertion(b, boxes, (value, c, box), limit)

        def key(box: ArithExpr) -> ArithExpr:
            return _score_key(b, box, c)

        selected = _lower_selection(b, entries, corners, key, take)
        box_count.set(minimum(selected + box_count.value, limit))
    _lower_results(b, boxes, box_count)


def _lower_insertion(
    b: Kernel,
    boxes: tir.Buffer,
    detection: tuple[ArithExpr, ArithExpr, ArithExpr],
    limit: int,
) -> None:
    """Insert `detection` after equal scores; its score must exceed the last one."""
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


def _lower_results(b: Kernel, boxes: tir.Buffer, total: Register) -> None:
    count = b.call.input(0).shape[1]
    with b.for_("d", b.call.attributes(DetectionsAttrs).max_detections) as d:
        with b.if_(d.cast(UINT32) < total.value):
            number = maximum(b.load(boxes, [d]), 0)
            box = b.let("box", minimum(number, count - 1).cast(INDEX))
            for k, corner in enumerate(_lower_corners(b, box)):
                b.store(b.outputs[0], [0, d, k], corner)
        with b.else_():
            b.store(b.outputs[2], [0, d], 0.0)
    b.store(b.outputs[3], [0], total.value.cast(FLOAT32))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "detections",
        infer,
        reference,
        lower,
        dtypes=("float32", "int8", "uint8"),
        inputs=("boxes", "scores", "anchors"),
        results=("corners", "classes", "scores", "count"),
        numerics="both",
        calls_float_functions=True,
        restrictions="one class per box; regular suppression: detections_by_class",
    ),
    OpDef(
        "detections_by_class",
        infer,
        reference_by_class,
        lower_by_class,
        dtypes=("float32", "int8", "uint8"),
        inputs=("boxes", "scores", "anchors"),
        results=("corners", "classes", "scores", "count"),
        numerics="both",
        calls_float_functions=True,
        restrictions="TFLite_Detection_PostProcess with use_regular_nms",
    ),
)
