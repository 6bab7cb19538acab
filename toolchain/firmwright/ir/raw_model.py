"""A model file as decoded, before any meaning is given to it: what frontends hand to operators.

Frozen values. Tensors are named by their index in the subgraph, as the file names them. A frontend
promises of a `RawModel`: every index is in range; nodes are in an order in which each input is a
graph input, a constant, a variable or the output of an earlier node; no tensor is defined twice;
constants have exactly the bytes that shape and element type ask for; quantisations fit their
tensor. It promises nothing about operators: names, options, types and shapes may be unknown, absurd
or dynamic; the operator files judge those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.quant import Quantization
from firmwright.ir.core import Attrs, Span

NO_TENSOR = -1


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor of a subgraph.

    `dtype` is a name that base/dtypes.py may know (`int8`) or not (`float16`, `string`). `buffer`
    holds a constant's bytes (little-endian, C order), None if the tensor is not constant.
    `shape_signature` is empty or has the rank of `shape`, -1 where the size is only known at run
    time; `shape` then says which size the exporter assumed. A dimension of `shape` itself is -1
    only if the exporter knew none.
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
    def dynamic_axes(self) -> tuple[int, ...]:
        """The axes of unknown size; a batch axis that the exporter fixed at 1 is not among them."""
        marked = self.shape_signature or self.shape
        return tuple(
            axis
            for axis, (size, mark) in enumerate(zip(self.shape, marked, strict=True))
            if size < 0 or (mark < 0 and not (axis == 0 and size == 1))
        )


@dataclass(frozen=True, slots=True)
class RawNode:
    """An operator call: `op` is the format's name for it (`CONV_2D`, `custom:NAME`).

    Inputs and outputs are tensor indices; an input left out is NO_TENSOR. `options` holds every
    option of the operator, those absent from the file at the format's default; enumerations are
    names.
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
    """Tensors, the indices of inputs and outputs, and nodes in an executable order."""

    name: str
    tensors: tuple[RawTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[RawNode, ...]


@dataclass(frozen=True, slots=True)
class RawSignature:
    """A named entry point: pairs (name, tensor index) for inputs and outputs of a subgraph."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RawModel:
    """A decoded model file; subgraph 0 is the one that runs."""

    file: str
    description: str
    subgraphs: tuple[RawSubgraph, ...]
    signatures: tuple[RawSignature, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
