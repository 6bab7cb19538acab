"""Attributes of command streams for the NPU."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class EthosUAttrs(OpAttrs):
    arena_bytes: int
    """Size of the arena."""
    fast_bytes: int
    """Size of the fast memory, or 0 if it is the arena."""
    offsets: tuple[int, ...]
    """Byte offsets in the arena of the inputs after the second and of the outputs."""
