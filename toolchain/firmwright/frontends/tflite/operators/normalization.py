"""Softmax and normalizations."""

import math
from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    import_activation,
    plain_importer,
    require_tensors,
    unsigned_attr,
)
from firmwright.ir.core import Attrs


def _softmax(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    beta = float(context.node.options["beta"])  # type: ignore[arg-type]  # a number by the schema
    if not (math.isfinite(beta) and beta > 0):
        raise NotSupportedError(f"a beta of {beta}")
    return ImportedCall("softmax", {"beta": beta}, (0,))


def _local_response_attrs(context: ImportContext) -> Attrs:
    options = context.node.options
    radius = options["radius"]
    if not isinstance(radius, int) or radius < 0:
        raise NotSupportedError(f"a radius of {radius}")
    numbers = {name: float(options[name]) for name in ("bias", "alpha", "beta")}  # type: ignore[arg-type]  # ensured by the schema
    return {"radius": radius, **numbers}


def _l2_attrs(context: ImportContext) -> Attrs:
    if import_activation(context.node.options["fused_activation_function"]) != "none":
        raise NotSupportedError("an L2 normalization with an activation")
    return unsigned_attr(context)


IMPORTERS: Mapping[str, Importer] = {
    "L2_NORMALIZATION": plain_importer("l2_normalization", 1, _l2_attrs),
    "LOCAL_RESPONSE_NORMALIZATION": plain_importer(
        "local_response_normalization", 1, _local_response_attrs
    ),
    "LOG_SOFTMAX": plain_importer("log_softmax", 1, lambda context: {"beta": 1.0}),
    "SOFTMAX": Importer("softmax", _softmax),
}
