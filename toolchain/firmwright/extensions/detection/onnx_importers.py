"""ONNX's NonMaxSuppression, which has a row for each selected box."""

from collections.abc import Mapping

from firmwright.base.dtypes import INT32, INT64
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.detection.attributes import SuppressionAttrs
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.ir.graph import TensorType


def _suppress(c: NodeContext) -> OnnxValue:
    limit = int(c.scalar(2, "numbers of boxes")) if c.has(2) else 0
    each = min(limit, c.shape(0)[1])
    if each < 1:
        raise NotSupportedError("a selection of no boxes")
    iou = float(c.scalar(3, "thresholds")) if c.has(3) else 0.0
    least = float(c.scalar(4, "thresholds")) if c.has(4) else float("-inf")
    attrs = SuppressionAttrs(
        boxes_per_class=each,
        iou_threshold=iou,
        score_threshold=least,
        center_point_box=bool(c.attr("center_point_box", 0)),
    )
    kinds = TensorType((), INT64), TensorType((), INT32)
    rows, count = c.emit.multi_call(
        "non_max_suppression", c.input(0), c.input(1), declared=kinds, attrs=attrs
    )
    return c.emit.counted(rows, 0, count)


IMPORTERS: Mapping[str, Importer] = {"NonMaxSuppression": _suppress}
