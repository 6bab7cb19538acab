"""Attributes of tree ensembles."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnsembleAttrs(OpAttrs):
    exponent: int
    """Binary digits of the leaves' values after the point."""
    bases: tuple[int, ...]
    """What each sum begins with, in units of 2 ^ -exponent."""
