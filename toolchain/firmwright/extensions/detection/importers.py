"""The importer of TFLite's custom operator for detections."""

from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.extensions.detection.attributes import (
    DetectionsAttrs,
    DetectionsByClassAttrs,
)
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
)

_EACH_CLASS = 100


def _detections(context: ImportContext) -> ImportedCall:
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

    attrs = DetectionsAttrs(
        scales=(
            option("y_scale"),
            option("x_scale"),
            option("h_scale"),
            option("w_scale"),
        ),
        score_threshold=option("nms_score_threshold"),
        iou_threshold=option("nms_iou_threshold"),
        num_classes=int(option("num_classes")),
        max_detections=int(option("max_detections")),
    )
    if min(attrs.scales) <= 0 or attrs.max_detections < 1:
        raise NotSupportedError("detections with nonpositive scales or max_detections")
    if not by_class:
        return ImportedCall("detections", attrs, (0, 1, 2))
    each = options.get("detections_per_class", _EACH_CLASS)
    if not isinstance(each, int) or each < 1:
        raise NotSupportedError(f"detections with {each} per class")
    limited = DetectionsByClassAttrs(
        scales=attrs.scales,
        score_threshold=attrs.score_threshold,
        iou_threshold=attrs.iou_threshold,
        num_classes=attrs.num_classes,
        max_detections=attrs.max_detections,
        detections_per_class=each,
    )
    return ImportedCall("detections_by_class", limited, (0, 1, 2))


IMPORTERS: Mapping[str, Importer] = {
    "custom:TFLite_Detection_PostProcess": Importer(
        "detections", _detections, takes_uint8=True
    ),
}
