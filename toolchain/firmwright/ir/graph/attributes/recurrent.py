"""Attributes of recurrent layers."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.attributes.layers import ActivationAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmAttrs(OpAttrs):
    time_major: bool
    """Inputs and results are [time, batch, units]; otherwise [batch, time, units]."""
    cell_clip: float
    """Limit of the cell state's magnitude; 0 is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridLstmAttrs(LstmAttrs):
    asymmetric: bool
    """Rows of the input are quantized with a zero point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SvdfAttrs(ActivationAttrs):
    rank: int
    """Filters that add up to one unit."""
    asymmetric: bool | None = None
    """Floats with weights of int8: rows of the input are quantized with a zero
    point.
    """
