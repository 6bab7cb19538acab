"""Attributes of detection post-processing."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionsAttrs(OpAttrs):
    scales: tuple[float, float, float, float]
    """Units of the encoded boxes: y, x, height, width."""
    score_threshold: float
    """Least score of a detection."""
    iou_threshold: float
    """Greatest overlap (intersection over union) with a better detection."""
    num_classes: int
    """Classes, the last of the scores."""
    max_detections: int
    """Number of detections in the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionsByClassAttrs(DetectionsAttrs):
    detections_per_class: int
    """Detections of each class that are considered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionAttrs(OpAttrs):
    boxes_per_class: int
    """Boxes selected of each class and sample, at most the number of boxes."""
    iou_threshold: float
    """Greatest overlap (intersection over union) with a better box."""
    score_threshold: float
    """Scores of selected boxes are above it; -inf selects all."""
    center_point_box: bool
    """Whether boxes are given by center and size, not by corners."""
