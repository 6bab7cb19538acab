"""Interface of operator importers, which convert foreign nodes to calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.base.dtypes import Array
from firmwright.ir.core import Attrs
from firmwright.ir.decoded_model import RawNode
from firmwright.ir.graph.nodes import TensorType

CustomOpPredicate: TypeAlias = Callable[[str, str], bool]
"""Returns whether a backend or plug-in implements the foreign operator (domain, name)."""


def accept_no_custom_op(domain: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ImportContext:
    """The raw node to import, and the types and constants of its tensors."""

    node: RawNode
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Array | None, ...]


@dataclass(frozen=True, slots=True)
class ImplicitState:
    """A state tensor that a call needs but the model file does not declare.

    Every element is `fill` before the first run. `next_output` is the node's output that becomes
    the next value; None stands for an additional output of the call.
    """

    name: str
    type: TensorType
    fill: int = 0
    next_output: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedCall:
    """The result of an importer: operator, attributes and the positions of the inputs to keep.

    `updated_inputs` are positions of variable tensors that the call updates; their new values
    follow the node's outputs. Each `implicit_state` adds one input after the others and, unless an
    existing output becomes its next value, one output.
    """

    op: str
    attrs: Attrs
    inputs: tuple[int, ...]
    updated_inputs: tuple[int, ...] = ()
    implicit_state: tuple[ImplicitState, ...] = ()
