"""Outputs of ONNX-ML classifiers: labels, and scores after the post-transform.

Labels are integers; string labels have been replaced by class indices (preprocess.py).
Source of the semantics: ONNX-ML's `post_transform`; ONNX Runtime for a single score of
two classes.
"""

from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT64
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import (
    Importer,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.ir.graph.attributes.values import ArgMinMaxAttrs

_LOGISTIC = "1.0 / (1.0 + exp(-a))"
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def ml_importers(importers: Mapping[str, Importer]) -> dict[str, Importer]:
    """Return ONNX-ML's importers; invalid attributes raise NotSupportedError."""
    table: dict[str, Importer] = {}
    for name, importer in importers.items():
        table[f"ai.onnx.ml:{name}"] = _check_attributes(importer)
    return table


def _check_attributes(importer: Importer) -> Importer:
    def run(c: NodeContext) -> Results | OnnxValue:
        try:
            return importer(c)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            what = f"attributes that do not fit each other ({error})"
            raise NotSupportedError(what) from error

    return run


def float_rows(c: NodeContext, index: int = 0) -> OnnxValue:
    x, shape = c.emit.cast(c.input(index), FLOAT32), c.shape(index)
    return c.emit.reshape(x, (1, *shape)) if len(shape) == 1 else x


def apply_post_transform(c: NodeContext, scores: OnnxValue) -> OnnxValue:
    name = _post_transform_name(c)
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return c.emit.expression(_LOGISTIC, scores)
    return _row_softmax(c, scores, name == "SOFTMAX_ZERO")


def _post_transform_name(c: NodeContext) -> str:
    # The newest operator has numbers; ONNX Runtime swaps the standard's 1 and 2.
    value = c.attr("post_transform", "NONE")
    name = "NONE" if value == 0 else str(value)
    if name not in _TRANSFORMS:
        raise NotSupportedError(f"scores through {name}")
    return name


def _row_softmax(c: NodeContext, scores: OnnxValue, keeps_zeros: bool) -> OnnxValue:
    """Return the softmax along rows; with `keeps_zeros`, zero scores stay zero."""
    formula = "exp(a - b)"
    if keeps_zeros:
        formula = "where(abs(a) > 0.0000001, exp(a - b), a * exp(-b))"
    highest = c.emit.reduction("a", "max", (1,), scores)
    raised = c.emit.expression(formula, scores, highest)
    total = c.emit.reduction("a", "add", (1,), raised)
    return c.emit.expression("a / b", raised, total)


def class_labels(c: NodeContext) -> tuple[int, ...]:
    numbers = c.attr("classlabels_int64s") or c.attr("classlabels_ints")
    return tuple(numbers or range(len(c.attr("classlabels_strings") or ())))


def gather_labels(c: NodeContext, places: OnnxValue) -> OnnxValue:
    """Return the labels of class numbers."""
    labels = class_labels(c)
    if labels == tuple(range(len(labels))):
        return places
    table = c.emit.const(np.array(labels, np.int64), "labels")
    return c.emit.gather_along(table, 0, places)


def labels_and_scores(
    c: NodeContext, scores: OnnxValue, is_positive: bool = False
) -> Results:
    """Return (labels, scores); a single score of two classes is the second class's.

    If `is_positive`, this score p is a probability, and the score of the first class is
    1 - p.
    """
    rows, count = scores.shape
    if count > 1:
        first_best = ArgMinMaxAttrs(axis=1, least=False, last=False)
        places = c.emit.call("arg_min_max", scores, attrs=first_best, result=INT64)
        return gather_labels(c, places), apply_post_transform(c, scores)
    second = c.emit.reshape(scores, (rows,))
    limit = 0.5 if is_positive else 0.0
    place = c.emit.expression(f"where(a > {limit}, 1.0, 0.0)", second)
    places = c.emit.cast(place, INT64)
    return gather_labels(c, places), _binary_scores(c, scores, is_positive)


def _binary_scores(c: NodeContext, score: OnnxValue, is_positive: bool) -> OnnxValue:
    if is_positive:
        return c.emit.concat([c.emit.expression("1.0 - a", score), score], 1)
    name = _post_transform_name(c)
    parts = [c.emit.expression("-a", score), score]
    if name == "LOGISTIC":
        return c.emit.concat([c.emit.expression(_LOGISTIC, part) for part in parts], 1)
    both = c.emit.concat(parts, 1)
    if name == "NONE":
        return both
    return _row_softmax(c, both, name == "SOFTMAX_ZERO")
