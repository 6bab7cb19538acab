"""Attributes of tree ensembles."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnsembleAttrs(OpAttrs):
    exponent: int
    """Binary digits of the leaves' values after the point."""
    bases: tuple[int, ...]
    """The first value of each sum, in units of 2 ^ -exponent."""
