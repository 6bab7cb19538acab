"""Matrix products and attention."""

import math

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.operators.shapes import transpose
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators


def _linear(t: NodeTranslation) -> str:
    x, shape = t.tensor("input"), t.shape("input")
    if len(shape) < 2:
        x = t.reshape(x, (1, *shape))
    y = t.emit("Gemm", x, t.tensor("weight"), t.optional("bias"), transB=1)
    return t.reshape(y, t.output_shape()) if len(shape) < 2 else y


def _product(t: NodeTranslation, a: str, b: str, bias: str = "") -> str:
    """Multiply matrices; a transposed factor is read as it is stored."""
    value = t.node.args.get(b)
    source = t.writer.transposed.get(value.name) if isinstance(value, Ref) else None
    if source is not None:
        return t.emit("Gemm", t.tensor(a), source, bias, transB=1)
    if bias:
        return t.emit("Gemm", t.tensor(a), t.tensor(b), bias)
    return t.emit("MatMul", t.tensor(a), t.tensor(b))


def _bmm(t: NodeTranslation) -> str:
    names = ("mat2", "other", "vec", "tensor")
    other = next(name for name in names if name in t.node.args)
    return t.emit("MatMul", t.tensor("self"), t.tensor(other))


def _addmm(t: NodeTranslation) -> str:
    if t.arg("alpha", 1) != 1 or t.arg("beta", 1) != 1:
        y = t.emit("MatMul", t.tensor("mat1"), t.tensor("mat2"))
        y = t.emit("Mul", y, t.real(t.arg("alpha", 1)))
        addend = t.emit("Mul", t.tensor("self"), t.real(t.arg("beta", 1)))
        return t.emit("Add", addend, y)
    return _product(t, "mat1", "mat2", t.tensor("self"))


def _attention(t: NodeTranslation) -> str:
    """Multiply softmax(query key^T scale + mask) by value, each head by itself."""
    if t.arg("dropout_p", 0.0):
        raise NotSupportedError(
            "dropout of a model in training mode; call model.eval() first"
        )
    query, key = t.shape("query"), t.shape("key")
    q = t.tensor("query")
    k = t.tensor("key")
    v = t.tensor("value")
    if t.arg("enable_gqa", False) and query[-3] != key[-3]:
        k = _repeated_heads(t, k, t.shape("key"), query[-3])
        v = _repeated_heads(t, v, t.shape("value"), query[-3])
        key = (*key[:-3], query[-3], *key[-2:])
    scale = t.arg("scale")
    factor = t.real(1 / math.sqrt(query[-1]) if scale is None else scale)
    perm = [*range(len(key) - 2), len(key) - 1, len(key) - 2]
    scores = t.emit("Mul", t.emit("MatMul", q, transpose(t, k, perm)), factor)
    lowest = t.real(-np.inf)
    if t.arg("is_causal", False):
        allowed = np.tril(np.ones((query[-2], key[-2]), bool))
        scores = t.emit("Where", allowed, scores, lowest)
    elif t.has("attn_mask") and t.type_of("attn_mask").dtype == "bool":
        scores = t.emit("Where", t.tensor("attn_mask"), scores, lowest)
    elif t.has("attn_mask"):
        scores = t.emit("Add", scores, t.tensor("attn_mask"))
    return t.emit("MatMul", t.emit("Softmax", scores, axis=-1), v)


def _repeated_heads(
    t: NodeTranslation, x: str, shape: tuple[int, ...], heads: int
) -> str:
    own = shape[-3]
    wide = t.reshape(x, (*shape[:-3], own, 1, *shape[-2:]))
    spread = np.array((*shape[:-3], own, heads // own, *shape[-2:]), np.int64)
    return t.reshape(t.emit("Expand", wide, spread), (*shape[:-3], heads, *shape[-2:]))


TRANSLATORS: Translators = {
    "addmm": _addmm,
    "bmm": _bmm,
    "dot": _bmm,
    "einsum": lambda t: t.emit(
        "Einsum", *t.tensors("tensors"), equation=t.arg("equation")
    ),
    "linear": _linear,
    "matmul": _bmm,
    "mm": lambda t: _product(t, "self", "mat2"),
    "mv": _bmm,
    "scaled_dot_product_attention": _attention,
}
