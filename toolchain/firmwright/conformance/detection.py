"""Conformance cases of detection post-processing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firmwright.conformance.case import CaseTable, CaseTensor, ConformanceCase
from firmwright.ops import detection_postprocess
from firmwright.ops.detection_postprocess import NAME


def _postprocess_cases() -> Iterator[ConformanceCase]:
    rng = np.random.Generator(np.random.PCG64(3))
    # More than `most` pairs of overlapping anchors, because the reference leaves unused results
    # undefined.
    for name, count, classes, most in (("few", 12, 3, 4), ("one", 6, 1, 2)):
        pairs = np.repeat(rng.uniform(0.2, 0.8, (count // 2, 4)), 2, axis=0)
        anchors = (pairs + rng.uniform(0, 0.01, pairs.shape)).astype(np.float32)
        inputs = (
            CaseTensor((1, count, 4), "float32"),
            CaseTensor((1, count, classes + 1), "float32"),
            CaseTensor((count, 4), "float32", data=anchors),
        )
        outputs = tuple(
            CaseTensor(shape, "float32") for shape in ((1, most, 4), (1, most), (1, most), (1,))
        )
        options = {
            "max_detections": most, "max_classes_per_detection": 1, "detections_per_class": 100,
            "use_regular_nms": False, "nms_score_threshold": -100.0, "nms_iou_threshold": 0.5,
            "num_classes": classes, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0,
            "w_scale": 5.0,
        }  # fmt: skip
        yield ConformanceCase(f"{name}_float32", NAME, inputs, outputs, options)


def _nms_per_class_cases() -> Iterator[ConformanceCase]:
    """Generate cases with distinct scores, because the order of equal ones is undefined."""
    rng = np.random.Generator(np.random.PCG64(5))
    for name, boxes, classes, most, each, threshold in (
        ("few", 12, 3, 5, 3, -100.0),
        ("none", 4, 2, 3, 2, 2.0),
        ("open", 6, 3, 16, 4, 0.4),
    ):
        pairs = np.repeat(rng.uniform(0.2, 0.8, (boxes // 2, 4)), 2, axis=0)
        anchors = (pairs + rng.uniform(0, 0.01, pairs.shape)).astype(np.float32)
        scores = rng.permutation(boxes * (classes + 1)).reshape(1, boxes, classes + 1) / 64
        inputs = (
            CaseTensor((1, boxes, 4), "float32"),
            CaseTensor(scores.shape, "float32", data=scores.astype(np.float32)),
            CaseTensor((boxes, 4), "float32", data=anchors),
        )
        outputs = tuple(
            CaseTensor(shape, "float32") for shape in ((1, most, 4), (1, most), (1, most), (1,))
        )
        options = {
            "max_detections": most, "max_classes_per_detection": 1, "detections_per_class": each,
            "use_regular_nms": True, "nms_score_threshold": threshold, "nms_iou_threshold": 0.5,
            "num_classes": classes, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0,
            "w_scale": 5.0,
        }  # fmt: skip
        yield ConformanceCase(
            f"{name}_float32", detection_postprocess.NAME, inputs, outputs, options
        )


CASES: CaseTable = {"detections": _postprocess_cases, "detections_by_class": _nms_per_class_cases}
