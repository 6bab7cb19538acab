"""Reductions, softmax and normalizations."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators


def _axes(t: NodeTranslation) -> Any:
    """Return the axes to reduce as a constant, or None for all of them."""
    rank, axes = len(t.shape("self")), t.ints("dim")
    if not axes:
        return None
    return np.array(sorted(axis % max(rank, 1) for axis in axes), np.int64)


def _reduce(op: str, t: NodeTranslation) -> str:
    x = t.as_dtype("self", t.dtype())
    if not t.shape("self"):
        return x
    return t.emit(op, x, _axes(t), keepdims=int(t.arg("keepdim", False)))


def _mean(t: NodeTranslation) -> str:
    shape = t.shape("self")
    axes = t.ints("dim")
    keep = int(t.arg("keepdim", False))
    images = [axis % len(shape) for axis in axes] == list(range(2, len(shape)))
    if len(shape) == 4 and images:
        # Classifiers pool in this form, which quantized models compute with integers.
        y = t.emit("GlobalAveragePool", t.as_dtype("self", t.dtype()))
        return y if keep else t.reshape(y, shape[:2])
    return _reduce("ReduceMean", t)


def _extreme(op: str, arg: str, t: NodeTranslation) -> Sequence[str]:
    if t.has("other"):
        kind = t.dtype()
        two = {"ReduceMax": "Max", "ReduceMin": "Min"}[op]
        return [t.emit(two, t.as_dtype("self", kind), t.as_dtype("other", kind))]
    value = _reduce(op, t)
    if len(t.node.outputs) < 2:
        return [value]
    axis = t.axis("dim", len(t.shape("self")))
    keep = int(t.arg("keepdim", False))
    return [value, t.emit(arg, t.tensor("self"), axis=axis, keepdims=keep)]


def _arg_extreme(op: str, t: NodeTranslation) -> str:
    shape, keep = t.shape("self"), int(t.arg("keepdim", False))
    if t.has("dim"):
        x, axis = t.tensor("self"), t.axis("dim", len(shape))
        return t.emit(op, x, axis=axis, keepdims=keep)
    flat = t.reshape(t.tensor("self"), (math.prod(shape),))
    return t.reshape(t.emit(op, flat, axis=0, keepdims=0), t.output_shape())


def _variance(root: bool, t: NodeTranslation) -> str:
    shape = t.shape("self")
    axes = t.ints("dim") or list(range(len(shape)))
    count = math.prod(shape[axis] for axis in axes)
    correction = t.arg("correction", int(t.arg("unbiased", True)))
    x, places = t.tensor("self"), np.array(axes, np.int64)
    distance = t.emit("Sub", x, t.emit("ReduceMean", x, places, keepdims=1))
    keep = int(t.arg("keepdim", False))
    total = t.emit("ReduceSumSquare", distance, places, keepdims=keep)
    y = t.emit("Div", total, t.real(max(count - correction, 0)))
    return t.emit("Sqrt", y) if root else y


def _norm(t: NodeTranslation) -> str:
    order = t.arg("ord", t.arg("p", 2))
    if order not in (1, 2):
        raise NotSupportedError(f"the norm of order {order}")
    return _reduce(f"ReduceL{int(order)}", t)


def _any(op: str, t: NodeTranslation) -> str:
    x = t.tensor("self")
    if t.type_of("self").dtype != "bool":
        x = t.emit("Not", t.emit("Equal", x, np.zeros((), t.type_of("self").dtype)))
    return t.emit(op, x, _axes(t), keepdims=int(t.arg("keepdim", False)))


def _top_k(t: NodeTranslation) -> Sequence[str]:
    axis = t.axis("dim", len(t.shape("self")), -1)
    largest = int(t.arg("largest", True))
    count = np.array([t.arg("k")], np.int64)
    return t.emit_all("TopK", 2, t.tensor("self"), count, axis=axis, largest=largest)


def _parameters(t: NodeTranslation, count: int) -> tuple[str, str]:
    """Return scale and bias of `count` channels, which are 1 and 0 if absent."""
    scale, bias = t.optional("weight"), t.optional("bias")
    return (
        scale or t.constant(t.real(np.ones(count))),
        bias or t.constant(t.real(np.zeros(count))),
    )


def _batch_norm(t: NodeTranslation) -> Sequence[str]:
    if t.node.target.endswith(".no_stats"):
        return [_instance_norm(t)]  # images of a batch of one
    if t.arg("training", False) or not t.has("running_mean"):
        raise NotSupportedError(
            "normalization of a model in training mode; use model.eval()"
        )
    scale, bias = _parameters(t, t.shape("input")[1])
    y = t.emit(
        "BatchNormalization",
        t.tensor("input"),
        scale,
        bias,
        t.tensor("running_mean"),
        t.tensor("running_var"),
        epsilon=float(t.arg("eps", 1e-5)),
    )
    return [y]


def _layer_norm(t: NodeTranslation) -> Sequence[str]:
    shape = t.ints("normalized_shape")
    scale = t.optional("weight") or t.constant(t.real(np.ones(shape)))
    epsilon = float(t.arg("eps", 1e-5))
    x, bias = t.tensor("input"), t.optional("bias")
    outputs = [k for k, name in enumerate(t.node.outputs) if name]
    count = max(outputs, default=0) + 1
    return t.emit_all(
        "LayerNormalization", count, x, scale, bias, axis=-len(shape), epsilon=epsilon
    )


def _rms_norm(t: NodeTranslation) -> str:
    shape = t.ints("normalized_shape")
    scale = t.optional("weight") or t.constant(t.real(np.ones(shape)))
    epsilon = float(t.arg("eps", float(np.finfo(t.dtype()).eps)))
    return t.emit(
        "RMSNormalization", t.tensor("input"), scale, axis=-len(shape), epsilon=epsilon
    )


def _group_norm(t: NodeTranslation) -> Sequence[str]:
    name = "input" if "input" in t.node.args else "self"
    scale, bias = _parameters(t, t.shape(name)[1])
    groups = t.arg("num_groups", t.arg("group"))
    epsilon = float(t.arg("eps", 1e-5))
    x = t.tensor(name)
    y = t.emit("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=epsilon)
    return [y]


def _instance_norm(t: NodeTranslation) -> str:
    if not t.arg("use_input_stats", True) or t.shape("input")[0] != 1:
        raise NotSupportedError(
            "instance normalization of several images, or with recorded statistics"
        )
    scale, bias = _parameters(t, t.shape("input")[1])
    epsilon = float(t.arg("eps", 1e-5))
    x = t.tensor("input")
    return t.emit("InstanceNormalization", x, scale, bias, epsilon=epsilon)


TRANSLATORS: Translators = {
    "all": partial(_any, "ReduceMin"),
    "amax": partial(_reduce, "ReduceMax"),
    "amin": partial(_reduce, "ReduceMin"),
    "any": partial(_any, "ReduceMax"),
    "argmax": partial(_arg_extreme, "ArgMax"),
    "argmin": partial(_arg_extreme, "ArgMin"),
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "linalg_vector_norm": _norm,
    "logsumexp": partial(_reduce, "ReduceLogSumExp"),
    "max": partial(_extreme, "ReduceMax", "ArgMax"),
    "mean": _mean,
    "min": partial(_extreme, "ReduceMin", "ArgMin"),
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "norm": _norm,
    "prod": partial(_reduce, "ReduceProd"),
    "rms_norm": _rms_norm,
    "std": partial(_variance, True),
    "sum": partial(_reduce, "ReduceSum"),
    "topk": _top_k,
    "var": partial(_variance, False),
}
