"""Softmax and normalizations."""

import math
from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    float_option,
    fused_activation,
    is_unsigned,
    plain_importer,
    require_tensors,
)
from firmwright.ir.graph.attributes.values import (
    L2NormalizationAttrs,
    LocalResponseNormalizationAttrs,
    SoftmaxAttrs,
)


def _softmax(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    beta = float_option(context, "beta")
    if not (math.isfinite(beta) and beta > 0):
        raise NotSupportedError(f"a beta of {beta}")
    return ImportedCall("softmax", SoftmaxAttrs(beta=beta), (0,))


def _local_response_attrs(context: ImportContext) -> LocalResponseNormalizationAttrs:
    radius = context.node.options["radius"]
    if not isinstance(radius, int) or radius < 0:
        raise NotSupportedError(f"a radius of {radius}")
    return LocalResponseNormalizationAttrs(
        radius=radius,
        bias=float_option(context, "bias"),
        alpha=float_option(context, "alpha"),
        beta=float_option(context, "beta"),
    )


def _l2_attrs(context: ImportContext) -> L2NormalizationAttrs:
    if fused_activation(context) != "none":
        raise NotSupportedError("an L2 normalization with an activation")
    return L2NormalizationAttrs(unsigned=is_unsigned(context))


IMPORTERS: Mapping[str, Importer] = {
    "L2_NORMALIZATION": plain_importer("l2_normalization", 1, _l2_attrs),
    "LOCAL_RESPONSE_NORMALIZATION": plain_importer(
        "local_response_normalization", 1, _local_response_attrs
    ),
    "LOG_SOFTMAX": plain_importer(
        "log_softmax", 1, lambda context: SoftmaxAttrs(beta=1.0)
    ),
    "SOFTMAX": Importer("softmax", _softmax),
}
