"""Operators between DequantizeLinear and QuantizeLinear as operators on the integers.

In: a node whose inputs are reals that stored integers stand for (stored.py), and what follows it.
Out: the stored result of the QuantizeLinear behind it, or None where the node must work on reals.
Moves of elements need no QuantizeLinear: they give reals of the same scaling. Functions of one
element become a table made by their definition. Convolutions, products, sums and means are ours:
they round a fixed-point factor where ONNX Runtime rounds a float, so a value may differ by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.context import Importer, NodeContext
from firmwright.frontends.onnx.emitter import Const, Tensor
from firmwright.frontends.onnx.operators.convolutions import geometry, image_conv
from firmwright.frontends.onnx.operators.pools import average_of_integers
from firmwright.frontends.onnx.operators.reductions import joined_axes
from firmwright.frontends.onnx.stored import Known, Real, Scaling, Stored
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import Value
from firmwright.ir.graph.opdef import Array, NotSupportedError

MOVES = frozenset({
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool",
    "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
FUNCTIONS = frozenset({
    "Abs", "Celu", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip

Take = Callable[[NodeContext, Sequence[Known | None], Scaling, str], Tensor | None]


def _integers(known: Known | None) -> Value | None:
    if isinstance(known, Real) and isinstance(known.source, Stored):
        return known.source.value
    return None


def _weights(known: Known | None, axis: int) -> Const | None:
    """Constant int8 around 0, with one scale or one for each index of `axis`."""
    if not isinstance(known, Real) or not isinstance(known.source, Const):
        return None
    quant = known.source.quantization
    assert quant is not None  # by construction
    good = known.source.array.dtype == np.int8 and not any(quant.zero_points)
    return known.source if good and quant.axis in (None, axis) else None


# ---- moves -------------------------------------------------------------------------------------


def moved(importer: Importer, c: NodeContext, known: Sequence[Known | None]) -> list[Real] | None:
    """The node's results as reals, made by moving the integers; None where that is not exact."""
    reals = [item for item in known if isinstance(item, Real)]
    sources = [item.source for item in reals if isinstance(item.source, Stored)]
    if not sources or len(sources) != len(reals):
        return None
    quants = {source.quantization for source in sources}
    if len(quants) != 1 or not _copies(c, known):
        return None
    inputs = tuple(value if (value := _integers(item)) is not None else item for item in known)
    if any(isinstance(item, Stored | Real) for item in inputs):
        return None
    given = tuple(item for item in inputs if not isinstance(item, Stored | Real))
    if c.node.op_type == "Pad":
        given = given[:2] if len(given) < 4 else (*given[:2], None, given[3])
    found = importer(replace(c, inputs=given))
    results: list[Tensor] = [found] if isinstance(found, Value | Const) else list(found)
    return [Real(Stored(c.emit.value(item), sources[0].is_unsigned)) for item in results]


def _copies(c: NodeContext, known: Sequence[Known | None]) -> bool:
    """Whether every result is one of the inputs' elements."""
    match c.node.op_type:
        case "Resize":
            return bool(c.attr("mode", "nearest") == "nearest")
        case "Pad":
            value = known[2] if len(known) > 2 else None
            zero = value is None or (isinstance(value, Const) and not value.array.any())
            return zero and c.attr("mode", "constant") == "constant"
        case "MaxPool" | "Dropout" | "Split":
            return c.node.op_type == "Split" or len([n for n in c.outputs if n]) == 1
    return True


# ---- functions of one element ------------------------------------------------------------------


def by_table(
    importer: Importer, c: NodeContext, known: Sequence[Known | None], target: Scaling
) -> Tensor | None:
    """The function of all 256 values, by its definition."""
    x = _integers(known[0])
    if x is None or any(item is not None and not isinstance(item, Const) for item in known[1:]):
        return None
    quant = x.type.quantization
    assert quant is not None  # by construction
    reals = Scaling(quant.scales[0], quant.zero_points[0], False).reals()
    constants = tuple(item for item in known[1:] if item is None or isinstance(item, Const))
    found = importer(replace(c, inputs=(Const(reals, "every value"), *constants)))
    return _looked_up(c, x, found.array, target) if isinstance(found, Const) else None


def _looked_up(c: NodeContext, x: Value, reals: Array, target: Scaling) -> Tensor:
    table = c.emit.const(target.quantized(reals), "table")
    return c.emit.call("byte_table", [x, table], {}, like=target.type)


def rescaled(c: NodeContext, x: Value, target: Scaling) -> Value:
    """The integers that QuantizeLinear makes of the reals that x stands for."""
    quant = x.type.quantization
    assert quant is not None  # by construction
    if quant == target.quantization:
        return x
    reals = Scaling(quant.scales[0], quant.zero_points[0], False).reals()
    return c.emit.value(_looked_up(c, x, reals, target))


# ---- convolutions and products -----------------------------------------------------------------


