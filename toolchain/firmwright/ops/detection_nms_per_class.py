"""detections_by_class: single-shot detector post-processing with suppression per class.

Inputs, outputs and attributes as in `detections`, plus `detections_per_class`. For each class, the
box with the highest score, if not below the threshold, is selected (the first of equals) and all
boxes that overlap it by more than the threshold are removed; this repeats up to
`detections_per_class` times. Of all classes the best selections are kept; among equals the lower
class, then the earlier selection. A box may appear in several classes.
Semantics: TFLite's detection post-processing with regular suppression, where the order of equal
scores depends on a partial sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT8, Array
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import INDEX, ArithExpr, binary_expr, maximum, minimum
from firmwright.ops import detection_postprocess
from firmwright.ops.kernel import Kernel
from firmwright.ops.strided_copy import lower_fill

_LOWEST = float(np.finfo(np.float32).min)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    return detection_postprocess.infer(call)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    count, limit = call.int_attr("num_classes"), call.int_attr("max_detections")
    corners = detection_postprocess.decode_corners(call, arrays[0][0], arrays[2])
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
    is_open = scores >= np.float32(detection_postprocess.float_attr(call, "score_threshold"))
    iou_limit = np.float32(detection_postprocess.float_attr(call, "iou_threshold"))
    boxes: list[int] = []
    while len(boxes) < call.int_attr("detections_per_class") and is_open.any():
        box = int(np.argmax(np.where(is_open, scores, -np.inf)))
        boxes.append(box)
        is_open &= detection_postprocess.intersection_over_union(corners[box], corners) <= iou_limit
        is_open[box] = False
    return boxes


def lower(call: OpCall, b: Kernel) -> None:
    count, limit = call.input(0).shape[1], call.int_attr("max_detections")
    lower_fill(b, b.outputs[0], 0)
    lower_fill(b, b.outputs[1], 0)
    with ExitStack() as stack:
        corners = stack.enter_context(b.allocate("corners", FLOAT32, (count, 4)))
        is_open = stack.enter_context(b.allocate("is_open", UINT8, (count,)))
        boxes = stack.enter_context(b.allocate("boxes", INT32, (limit,)))
        with b.for_("i", count) as i:
            detection_postprocess.lower_box_decoding(call, b, corners, i)
        with b.for_("d", limit) as d:
            b.store(boxes, [d], 0)
            b.store(b.outputs[2], [0, d], _LOWEST)
        box_count = b.reg("found", INT32)
        b.store(box_count, [0], 0)
        _lower_classes(call, b, corners, is_open, boxes, box_count)
        _lower_results(call, b, corners, boxes, box_count)


def _lower_classes(
    call: OpCall,
    b: Kernel,
    corners: tir.Buffer,
    is_open: tir.Buffer,
    boxes: tir.Buffer,
    box_count: tir.Buffer,
) -> None:
    class_count, column_count = call.int_attr("num_classes"), call.input(1).shape[2]
    count, limit = call.input(0).shape[1], call.int_attr("max_detections")
    chosen = b.reg("chosen", INT32)
    with b.for_("c", class_count) as c:

        def score(i: ArithExpr) -> ArithExpr:
            return b.load(b.input(1), [0, i, c + (column_count - class_count)])

        with b.for_("i", count) as i:
            is_high = score(i) >= detection_postprocess.float_attr(call, "score_threshold")
            b.store(is_open, [i], is_high.cast(UINT8))
        with b.for_("t", min(call.int_attr("detections_per_class"), count)):
            detection_postprocess.lower_best_box(b, score, is_open, chosen, count)
            with (
                b.if_(b.load(chosen, [0]) >= 0),
                b.let("at", minimum(maximum(b.load(chosen, [0]), 0), count - 1).cast(INDEX)) as at,
                b.let("value", score(at)) as value,
            ):
                detection_postprocess.lower_suppression(call, b, corners, is_open, at)
                b.store(box_count, [0], minimum(b.load(box_count, [0]) + 1, limit))
                with b.if_(value > b.load(b.outputs[2], [0, limit - 1])):
                    _lower_insertion(b, boxes, (value, c, at), limit)


def _lower_insertion(
    b: Kernel, boxes: tir.Buffer, detection: tuple[ArithExpr, ArithExpr, ArithExpr], limit: int
) -> None:
    """Insert `detection`, which must beat the last one, after those with an equal score."""
    _, kinds, scores, _ = b.outputs
    value, kind, at = detection
    place = b.reg("place", INT32)
    b.store(place, [0], limit - 1)
    with b.for_("k", limit - 1) as k:
        j = (limit - 1) - k
        with (
            b.if_(binary_expr("eq", b.load(place, [0]), j.cast(INT32))),
            b.if_(value > b.load(scores, [0, j - 1])),
        ):
            b.store(scores, [0, j], b.load(scores, [0, j - 1]))
            b.store(kinds, [0, j], b.load(kinds, [0, j - 1]))
            b.store(boxes, [j], b.load(boxes, [j - 1]))
            b.store(place, [0], (j - 1).cast(INT32))
    slot_index = minimum(maximum(b.load(place, [0]), 0), limit - 1).cast(INDEX)
    with b.let("slot", slot_index) as slot:
        b.store(scores, [0, slot], value)
        b.store(kinds, [0, slot], kind.cast(INT32).cast(FLOAT32))
        b.store(boxes, [slot], at.cast(INT32))


def _lower_results(
    call: OpCall, b: Kernel, corners: tir.Buffer, boxes: tir.Buffer, box_count: tir.Buffer
) -> None:
    count = call.input(0).shape[1]
    with b.for_("d", call.int_attr("max_detections")) as d:
        with b.if_(d.cast(INT32) < b.load(box_count, [0])):
            place = minimum(maximum(b.load(boxes, [d]), 0), count - 1).cast(INDEX)
            with b.let("box", place) as box:
                for k in range(4):
                    b.store(b.outputs[0], [0, d, k], b.load(corners, [box, k]))
        with b.if_(d.cast(INT32) >= b.load(box_count, [0])):
            b.store(b.outputs[2], [0, d], 0.0)
    b.store(b.outputs[3], [0], b.load(box_count, [0]).cast(FLOAT32))


OPDEF = OpDef(
    name="detections_by_class",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=("float32",),
    numerics=both_profiles(None, "float32", "detection_postprocess"),
    restrictions="TFLite_Detection_PostProcess with use_regular_nms",
)
