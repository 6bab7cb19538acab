"""ONNX-ML's linear models, support vector machines and features, as in ONNX Runtime."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import (
    Importer,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.operators.classifier_outputs import (
    apply_post_transform,
    class_labels,
    float_rows,
    labels_and_scores,
    ml_importers,
)
from firmwright.frontends.onnx.operators.pairwise_probabilities import (
    emit_class_probabilities,
    emit_pair_probabilities,
)
from firmwright.ir.graph.attributes.layers import FullyConnectedAttrs
from firmwright.ir.graph.attributes.movement import PadAttrs

_SOFTMAXES = ("SOFTMAX", "SOFTMAX_ZERO")


def _float_attr(c: NodeContext, name: str) -> Array:
    return np.asarray(c.attr(name) or (), np.float32)


def _product(c: NodeContext, x: OnnxValue, weights: Array, bias: Array) -> OnnxValue:
    w = c.emit.const(weights.astype(np.float32), "weights")
    b = c.emit.const(bias.astype(np.float32), "bias") if bias.size else None
    attrs = FullyConnectedAttrs(activation="none", keep_dims=False)
    return c.emit.call("fully_connected", x, w, b, attrs=attrs)


def _linear(c: NodeContext, outputs: int) -> OnnxValue:
    x = float_rows(c)
    weights = _float_attr(c, "coefficients").reshape(outputs, -1)
    if weights.shape[1] != x.shape[1]:
        raise NotSupportedError(
            f"{weights.shape[1]} coefficients of {x.shape[1]} features"
        )
    return _product(c, x, weights, _float_attr(c, "intercepts"))


def _linear_classifier(c: NodeContext) -> Results:
    classes = len(class_labels(c))
    count = _float_attr(c, "coefficients").size // c.shape(0)[-1]
    if count != classes and (count, classes) != (1, 2):
        raise NotSupportedError(f"{count} scores of {classes} classes")
    return labels_and_scores(c, _linear(c, count))


def _kernel(c: NodeContext, x: OnnxValue, vectors: Array) -> OnnxValue:
    gamma, shift, degree = (*c.attr("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    kind = str(c.attr("kernel_type", "LINEAR"))
    if kind == "RBF":
        rows, count = x.shape
        wide = c.emit.reshape(x, (rows, 1, count))
        points = c.emit.const(vectors[None].astype(np.float32), "vectors")
        square = "(a - b) * (a - b)"
        distances = c.emit.reduction(square, "add", (2,), wide, points, keep=False)
        return c.emit.expression(f"exp(a * {-gamma!r})", distances)
    dots = _product(c, x, vectors, np.zeros(0))
    match kind:
        case "LINEAR":
            return dots
        case "POLY":
            formula = f"pow(a * {gamma!r} + {shift!r}, {degree!r})"
            return c.emit.expression(formula, dots)
        case "SIGMOID":
            return c.emit.expression(f"tanh(a * {gamma!r} + {shift!r})", dots)
    raise NotSupportedError(f"support vectors of kind {kind}")


def _svm_regressor(c: NodeContext) -> OnnxValue:
    x = float_rows(c)
    coefficients = _float_attr(c, "coefficients")
    rho = _float_attr(c, "rho")
    supports = int(c.attr("n_supports", 0))
    if supports:
        x = _kernel(c, x, _float_attr(c, "support_vectors").reshape(supports, -1))
    score = _product(c, x, coefficients.reshape(1, -1), rho[:1])
    if c.attr("one_class", 0):
        score = c.emit.expression("where(a > 0.0, 1.0, -1.0)", score)
    return apply_post_transform(c, score)


def _svm_classifier(c: NodeContext) -> Results:
    counts = tuple(c.attr("vectors_per_class", ()))
    if not counts:
        return labels_and_scores(c, _linear(c, len(class_labels(c))))
    total = sum(counts)
    pairs = list(combinations(range(len(counts)), 2))
    vectors = _float_attr(c, "support_vectors").reshape(total, -1)
    coefficients = _float_attr(c, "coefficients").reshape(len(counts) - 1, total)
    starts = np.cumsum((0, *counts))
    weights = np.zeros((len(pairs), total), np.float32)
    for row, (i, j) in enumerate(pairs):
        mine = slice(starts[i], starts[i + 1])
        theirs = slice(starts[j], starts[j + 1])
        weights[row, mine] = coefficients[j - 1, mine]
        weights[row, theirs] = coefficients[i, theirs]
    kernels = _kernel(c, float_rows(c), vectors)
    scores = _product(c, kernels, weights, _float_attr(c, "rho"))
    labels, shown = _count_votes(c, scores, pairs)
    if c.attr("prob_a"):
        slopes, offsets = _float_attr(c, "prob_a"), _float_attr(c, "prob_b")
        if not len(slopes) == len(offsets) == len(pairs):
            what = f"{len(slopes)} slopes and {len(offsets)} offsets of probabilities"
            raise NotSupportedError(f"{what} of {len(pairs)} pairs")
        of_pairs = emit_pair_probabilities(c.emit, scores, slopes, offsets)
        shown = emit_class_probabilities(c.emit, of_pairs, pairs)
    elif len(pairs) == 1 and c.attr("post_transform") in _SOFTMAXES:
        # ONNX Runtime's are not those of the standard.
        raise NotSupportedError("scores of two classes through a softmax")
    return labels, apply_post_transform(c, shown)


def _count_votes(
    c: NodeContext, scores: OnnxValue, pairs: Sequence[tuple[int, int]]
) -> Results:
    """Return (labels, pair scores); a label is the first class with the most votes."""
    classes = pairs[-1][1] + 1
    if classes != len(class_labels(c)):
        raise NotSupportedError(f"support vectors of {classes} classes")
    signs = np.zeros((classes, len(pairs)), np.float32)
    for place, (i, j) in enumerate(pairs):
        signs[i, place], signs[j, place] = 1, -1
    won = c.emit.expression("where(a > 0.0, 1.0, -1.0)", scores)
    votes = _product(c, won, signs, np.zeros(0))
    labels, _ = labels_and_scores(c, votes) if classes > 1 else (votes, votes)
    if classes == 2:
        scores = c.emit.concat([c.emit.expression("-a", scores), scores], 1)
    return labels, scores


def _normalizer(c: NodeContext) -> OnnxValue:
    x = float_rows(c)
    match str(c.attr("norm", "MAX")):
        case "L1":
            norm = c.emit.reduction("abs(a)", "add", (1,), x)
        case "L2":
            square = c.emit.reduction("a * a", "add", (1,), x)
            norm = c.emit.expression("sqrt(a)", square)
        case "MAX":
            norm = c.emit.reduction("a", "max", (1,), x)
        case other:
            raise NotSupportedError(f"a norm {other}")
    return c.emit.expression("where(b != 0.0, a / b, a)", x, norm)


def _scaler(c: NodeContext) -> OnnxValue:
    tables = [c.emit.const(_float_attr(c, name), name) for name in ("offset", "scale")]
    return c.emit.expression("(a - b) * c", float_rows(c), *tables)


def _feature_vectorizer(c: NodeContext) -> OnnxValue:
    """Join rows of features as floats, each input cut or filled to its size."""
    parts: list[OnnxValue] = []
    sizes = c.attr("inputdimensions") or ()
    if not sizes or len(sizes) != len(c.inputs):
        raise NotSupportedError(f"{len(sizes)} sizes of {len(c.inputs)} inputs")
    for index, size in enumerate(sizes):
        rows = float_rows(c, index)
        count, *axes = rows.shape
        features = math.prod(axes)
        rows = c.emit.reshape(rows, (count, features))
        if size < features:
            rows = c.emit.slice_axis(rows, 1, 0, int(size))
        elif size > features:
            margins = (0, 0, 0, int(size) - features)
            rows = c.emit.call("pad", rows, attrs=PadAttrs(paddings=margins))
        parts.append(rows)
    return c.emit.concat(parts, 1)


def _extractor(c: NodeContext) -> OnnxValue:
    x = c.input(0)
    shape = x.shape
    if len(shape) == 1:
        x, shape = c.emit.reshape(x, (1, *shape)), (1, *shape)
    places = c.emit.reshape(c.input(1), (math.prod(c.shape(1)),))
    return c.emit.gather_along(x, len(shape) - 1, places)


def _imputer(c: NodeContext) -> OnnxValue:
    if c.dtype(0) == FLOAT32:
        values = _float_attr(c, "imputed_value_floats")
        missing = c.attr("replaced_value_float", 0.0)
        test = "a != a" if np.isnan(missing) else f"a == {missing!r}"
    else:
        values = np.asarray(c.attr("imputed_value_int64s") or (), np.int64)
        test = f"a == {int(c.attr('replaced_value_int64', 0))}"
    filler = c.emit.const(values, "imputed")
    return c.emit.expression(f"where({test}, b, a)", c.input(0), filler)


def _one_hot(c: NodeContext) -> OnnxValue:
    """Encode categories; an unknown one, an error without `zeros`, is all zeros."""
    categories = c.attr("cats_int64s")
    if not categories:
        raise NotSupportedError("categories that are strings")
    x = c.emit.cast(c.input(0), INT64)
    wide = c.emit.reshape(x, (*x.shape, 1))
    table = c.emit.const(np.array(categories, np.int64), "categories")
    return c.emit.expression("where(a == b, 1.0, 0.0)", wide, table)


def _label_encoder(c: NodeContext) -> OnnxValue:
    keys = _label_map(c, "keys")
    values = _label_map(c, "values")
    kind = "int64" if values.dtype == np.int64 else "float32"
    name = "default_int64" if kind == "int64" else "default_float"
    default = c.attr(name, -1 if kind == "int64" else -0.0)
    formula = f"{kind}({default!r})"
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        formula = f"where(a == {key!r}, {kind}({value!r}), {formula})"
    if len(keys) > 64:
        raise NotSupportedError(f"a map of {len(keys)} labels")
    return c.emit.expression(formula, c.input(0))


def _label_map(c: NodeContext, part: str) -> Array:
    for name, kind in ((f"{part}_int64s", np.int64), (f"{part}_floats", np.float32)):
        values: Any = c.attr(name)
        if values:
            return np.asarray(values, kind)
    raise NotSupportedError("labels that are strings")


IMPORTERS: Mapping[str, Importer] = ml_importers(
    {
        "ArrayFeatureExtractor": _extractor,
        "Binarizer": lambda c: c.emit.expression(
            f"where(a > {c.attr('threshold', 0.0)!r}, 1.0, 0.0)", c.input(0)
        ),
        "FeatureVectorizer": _feature_vectorizer,
        "Imputer": _imputer,
        "LabelEncoder": _label_encoder,
        "LinearClassifier": _linear_classifier,
        "LinearRegressor": lambda c: apply_post_transform(
            c, _linear(c, int(c.attr("targets", 1)))
        ),
        "Normalizer": _normalizer,
        "OneHotEncoder": _one_hot,
        "SVMClassifier": _svm_classifier,
        "SVMRegressor": _svm_regressor,
        "Scaler": _scaler,
    }
)
