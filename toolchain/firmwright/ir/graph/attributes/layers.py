"""Attributes of convolutions, pools, fully connected and other layers."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from firmwright.ir.graph.attributes.base import OpAttrs

Activation: TypeAlias = Literal["none", "relu", "relu6", "relu_n1_to_1", "relu_0_to_1"]
PoolKind: TypeAlias = Literal["max", "average", "sum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationAttrs(OpAttrs):
    """An operator whose results an activation limits."""

    activation: Activation
    """The function that is applied to the results."""


def activation_of(attrs: OpAttrs) -> Activation:
    """Return the activation; operators without one count as having none."""
    return attrs.activation if isinstance(attrs, ActivationAttrs) else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAttrs(ActivationAttrs):
    """A window over the rows and columns of [batch, rows, columns, channels]."""

    stride: tuple[int, int]
    """Distance of neighboring windows, down and right."""
    dilation: tuple[int, int]
    """Distance of neighboring elements of a window, down and right."""
    padding: tuple[int, int, int, int]
    """Elements beyond the image: top, bottom, left, right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2DAttrs(WindowAttrs):
    unsigned: bool = False
    """The model's tensors are uint8, and the scales are rounded as for uint8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAttrs(WindowAttrs):
    size: tuple[int, int]
    """Height and width of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePoolAttrs(PoolAttrs):
    unsigned: bool = False
    """The model's tensors are uint8, and the mean is rounded as for uint8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeConvAttrs(ActivationAttrs):
    stride: tuple[int, int]
    """Distance of the results of neighboring inputs, down and right."""
    before: tuple[int, int]
    """Rows above and columns to the left that the result lacks."""
    unsigned: bool = False
    """The model's tensors are uint8, and the scales are rounded as for uint8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyConnectedAttrs(ActivationAttrs):
    keep_dims: bool
    """The result keeps the input's axes but the last; otherwise it is [rows, units]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridFullyConnectedAttrs(FullyConnectedAttrs):
    asymmetric: bool
    """Rows of the input are quantized with a zero point."""
    whole: bool = False
    """The whole input has one scale, as in ONNX; otherwise each row has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNdAttrs(OpAttrs):
    """A window over any number of axes, each with one number in every list."""

    stride: tuple[int, ...]
    """Distance of neighboring windows; of a transposed convolution, of neighboring
    inputs.
    """
    dilation: tuple[int, ...]
    """Distance of neighboring elements of a window."""
    before: tuple[int, ...]
    """Elements before the first one of the input that the first window covers."""
    outputs: tuple[int, ...]
    """Lengths of the result's axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNdAttrs(WindowNdAttrs):
    groups: int
    """Groups of channels, each convolved with filters of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNdAttrs(WindowNdAttrs):
    kind: PoolKind
    """What a window gives."""
    size: tuple[int, ...]
    """Lengths of the window."""
    padded: tuple[int, ...] | None = None
    """Elements (before, after) of each axis that an average counts beyond the input, or
    none.
    """
    term: str | None = None
    """Formula of what an element `a` adds to the sum; without it, the element."""
    final: str | None = None
    """Formula of the result from the sum or average `a`; without it, the sum or
    average.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMatmulAttrs(OpAttrs):
    adj_x: bool
    """The last two axes of the first input are exchanged."""
    adj_y: bool
    """The last two axes of the second input are exchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridBatchMatmulAttrs(BatchMatmulAttrs):
    asymmetric: bool
    """Rows of the first input are quantized with a zero point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionAttrs(OpAttrs):
    heads: int
    """Heads of the queries."""
    kv_heads: int
    """Heads of keys and values, each of which several heads of queries share."""
    scale: float
    """Factor of the scores."""
    causal: bool
    """A query uses no keys after its own position."""
    offset: int
    """Position of the first query among the keys."""
    heads_first: bool
    """Keys and values are [batch, heads, keys, size]; otherwise [batch, keys, heads *
    size].
    """
