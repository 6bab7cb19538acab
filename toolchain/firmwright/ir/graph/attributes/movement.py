"""Attributes of operators that move values or place them, without arithmetic."""

from dataclasses import dataclass
from typing import Literal, TypeGuard

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementAttrs(OpAttrs):
    """A data movement, which needs no code if its parts are views of the whole."""

    subviews_of: Literal["input", "output"] | None = None
    """Whether the outputs are views of the first input, or the inputs views of the
    output.
    """
    offsets: tuple[int, ...] = ()
    """Place of each view in the whole, in elements."""
    offset_steps: tuple[int, ...] = ()
    """How much each place grows with the size of a bounded axis; absent: not at all."""


def is_subview(attrs: OpAttrs) -> TypeGuard[MovementAttrs]:
    """Return whether the call needs no code, since its parts are views of the whole."""
    return isinstance(attrs, MovementAttrs) and attrs.subviews_of is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAttrs(MovementAttrs):
    axis: int
    """Axis along which the parts lie, or from which elements are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeAttrs(MovementAttrs):
    perm: tuple[int, ...]
    """Axis of the input for each axis of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedSliceAttrs(MovementAttrs):
    """A slice, with one number for each axis of the input in the first three lists."""

    begin: tuple[int, ...]
    """Place of the first element."""
    strides: tuple[int, ...]
    """Distance of the elements; it may be negative."""
    counts: tuple[int, ...]
    """Number of elements."""
    shrunk: tuple[int, ...]
    """Axes with one element that the output lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAttrs(AxisAttrs):
    sizes: tuple[int, ...]
    """Length of each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherAttrs(AxisAttrs):
    indices: tuple[int, ...]
    """Places of the elements."""
    shape: tuple[int, ...]
    """Shape of the indices, which replaces the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileAttrs(MovementAttrs):
    multiples: tuple[int, ...]
    """Number of copies along each axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastAttrs(MovementAttrs):
    shape: tuple[int, ...]
    """Shape of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseAttrs(MovementAttrs):
    axes: tuple[int, ...]
    """Axes whose elements are read from the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPadAttrs(MovementAttrs):
    paddings: tuple[int, ...]
    """Elements before and after each axis."""
    skip: Literal[0, 1]
    """Elements at the border that are not repeated: 1 reflects, 0 is symmetric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSpaceAttrs(MovementAttrs):
    block: int
    """Height and width of the square of pixels that one pixel's channels become, or the
    reverse.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpaceAttrs(MovementAttrs):
    block: tuple[int, ...]
    """Lengths of the block whose elements are in different batches."""
    margins: tuple[int, ...]
    """Elements before and after each of these axes: padding, or what is cropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeAttrs(MovementAttrs):
    size: tuple[int, int]
    """Height and width of the output."""
    align_corners: bool
    """The corners of input and output have the same centers."""
    half_pixel_centers: bool
    """The center of a pixel is half a pixel from its corner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampleAttrs(OpAttrs):
    axis: int
    """Axis that is resampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PadAttrs(OpAttrs):
    paddings: tuple[int, ...]
    """Elements before and after each axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeAttrs(OpAttrs):
    shape: tuple[int, ...]
    """Shape of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantAttrs(ShapeAttrs):
    values: tuple[int | float, ...]
    """The elements in C order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicGatherAttrs(OpAttrs):
    mode: Literal["along", "elements", "slices"]
    """What an index selects: a slice along the axis, or an element; `slices`: a row of
    indices.
    """
    axis: int | None = None
    """Axis that the indices refer to; mode `slices` has none."""
    batch_dims: int | None = None
    """Leading axes that data and indices share; none if it is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicScatterAttrs(DynamicGatherAttrs):
    step: Literal["none", "add", "mul", "min", "max"]
    """How an update is combined with the element at its place; `none` replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseSequenceAttrs(OpAttrs):
    batch_dim: int
    """Axis of the batches, each with a length of its own."""
    seq_dim: int
    """Axis whose first elements are reversed."""
