"""Standard operators as opsets 7 to 12 define them, rewritten as opset 13 does.

`REWRITES` is the table: an operator that an opset redefined, that opset, and the rule
for nodes of older opsets. Operators without a rule have only gained element types,
attributes whose defaults are the older meaning, or negative axes since opset 7;
tests/onnx/test_old_opsets.py holds the schemas of the package onnx against it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import (
    RAISED_BY,
    TENSOR_BYTES_MAX,
    scaled_limit,
)
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.graph_facts import GraphFacts
from firmwright.frontends.onnx.protobuf import (
    Message,
    attribute_value,
    dtype_code,
    onnx_package,
)
from firmwright.frontends.onnx.shape_inference import bodies
from firmwright.ir.graph import unique_name

OPSET_MIN = 13
"""The opset of all rewritten nodes, and the oldest that importers know."""
_SAMPLES_MAX = 256
"""The samples of a scan, each of which has nodes of its own."""


@dataclass(slots=True)
class _Rewriting:
    """A node of an older opset, and the nodes that replace it."""

    node: Message
    attrs: dict[str, Any]
    facts: GraphFacts
    nodes: list[Message] = field(default_factory=list)

    @property
    def x(self) -> str:
        return str(self.node.input[0])

    @property
    def y(self) -> str:
        return str(self.node.output[0])

    def constant(self, part: str, values: Any, dtype: str = "int64") -> str:
        """Emit a constant that is called after the result."""
        helpers = onnx_package().numpy_helper
        tensor = helpers.from_array(np.array(values, dtype))
        return self.emit_part("Constant", (), part, value=tensor)

    def emit_part(self, op: str, inputs: Iterable[str], part: str, **attrs: Any) -> str:
        """Emit a node whose result is called after that of the node replaced."""
        result = unique_name(f"{self.y}/{part}", self.facts.names)
        self.emit(op, inputs, result, **attrs)
        return result

    def emit(self, op: str, inputs: Iterable[str], result: str, **attrs: Any) -> None:
        make_node = onnx_package().helper.make_node
        self.nodes.append(make_node(op, list(inputs), [result], **attrs))

    def replace(self, inputs: Iterable[str], op: str = "") -> None:
        """Emit the node itself with other inputs and with `attrs`."""
        outputs, helper = list(self.node.output), onnx_package().helper
        node = helper.make_node(
            op or self.node.op_type,
            list(inputs),
            outputs,
            name=self.node.name,
            **self.attrs,
        )
        self.nodes.append(node)


Rule: TypeAlias = Callable[[_Rewriting], None]


def _integers_as_inputs(*names: str) -> Rule:
    """Return the rule of attributes that became the inputs from 1 on."""

    def rule(r: _Rewriting) -> None:
        inputs = list(r.node.input)
        for name in names:
            values = r.attrs.pop(name, None)
            if values is None:
                inputs.append("")
            else:
                inputs.append(r.constant(name, np.atleast_1d(values)))
        while not inputs[-1]:
            inputs.pop()
        r.replace(inputs)

    return rule


def _clip(r: _Rewriting) -> None:
    limits = ["", ""]
    for place, name in enumerate(("min", "max")):
        if name in r.attrs:
            limits[place] = r.constant(name, r.attrs.pop(name), r.facts.dtype(r.x))
    r.replace([r.x, *limits])


def _pad(r: _Rewriting) -> None:
    pads = r.constant("pads", r.attrs.pop("pads"))
    value = r.constant("value", r.attrs.pop("value", 0.0), r.facts.dtype(r.x))
    r.replace([r.x, pads, value])


def _dropout(r: _Rewriting) -> None:
    """Emit a Dropout outside of training, whose older masks are 0 in ONNX Runtime."""
    r.emit("Dropout", [r.x], r.y)
    if len(r.node.output) > 1 and r.node.output[1]:
        mask = str(r.node.output[1])
        zeros = r.emit_part("Less", [r.x, r.x], "zeros")
        r.emit("Cast", [zeros], mask, to=dtype_code(r.facts.dtype(mask)))


def _batch_normalization(r: _Rewriting) -> None:
    """Normalize by statistics of channels or, if not `spatial`, of single elements."""
    if r.attrs.pop("spatial", 1):
        r.replace(r.node.input)
        return
    x, scale, bias, middle, variance = r.node.input
    epsilon = r.constant("epsilon", r.attrs.get("epsilon", 1e-5), r.facts.dtype(x))
    stable = r.emit_part("Add", [variance, epsilon], "stable")
    deviation = r.emit_part("Sqrt", [stable], "deviation")
    factor = r.emit_part("Div", [scale, deviation], "factor")
    centered = r.emit_part("Sub", [x, middle], "centered")
    scaled = r.emit_part("Mul", [centered, factor], "scaled")
    r.emit("Add", [scaled, bias], r.y)


def _of_blocks(r: _Rewriting) -> None:
    """Compute a Softmax, LogSoftmax or Hardmax of all axes from `axis` on."""
    op, axis = r.node.op_type, r.attrs.get("axis", 1)
    shape = r.facts.shape(r.x)
    if shape:
        rank = len(shape)
        first = normalize_axis(axis, rank)
        wide = [k for k in range(first, rank) if shape[k] != 1]
        if len(wide) <= 1:
            r.emit(op, [r.x], r.y, axis=wide[0] if wide else rank - 1)
            return
    sizes = r.emit_part("Shape", [r.x], "shape")
    matrix = r.emit_part("Flatten", [r.x], "matrix", axis=axis)
    rows = r.emit_part(op, [matrix], "rows", axis=1)
    r.emit("Reshape", [rows, sizes], r.y)


def _resize(r: _Rewriting) -> None:
    """Resize with output i at i / scale.

    Nearest neighbor is the element before, but along axes that shrink ONNX Runtime
    takes the one after.
    """
    mode = r.attrs.get("mode", "nearest")
    scales = r.attrs.get("scales")
    if scales is None:
        scales = r.facts.constant(r.node.input[1])
    if scales is None:
        if mode == "nearest" and r.node.op_type == "Resize":
            what = "a resize of opset 10 whose scales are not constant"
            raise NotSupportedError(what)
        _emit_resize(r, r.node.input[1], mode, "floor")
        return
    factors = np.asarray(scales, np.float32)
    is_nearest, shrinks = mode == "nearest", bool((factors < 1).any())
    if is_nearest and shrinks and (factors > 1).any():
        _gather_nearest(r, factors)
        return
    constant = r.constant("scales", factors, "float32")
    _emit_resize(r, constant, mode, "ceil" if is_nearest and shrinks else "floor")


def _emit_resize(r: _Rewriting, scales: str, mode: str, nearest: str) -> None:
    r.emit(
        "Resize",
        [r.x, "", scales],
        r.y,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


def _gather_nearest(r: _Rewriting, factors: Array) -> None:
    """Take the nearest elements of axes that grow and of axes that shrink."""
    shape, x = r.facts.shape(r.x), r.x
    lengths = [size for size in shape or () if isinstance(size, int)]
    if not shape or len(lengths) < len(shape):
        raise NotSupportedError(
            "a resize of opset 10 that shrinks one axis and enlarges another, of an "
            "unknown shape"
        )
    resized = [axis for axis, factor in enumerate(factors) if factor != 1]
    for axis in resized:
        size, factor = np.float32(lengths[axis]), factors[axis]
        count = int(size * factor)
        if count > scaled_limit(TENSOR_BYTES_MAX):
            raise NotSupportedError(f"an axis of {count:,} elements ({RAISED_BY})")
        places = np.arange(count, dtype=np.float32) / factor
        nearest = np.ceil(places) if factor < 1 else np.floor(places)
        indices = r.constant(f"places{axis}", np.minimum(nearest, size - 1))
        if axis == resized[-1]:
            r.emit("Gather", [x, indices], r.y, axis=axis)
        else:
            x = r.emit_part("Gather", [x, indices], f"axis{axis}", axis=axis)


def _scan(r: _Rewriting) -> None:
    """Scan each sample of axis 0 alone; the first input, lengths, must be absent."""
    lengths, *inputs = r.node.input
    shape = r.facts.shape(inputs[-1])
    if lengths or not shape or not isinstance(shape[0], int):
        raise NotSupportedError("a scan of opset 8 with lengths, or of an unknown size")
    most = scaled_limit(_SAMPLES_MAX)
    if not 1 <= shape[0] <= most:
        raise NotSupportedError(
            f"a scan of {shape[0]:,} samples, not 1 to {most} ({RAISED_BY})"
        )
    directions = r.attrs.pop("directions", None)
    if directions is not None:
        r.attrs["scan_input_directions"] = directions
    helper, results = onnx_package().helper, list(r.node.output)
    axis = r.constant("axis", [0])
    samples: list[list[str]] = []
    for sample in range(shape[0]):
        index = r.constant(f"index{sample}", sample)
        own: list[str] = []
        for name in inputs:
            own.append(r.emit_part("Gather", [name, index], f"sample{sample}", axis=0))
        parts: list[str] = []
        for name in results:
            parts.append(unique_name(f"{name}/scanned{sample}", r.facts.names))
        r.nodes.append(helper.make_node("Scan", own, parts, **r.attrs))
        wide: list[str] = []
        for part in parts:
            wide.append(r.emit_part("Unsqueeze", [part, axis], f"row{sample}"))
        samples.append(wide)
    for name, rows in zip(results, zip(*samples, strict=True), strict=True):
        r.emit("Concat", rows, name, axis=0)


def _scatter(r: _Rewriting) -> None:
    r.replace(r.node.input, op="ScatterElements")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The opset that redefined an operator, and the rule for older nodes."""

    since: int
    rule: Rule


