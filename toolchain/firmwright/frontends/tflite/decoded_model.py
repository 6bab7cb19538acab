"""The decoded form of a model file that frontends pass to the operator importers.

A frontend guarantees that tensor indices are in range, nodes are in an executable
order, tensors are defined once, and constants and quantizations fit their tensors.
Importers must validate operator names, options, types and shapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.quant import Quantization
from firmwright.ir.core import Attrs, Span

NO_TENSOR = -1
INTEGER_RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int4": (-8, 7),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
"""The least and greatest value of quantized element types."""


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor of a subgraph.

    `dtype` may be unknown to `base/dtypes.py`. `buffer` holds the little-endian bytes
    of a constant. `shape_signature` is empty, or has -1 for sizes known only at run
    time; `shape` then has the exporter's assumptions, or -1 where it has none.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    buffer: bytes | None = None
    is_variable: bool = False
    is_sparse: bool = False
    shape_signature: tuple[int, ...] = ()

    @property
    def zero_points_out_of_range(self) -> tuple[int, ...]:
        if self.quantization is None or self.dtype not in INTEGER_RANGES:
            return ()
        low, high = INTEGER_RANGES[self.dtype]
        points = self.quantization.zero_points
        return tuple(point for point in points if not low <= point <= high)

    @property
    def dynamic_axes(self) -> tuple[int, ...]:
        """Axes of unknown size, except a batch axis that the exporter fixed at 1."""
        marked = self.shape_signature or self.shape
        axes: list[int] = []
        for axis, (size, mark) in enumerate(zip(self.shape, marked, strict=True)):
            is_fixed_batch = axis == 0 and size == 1
            if size < 0 or (mark < 0 and not is_fixed_batch):
                axes.append(axis)
        return tuple(axes)


@dataclass(frozen=True, slots=True)
class RawNode:
    """An operator call; `op` is the source format's name (`CONV_2D`, `custom:NAME`).

    Inputs and outputs are tensor indices; NO_TENSOR marks an omitted input. `options`
    holds every option, if absent with the format's default; enumerations are names.
    """

    op: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Attrs
    span: Span
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RawSubgraph:
    """Tensors, input and output indices, and nodes in an executable order."""

    name: str
    tensors: tuple[RawTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[RawNode, ...]


@dataclass(frozen=True, slots=True)
class RawSignature:
    """A named entry point: (name, tensor index) pairs of inputs and outputs."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RawModel:
    """A decoded model file; subgraph 0 is the main one."""

    file: str
    description: str
    subgraphs: tuple[RawSubgraph, ...]
    signatures: tuple[RawSignature, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
