"""TFLite's post-processing of detections: anchors and non-maximum suppression."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="detection",
    attributes={
        f"{__name__}.attributes.DetectionsAttrs": "detections",
        f"{__name__}.attributes.DetectionsByClassAttrs": "detections_by_class",
    },
    operators=(f"{__name__}.postprocess",),
    conformance_cases=(f"{__name__}.conformance_cases",),
    tflite_importers=(f"{__name__}.importers",),
)