def _conv(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    x, w = _integers(known[0]), _weights(known[1], 0)
    if x is None or w is None or len(x.type.shape) > 4 or len(x.type.shape) != w.array.ndim:
        return None
    bias = _bias(known[2] if len(known) > 2 else None, x, w)
    if bias is None:
        return None
    window = geometry(c, w.shape[2:], x.type.shape[2:])
    groups = int(c.attr("group", 1))
    return image_conv(c, x, w, bias, window, groups, target.type, activation)


def _bias(known: Known | None, x: Value, w: Const) -> Const | None:
    """The bias in int32, in steps of the input's scale times the weights'."""
    x_quant, quant = x.type.quantization, w.quantization
    assert x_quant is not None
    assert quant is not None
    channels = w.shape[0]
    steps = np.array(quant.scales, np.float64) * x_quant.scales[0]
    scales = tuple(float(np.float32(step)) for step in steps)
    made = Quantization(scales, (0,) * len(scales), None if len(scales) == 1 else 0)
    if known is None:
        return Const(np.zeros(channels, np.int32), f"{w.name}/bias", made)
    if isinstance(known, Real) and isinstance(known.source, Const):
        found = known.source
        is_same = found.array.dtype == np.int32 and found.quantization is not None and np.allclose(
            np.broadcast_to(found.quantization.scales, (channels,)),
            np.broadcast_to(steps, (channels,)),
            rtol=1e-5,
        )  # fmt: skip
        if is_same and not any(found.quantization.zero_points if found.quantization else ()):
            return Const(found.array.reshape(-1), found.name, made)
    if isinstance(known, Const) and known.array.size == channels:
        whole = np.rint(known.array.reshape(-1).astype(np.float64) / steps)
        if np.abs(whole).max(initial=0) < 1 << 30:
            return Const(whole.astype(np.int32), known.name, made)
    return None


def _dense(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    """Gemm and MatMul whose second operand is known."""
    is_gemm = c.node.op_type == "Gemm"
    transposed = is_gemm and bool(c.attr("transB", 0))
    x, w = _integers(known[0]), _weights(known[1], 0 if transposed else 1)
    scaled = c.attr("alpha", 1.0) != 1 or c.attr("beta", 1.0) != 1 or c.attr("transA", 0)
    if x is None or w is None or w.array.ndim != 2 or len(x.type.shape) < 2 or scaled:
        return None
    quant = w.quantization
    assert quant is not None  # by construction
    rows = w.array if transposed else w.array.T
    axis = None if quant.axis is None else 0
    weights = Const(np.ascontiguousarray(rows), w.name, replace(quant, axis=axis))
    bias = _bias(known[2] if len(known) > 2 else None, x, weights)
    if bias is None:
        return None
    attrs: dict[str, Attr] = {"activation": activation, "keep_dims": True}
    return c.emit.call("fully_connected", [x, weights, bias], attrs, like=target.type)


# ---- sums, means, softmax ----------------------------------------------------------------------


def _sum_of_two(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    operands: list[Tensor] = []
    for item in known:
        value = _integers(item)
        if value is not None:
            operands.append(value)
        elif isinstance(item, Real) and isinstance(item.source, Const):
            quant = item.source.quantization
            if item.source.array.dtype != np.int8 or quant is None or quant.axis is not None:
                return None
            operands.append(item.source)
    if len(operands) != 2:
        return None
    op = {"Add": "add", "Sub": "sub", "Mul": "mul"}[c.node.op_type]
    return c.emit.call(op, operands, {"activation": activation}, like=target.type)


def _mean(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    x = _integers(known[0])
    if x is None or activation != "none" or any(isinstance(k, Real) for k in known[1:]):
        return None
    axes: tuple[int, ...] | None = tuple(range(2, len(x.type.shape)))
    keep = True
    if c.node.op_type == "ReduceMean":
        constants = tuple(item for item in known[1:] if item is None or isinstance(item, Const))
        axes, keep = joined_axes(replace(c, inputs=(x, *constants))), bool(c.attr("keepdims", 1))
    if not axes:
        return None
    return c.emit.call("mean", [x], {"axes": axes, "keep_dims": keep}, like=target.type)


def _average(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    x = _integers(known[0])
    if x is None or activation != "none" or x.type.quantization != target.quantization:
        return None
    return average_of_integers(replace(c, inputs=(x,)))


def _joined(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    """A Concat of tensors with scales of their own."""
    values = [value for item in known if (value := _integers(item)) is not None]
    if len(values) != len(known) or activation != "none":
        return None
    axis = int(c.attr("axis")) % len(values[0].type.shape)
    same = [rescaled(c, value, target) for value in values]
    return c.emit.call("concatenation", same, {"axis": axis}, like=target.type)


def _softmax(
    c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    x = _integers(known[0])
    fits = (target.scale, target.zero_point, activation) == (1 / 256, INT8.min, "none")
    if x is None or not fits:
        return None
    rank = len(x.type.shape)
    axis = int(c.attr("axis", -1)) % rank
    if axis == rank - 1:
        return c.emit.call("softmax", [x], {"beta": 1.0}, like=target.type)
    order = [*(k for k in range(rank) if k != axis), axis]
    last = c.emit.transpose(x, order)
    made = c.emit.call("softmax", [last], {"beta": 1.0}, like=target.type)
    return c.emit.transpose(made, [order.index(k) for k in range(rank)])


TAKES: Mapping[str, Take] = {
    "Add": _sum_of_two,
    "AveragePool": _average,
    "Concat": _joined,
    "Conv": _conv,
    "Gemm": _dense,
    "GlobalAveragePool": _mean,
    "MatMul": _dense,
    "Mul": _sum_of_two,
    "ReduceMean": _mean,
    "Softmax": _softmax,
    "Sub": _sum_of_two,
}


def tried(
    take: Take, c: NodeContext, known: Sequence[Known | None], target: Scaling, activation: str
) -> Tensor | None:
    """As `take`; None where our operator does not take the call."""
    before = len(c.emit.calls)
    try:
        return take(c, known, target, activation)
    except NotSupportedError:
        del c.emit.calls[before:]
        return None
