"""The ONNX importers of this package, and reasons why other operators are not supported."""

from collections.abc import Mapping
from functools import cache

import firmwright.frontends.onnx.operators as package
from firmwright.base.errors import OPERATOR_IS_UNSUPPORTED
from firmwright.base.package_modules import merge_tables
from firmwright.frontends.onnx.node_context import Importer


@cache
def onnx_importers() -> Mapping[str, Importer]:
    """Merge the modules' `IMPORTERS`, which map OPERATOR or DOMAIN:OPERATOR to an importer."""
    return merge_tables(package, "IMPORTERS")


_REASONS: Mapping[str, str] = {
    "the number of results depends on the data": (
        "Compress NonMaxSuppression NonZero StringSplit TfIdfVectorizer Unique"
    ),
    "a training operator": "Adagrad Adam Gradient Momentum",
    "random numbers": (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    "tensors in lists": (
        "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
        "SequenceInsert SequenceLength SequenceMap SplitToSequence"
    ),
    "values that may be absent": "Optional OptionalGetElement OptionalHasElement",
    "texts": "RegexFullMatch StringConcat StringNormalizer",
    "images in files": "ImageDecoder",
}


def unsupported_reason(op: str) -> str:
    reasons = (why for why, names in _REASONS.items() if op in names.split())
    return next(reasons, OPERATOR_IS_UNSUPPORTED)
