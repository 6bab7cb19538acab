"""Scores to what classifiers of ONNX-ML give: a label, and scores through their last function.

Labels are whole numbers; of classes with names they are the places of the names
(frontends/onnx/strip_class_labels.py has put those into the model).
Source of the semantics: ONNX-ML's `post_transform`, ONNX Runtime for one score of two classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT64
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import OnnxValue, shape_of
from firmwright.frontends.onnx.node_context import Importer, NodeContext, Results
from firmwright.ir.core import Attr

_LOGISTIC = "1.0 / (1.0 + exp(-a))"
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def reject_invalid_attributes(importer: Importer) -> Importer:
    """The importer, refusing a node whose lists are missing or do not fit each other."""

    def run(c: NodeContext) -> Results | OnnxValue:
        try:
            return importer(c)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise NotSupportedError(f"attributes that do not fit each other ({error})") from error

    return run


def apply_post_transform(c: NodeContext, scores: OnnxValue) -> OnnxValue:
    """Scores through the node's `post_transform`."""
    name = post_transform_name(c)
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return c.emit.expression(_LOGISTIC, scores)
    return row_softmax(c, scores, name == "SOFTMAX_ZERO")


def post_transform_name(c: NodeContext) -> str:
    """The node's `post_transform`, one that we know."""
    # The newest operator has numbers. The standard's 1 and 2 are ONNX Runtime's 2 and 1.
    found = c.attr("post_transform", "NONE")
    name = "NONE" if found == 0 else str(found)
    if name not in _TRANSFORMS:
        raise NotSupportedError(f"scores through {name}")
    return name


def row_softmax(c: NodeContext, scores: OnnxValue, keeps_zeros: bool = False) -> OnnxValue:
    """Softmax along rows; with `keeps_zeros`, scores that are zero stay what they are."""
    top = row_reduction(c, "max", scores)
    formula = "exp(a - b)"
    if keeps_zeros:
        formula = "where(abs(a) > 0.0000001, exp(a - b), a * exp(-b))"
    raised = c.emit.expression(formula, scores, top)
    return c.emit.expression("a / b", raised, row_reduction(c, "add", raised))


def row_reduction(c: NodeContext, step: str, x: OnnxValue, formula: str = "a") -> OnnxValue:
    """The values of a formula joined along each row, which stays as one element."""
    attrs: dict[str, Attr] = {"formula": formula, "step": step, "axes": (1,), "keep_dims": True}
    return c.emit.call("reduction", [x], attrs)


def class_labels(c: NodeContext) -> tuple[int, ...]:
    """The classes' numbers: those of the file, or of names their places."""
    numbers = c.attr("classlabels_int64s") or c.attr("classlabels_ints")
    if numbers:
        return tuple(numbers)
    return tuple(range(len(c.attr("classlabels_strings") or ())))


def gather_labels(c: NodeContext, places: OnnxValue) -> OnnxValue:
    """The labels of classes, given by their places (int64, [rows])."""
    labels = class_labels(c)
    if labels == tuple(range(len(labels))):
        return places
    table = c.emit.const(np.array(labels, np.int64), "labels")
    return c.emit.call("dynamic_gather", [table, places], {"mode": "along", "axis": 0})


def labels_and_scores(
    c: NodeContext, scores: OnnxValue, is_positive: bool = False
) -> Sequence[OnnxValue]:
    """(labels, scores); one score of two classes is the second one's.

    `is_positive` says that such a score is a probability: the first class has what is left of 1.
    """
    rows, count = shape_of(scores)
    if count > 1:
        attrs: dict[str, Attr] = {"axis": 1, "least": False, "last": False}
        places = c.emit.call("arg_min_max", [scores], attrs, dtype=INT64)
        return gather_labels(c, places), apply_post_transform(c, scores)
    second = c.emit.reshape(scores, (rows,))
    limit = 0.5 if is_positive else 0.0
    places = c.emit.cast(c.emit.expression(f"where(a > {limit}, 1.0, 0.0)", second), INT64)
    return gather_labels(c, places), _binary_scores(c, scores, is_positive)


def _binary_scores(c: NodeContext, score: OnnxValue, is_positive: bool) -> OnnxValue:
    """The scores of both classes from that of the second."""
    if is_positive:
        return c.emit.concat([c.emit.expression("1.0 - a", score), score], 1)
    name = post_transform_name(c)
    other = c.emit.expression("-a", score)
    if name == "LOGISTIC":
        parts = [c.emit.expression(_LOGISTIC, part) for part in (other, score)]
        return c.emit.concat(parts, 1)
    both = c.emit.concat([other, score], 1)
    return both if name == "NONE" else row_softmax(c, both, name == "SOFTMAX_ZERO")
