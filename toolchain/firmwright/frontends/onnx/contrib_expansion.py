"""Expansion of ONNX Runtime's own operators (com.microsoft) into standard nodes.

Integer operators become DequantizeLinear, the float operator and QuantizeLinear, so the
fusion rules alone define their results. Semantics: ONNX Runtime's documentation of
contrib operators.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from firmwright.frontends.onnx import protobuf
from firmwright.frontends.onnx.protobuf import Message, SyntheticNode

_WINDOW = (
    "auto_pad",
    "ceil_mode",
    "count_include_pad",
    "dilations",
    "group",
    "kernel_shape",
    "pads",
    "strides",
)


@dataclass(frozen=True, slots=True)
class _Expansion:
    """A node of ONNX Runtime and the nodes that replace it."""

    node: Message
    attrs: Mapping[str, Any]
    nodes: list[Message] = field(default_factory=list)

    def inputs(self, *indices: int) -> list[str]:
        """Return the names of inputs, "" for omitted ones."""
        names = list(self.node.input)
        return [names[index] if index < len(names) else "" for index in indices]

    def output(self, index: int = 0) -> str:
        names = self.node.output
        return str(names[index]) if index < len(names) else ""

    def emit(
        self,
        op: str,
        *inputs: str,
        result: str = "",
        keep: Sequence[str] = (),
        **attrs: Any,
    ) -> str:
        name = result or f"{self.output()}/{op}{len(self.nodes)}"
        attrs |= {key: self.attrs[key] for key in keep if key in self.attrs}
        operands = list(inputs)
        while operands and not operands[-1]:
            operands.pop()
        helper = protobuf.onnx_package().helper
        self.nodes.append(helper.make_node(op, operands, [name], **attrs))
        return name

    def number(self, value: float) -> str:
        return self.emit("Constant", value_float=value)

    def dequantize(self, first: int, **attrs: Any) -> str:
        """Dequantize the inputs (values, scale, zero point) from index `first`."""
        operands = self.inputs(first, first + 1, first + 2)
        return self.emit("DequantizeLinear", *operands, **attrs)

    def quantize(self, x: str, first: int, result: str) -> str:
        """Quantize x by the inputs (scale, zero point) from index `first`."""
        scale, zero = self.inputs(first, first + 1)
        if not zero:
            # The type is that of input 0, which its zero point has too.
            zero = self.emit("Sub", *self.inputs(2, 2))
        return self.emit("QuantizeLinear", x, scale, zero, result=result)

    def channels_first(self, compute: Callable[[str, str], str]) -> None:
        """Define the output by `compute(input 0, result's name)`, channels first."""
        (x,) = self.inputs(0)
        if not self.attrs.get("channels_last", 0):
            compute(x, self.output())
            return
        rank = len(self.attrs.get("kernel_shape", (0, 0))) + 2
        moved = self.emit("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
        y = compute(moved, "")
        self.emit("Transpose", y, perm=[0, *range(2, rank), 1], result=self.output())

    def activate(self, x: str) -> None:
        op = self.attrs.get("activation") or "Identity"
        values = self.attrs.get("activation_params")
        if not values:
            alpha, beta = map(self.attrs.get, ("activation_alpha", "activation_beta"))
            values = [value for value in (alpha, beta) if value is not None]
        limits = map(self.number, values if op == "Clip" else ())
        names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(op, ())
        attrs = dict(zip(names, values, strict=False))
        self.emit(op, x, *limits, result=self.output(), **attrs)


_Rule: TypeAlias = Callable[[_Expansion], object]

# ---- integers ------------------------------------------------------------------------


def _qlinear(
    op: str, operands: Sequence[int], e: _Expansion, keep: Sequence[str] = ()
) -> None:
    """Compute floats from `operands`, each followed by its scale and zero point."""
    y = e.emit(op, *map(e.dequantize, operands), keep=keep)
    e.quantize(y, operands[-1] + 3, e.output())


def _qlinear_concat(e: _Expansion) -> None:
    reals = map(e.dequantize, range(2, len(e.node.input), 3))
    e.quantize(e.emit("Concat", *reals, keep=("axis",)), 0, e.output())


def _qlinear_where(e: _Expansion) -> None:
    y = e.emit("Where", *e.inputs(0), e.dequantize(1), e.dequantize(4))
    e.quantize(y, 7, e.output())


def _qlinear_pool(op: str, e: _Expansion) -> None:
    def pool(x: str, result: str) -> str:
        real = e.emit("DequantizeLinear", x, *e.inputs(1, 2))
        return e.quantize(e.emit(op, real, keep=_WINDOW), 3, result)

    e.channels_first(pool)


def _qlinear_conv(e: _Expansion) -> None:
    operands = e.inputs(*range(1, 9))
    e.channels_first(
        lambda x, y: e.emit("QLinearConv", x, *operands, result=y, keep=_WINDOW)
    )


def _nhwc_max_pool(e: _Expansion) -> None:
    image = _Expansion(e.node, {**e.attrs, "channels_last": 1}, e.nodes)
    image.channels_first(lambda x, y: e.emit("MaxPool", x, result=y, keep=_WINDOW))


def _qlinear_softmax(e: _Expansion) -> None:
    if e.attrs.get("opset", 13) >= 13:
        _qlinear("Softmax", (0,), e, ("axis",))
        return
    # Before opset 13, Softmax joined the axes from `axis`.
    rows = e.emit("Flatten", *e.inputs(0), axis=e.attrs.get("axis", 1))
    real = e.emit("DequantizeLinear", rows, *e.inputs(1, 2))
    y = e.quantize(e.emit("Softmax", real, axis=-1), 3, "")
    e.emit("Reshape", y, e.emit("Shape", *e.inputs(0)), result=e.output())


def _qgemm(e: _Expansion) -> None:
    axis = 0 if e.attrs.get("transB", 0) else 1
    operands = [e.dequantize(0), e.dequantize(3, axis=axis)]
    if all(e.inputs(6)):
        scale = e.emit("Mul", *e.inputs(1, 4))
        if e.attrs.get("alpha", 1.0) != 1:
            scale = e.emit("Mul", scale, e.number(e.attrs["alpha"]))
        operands.append(e.emit("DequantizeLinear", *e.inputs(6), scale, axis=-1))
    is_float = not all(e.inputs(7))
    keep = ("alpha", "transA", "transB")
    result = e.output() if is_float else ""
    y = e.emit("Gemm", *operands, keep=keep, result=result)
    if not is_float:
        e.quantize(y, 7, e.output())


def _q_attention(e: _Expansion) -> None:
    x, weights = e.inputs(0, 3)[0], e.inputs(1, 4, 7)
    real = e.emit("DequantizeLinear", x, *e.inputs(3, 6))
    w = e.emit("DequantizeLinear", *weights, axis=1)
    e.nodes.append(_renamed(e, "Attention", [real, w, *e.inputs(2, 5, 8)]))


def _renamed(e: _Expansion, op: str, inputs: Sequence[str]) -> Message:
    node = protobuf.onnx_package().NodeProto()
    node.CopyFrom(e.node)
    node.op_type, node.input[:] = op, inputs
    return node


def _integer_matmul(
    e: _Expansion, operands: Sequence[str], scales: Sequence[str], bias: str
) -> None:
    """Multiply integers (a, b, zero points of a and b) and scales; add the bias."""
    total = e.emit("MatMulInteger", *operands)
    total = e.emit("Cast", total, to=protobuf.dtype_code("float32"))
    y = e.emit("Mul", total, e.emit("Mul", *scales), result="" if bias else e.output())
    if bias:
        e.emit("Add", y, bias, result=e.output())


def _dynamic_quantize_matmul(e: _Expansion) -> None:
    stem = e.output()
    a = f"{stem}/a"
    scale = f"{stem}/a_scale"
    zero = f"{stem}/a_zero_point"
    make_node = protobuf.onnx_package().helper.make_node
    node = make_node("DynamicQuantizeLinear", e.inputs(0), [a, scale, zero])
    e.nodes.append(node)
    b, b_scale, b_zero, bias = e.inputs(1, 2, 3, 4)
    _integer_matmul(e, [a, b, zero, b_zero], [scale, b_scale], bias)


# ---- floats --------------------------------------------------------------------------


def _gelu(e: _Expansion, **attrs: Any) -> None:
    x, bias = e.inputs(0, 1)
    e.emit("Gelu", e.emit("Add", x, bias) if bias else x, result=e.output(), **attrs)


def _fused_conv(e: _Expansion) -> None:
    y = e.emit("Conv", *e.inputs(0, 1, 2), keep=_WINDOW)
    addend = e.inputs(3)[0]
    e.activate(e.emit("Add", y, addend) if addend else y)


def _fused_gemm(e: _Expansion) -> None:
    keep = ("alpha", "beta", "transA", "transB")
    e.activate(e.emit("Gemm", *e.inputs(0, 1, 2), keep=keep))


def _skip_normalization(op: str, bias: int, e: _Expansion) -> None:
    """Normalize the sum of input, skip and bias; output 3 is the sum."""
    x, skip, scale = e.inputs(0, 1, 2)
    biases = [name for name in e.inputs(bias) if name]
    total = e.emit("Add", x, skip, result="" if biases else e.output(3))
    if biases:
        total = e.emit("Add", total, *biases, result=e.output(3))
    shift = e.inputs(3) if op == "LayerNormalization" else []
    epsilon = e.attrs.get("epsilon", 1e-12)
    e.emit(op, total, scale, *shift, result=e.output(), epsilon=epsilon)


def _embed_layer_normalization(e: _Expansion) -> None:
    ids, segments, words, places, kinds, scale, shift, mask, indices = e.inputs(
        *range(9)
    )
    if not indices:
        axis = e.emit("Constant", value_int=1)
        step = e.emit("Constant", value_int=1)
        length = e.emit("Gather", e.emit("Shape", ids), axis)
        indices = e.emit("Range", e.emit("Constant", value_int=0), length, step)
    word = e.emit("Gather", words, ids)
    place = e.emit("Gather", places, indices)
    total = e.emit("Add", word, place)
    if segments:
        total = e.emit("Add", total, e.emit("Gather", kinds, segments))
    total = e.emit("Identity", total, result=e.output(2))
    epsilon = e.attrs.get("epsilon", 1e-12)
    e.emit(
        "LayerNormalization", total, scale, shift, result=e.output(), epsilon=epsilon
    )
    if e.output(1):
        counted = mask or e.emit("Mul", ids, e.emit("Sub", ids, ids))
        axes = e.emit("Constant", value_ints=[1])
        e.emit("ReduceSum", counted, axes, keepdims=0, result=e.output(1))


def _group_query_attention(e: _Expansion) -> None:
    """Write keys and values into caches, and attend to all up to the new ones."""
    x, key, value, *caches, ends, _, cosine, sine = e.inputs(*range(9))
    heads = e.attrs["num_heads"]
    shared = e.attrs["kv_num_heads"]
    one = e.emit("Constant", value_ints=[1])
    axis = e.emit("Constant", value_ints=[1])
    length = e.emit("Gather", e.emit("Shape", x), axis)
    total = e.emit("Add", e.emit("Cast", ends, to=protobuf.dtype_code("int64")), one)
    first = e.emit("Sub", total, length)

    def split(tensor: str, count: int) -> str:
        shape = e.emit("Constant", value_ints=[0, 0, count, -1])
        return e.emit("Transpose", e.emit("Reshape", tensor, shape), perm=[0, 2, 1, 3])

    if key:
        parts = [split(x, heads), split(key, shared), split(value, shared)]
    else:
        sizes = e.emit("Constant", value_ints=[heads, shared, shared])
        parts = [f"{e.output()}/{name}" for name in ("query", "key", "value")]
        packed = split(x, heads + 2 * shared)
        helper = protobuf.onnx_package().helper
        e.nodes.append(helper.make_node("Split", [packed, sizes], parts, axis=1))
    if e.attrs.get("do_rotary", 0):
        zero = e.emit("Constant", value_int=0)
        step = e.emit("Constant", value_int=1)
        steps = e.emit("Range", zero, e.emit("Squeeze", length), step)
        places = e.emit("Add", e.emit("Unsqueeze", first, one), steps)
        pairs = e.attrs.get("rotary_interleaved", 0)
        for k in range(2):
            angles = (cosine, sine, places)
            parts[k] = e.emit("RotaryEmbedding", parts[k], *angles, interleaved=pairs)
    for k, cache in enumerate(caches, 1):
        row, y = parts[k], e.output(k)
        if cache:
            parts[k] = e.emit("TensorScatter", cache, row, first, result=y, axis=2)
        else:
            parts[k] = e.emit("Identity", row, result=y)
    y = e.emit("Attention", *parts, "", "", "", total, keep=("scale",), is_causal=1)
    shape = e.emit("Constant", value_ints=[0, 0, -1])
    rows = e.emit("Transpose", y, perm=[0, 2, 1, 3])
    e.emit("Reshape", rows, shape, result=e.output())


_RULES: Mapping[str, _Rule] = {
    "BiasGelu": _gelu,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": partial(_gelu, approximate="tanh"),
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "Gelu": _gelu,
    "GroupQueryAttention": _group_query_attention,
    "MatMulIntegerToFloat": lambda e: _integer_matmul(
        e, e.inputs(0, 1, 4, 5), e.inputs(2, 3), e.inputs(6)[0]
    ),
    "NhwcMaxPool": _nhwc_max_pool,
    "QAttention": _q_attention,
    "QGemm": _qgemm,
    "QLinearAdd": partial(_qlinear, "Add", (0, 3)),
    "QLinearAveragePool": partial(_qlinear_pool, "AveragePool"),
    "QLinearConcat": _qlinear_concat,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": partial(_qlinear_pool, "GlobalAveragePool"),
    "QLinearLeakyRelu": partial(_qlinear, "LeakyRelu", (0,), keep=("alpha",)),
    "QLinearMul": partial(_qlinear, "Mul", (0, 3)),
    "QLinearSigmoid": partial(_qlinear, "Sigmoid", (0,)),
    "QLinearSoftmax": _qlinear_softmax,
    "QLinearWhere": _qlinear_where,
    "QuickGelu": lambda e: e.emit(
        "Swish", *e.inputs(0), result=e.output(), alpha=e.attrs.get("alpha", 1.702)
    ),
    "SkipLayerNormalization": partial(_skip_normalization, "LayerNormalization", 4),
    "SkipSimplifiedLayerNormalization": partial(
        _skip_normalization, "RMSNormalization", 3
    ),
}
EXPANDED_OPERATORS = tuple(f"com.microsoft:{name}" for name in _RULES)
_STATISTICS = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")


_ATTENTION_LIMITS = (
    "local_window_size",
    "softcap",
    "smooth_softmax",
    "kv_cache_bit_width",
)


def expand_contrib_operators(
    nodes: Sequence[Message],
) -> tuple[tuple[Message, ...], dict[str, str]]:
    expanded: list[Message] = []
    titles: dict[str, str] = {}
    for node in nodes:
        if not _is_expandable(node):
            expanded.append(node)
            continue
        attrs = {item.name: protobuf.attribute_value(item) for item in node.attribute}
        expansion = _Expansion(node, attrs)
        _RULES[node.op_type](expansion)
        expanded += expansion.nodes
        for new in expansion.nodes:
            titles |= dict.fromkeys(new.output, node.op_type)
    return tuple(expanded), titles


def _is_expandable(node: Message) -> bool:
    if isinstance(node, SyntheticNode) or node.domain != "com.microsoft":
        return False
    if not node.output:
        return False
    if node.op_type in _STATISTICS and any(node.output[1:3]):
        return False  # mean and deviation, which inference does not use
    if node.op_type == "GroupQueryAttention":
        return _is_plain_query_attention(node)
    return node.op_type in _RULES


def _is_plain_query_attention(node: Message) -> bool:
    settings = {item.name: protobuf.attribute_value(item) for item in node.attribute}
    if any(node.input[9:]):
        return False
    return all(settings.get(name, 0) in (0, -1) for name in _ATTENTION_LIMITS)
