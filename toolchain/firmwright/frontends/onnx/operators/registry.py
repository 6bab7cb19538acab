"""The ONNX importers of this package, and why other operators are not supported."""

from collections.abc import Mapping
from functools import cache

import firmwright.frontends.onnx.operators as package
from firmwright.base.errors import OPERATOR_IS_UNSUPPORTED
from firmwright.base.extensions import merge_tables
from firmwright.base.operator_texts import read_operator_texts
from firmwright.frontends.onnx.node_context import Importer


@cache
def onnx_importers() -> Mapping[str, Importer]:
    """Merge the tables `IMPORTERS` of this package and of extensions.

    They map OPERATOR or DOMAIN:OPERATOR to an importer.
    """
    return merge_tables(
        package, "IMPORTERS", lambda extension: extension.onnx_importers
    )


_REASONS = read_operator_texts(__file__, "reasons")


def unsupported_reason(op: str) -> str:
    return _REASONS.get(op, OPERATOR_IS_UNSUPPORTED)
