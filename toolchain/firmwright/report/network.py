"""The network of a build: its operators with their kernels, and the values between.

Values carry the sizes of activations; constants belong to the operators that read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from firmwright.base.display_names import format_shape


class NodeRole(StrEnum):
    """What a node of the network is; its edges begin and end there."""

    INPUT = "input"
    OPERATOR = "operator"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class NetworkTensor:
    """A value or a constant; `quantization` describes scales and zero points."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    quantization: str = ""

    @property
    def shape_label(self) -> str:
        """Return the shape without leading axes of size 1."""
        shape = self.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return format_shape(shape).replace("x", "×")


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """An input, an output, or an operator with code, whose `index` is the report's.

    `attributes` are the operator's own, such as strides, as text. `constants` are those
    of its kernel in the firmware, and `kernel` is the name of its C function.
    """

    role: NodeRole
    label: str
    index: int | None = None
    inputs: tuple[NetworkTensor, ...] = ()
    outputs: tuple[NetworkTensor, ...] = ()
    constants: tuple[NetworkTensor, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class NetworkEdge:
    """A value that the node at position `source` gives to the one at `target`."""

    source: int
    target: int
    tensor: NetworkTensor


@dataclass(frozen=True, slots=True)
class Network:
    """The nodes in the order of their calls; `sources` has the C of each kernel."""

    nodes: tuple[NetworkNode, ...]
    edges: tuple[NetworkEdge, ...]
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)

    def neighbors(self, position: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the positions of the nodes before and after a node."""
        before = {edge.source for edge in self.edges if edge.target == position}
        after = {edge.target for edge in self.edges if edge.source == position}
        return sorted(before), sorted(after)
