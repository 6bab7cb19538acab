"""Post-processing of detections: TFLite's with anchors, ONNX's NonMaxSuppression."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="detection",
    attributes={
        f"{__name__}.attributes.DetectionsAttrs": "detections",
        f"{__name__}.attributes.DetectionsByClassAttrs": "detections_by_class",
        f"{__name__}.attributes.SuppressionAttrs": "non_max_suppression",
    },
    operators=(f"{__name__}.postprocess", f"{__name__}.suppression"),
    conformance_cases=(f"{__name__}.conformance_cases",),
    tflite_importers=(f"{__name__}.importers",),
    onnx_importers=(f"{__name__}.onnx_importers",),
)
