"""The ONNX importers of this package, and why other operators are not supported."""

from collections.abc import Mapping
from functools import cache

import firmwright.frontends.onnx.operators as package
from firmwright.base.errors import OPERATOR_IS_UNSUPPORTED
from firmwright.base.extensions import merge_tables
from firmwright.base.text_sections import read_sections
from firmwright.frontends.onnx.node_context import Importer


@cache
def onnx_importers() -> Mapping[str, Importer]:
    """Merge the tables `IMPORTERS` of this package and of extensions.

    They map OPERATOR or DOMAIN:OPERATOR to an importer.
    """
    return merge_tables(
        package, "IMPORTERS", lambda extension: extension.onnx_importers
    )


_REASONS = read_sections(__file__, ".txt")["reasons"].splitlines()


def unsupported_reason(op: str) -> str:
    for row in _REASONS:
        why, names = row.split(": ")
        if op in names.split():
            return why
    return OPERATOR_IS_UNSUPPORTED
