"""Reasons why certain ONNX operators are not supported."""

from __future__ import annotations

from collections.abc import Mapping

UNKNOWN = "this operator is not supported"
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
    return next((why for why, names in _REASONS.items() if op in names.split()), UNKNOWN)