REWRITES: Mapping[str, Rewrite] = {
    "BatchNormalization": Rewrite(9, _batch_normalization),
    "Clip": Rewrite(11, _clip),
    "Dropout": Rewrite(12, _dropout),
    "Hardmax": Rewrite(13, _of_blocks),
    "LogSoftmax": Rewrite(13, _of_blocks),
    "Pad": Rewrite(11, _pad),
    "ReduceSum": Rewrite(13, _integers_as_inputs("axes")),
    "Resize": Rewrite(11, _resize),
    "Scan": Rewrite(9, _scan),
    "Scatter": Rewrite(11, _scatter),
    "Slice": Rewrite(10, _integers_as_inputs("starts", "ends", "axes")),
    "Softmax": Rewrite(13, _of_blocks),
    "Split": Rewrite(13, _integers_as_inputs("split")),
    "Squeeze": Rewrite(13, _integers_as_inputs("axes")),
    "TopK": Rewrite(10, _integers_as_inputs("k")),
    "Unsqueeze": Rewrite(13, _integers_as_inputs("axes")),
    "Upsample": Rewrite(10, _resize),
}


def rewritten_nodes(
    nodes: Iterable[Message], opset: int, facts: GraphFacts
) -> Iterator[Message]:
    """Yield the nodes of an older opset as those of OPSET_MIN, with their bodies.

    Raise NotSupportedError for a node without an equivalent.
    """
    for node in nodes:
        for item in node.attribute:
            for graph in bodies(item):
                inner = list(rewritten_nodes(graph.node, opset, facts))
                del graph.node[:]
                graph.node.extend(inner)
        rewrite = REWRITES.get(node.op_type)
        is_standard = node.domain in ("", "ai.onnx")
        if rewrite is None or opset >= rewrite.since or not is_standard:
            yield node
            continue
        attrs = {item.name: attribute_value(item) for item in node.attribute}
        rewriting = _Rewriting(node, attrs, facts)
        try:
            rewrite.rule(rewriting)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            what = f"a node that opset {opset} does not define"
            raise NotSupportedError(what) from error
        yield from rewriting.nodes
