"""The record of a target kind: validated attributes and the features they imply.

A feature is a plain word that schedule rules and intrinsics require (`dsp`, `mve`, `fpu`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from firmwright.ir.core import Target


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """An attribute's default (which fixes its type), allowed values (empty: any), and meaning."""

    default: int | bool | str
    doc: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A family of code generators."""

    name: str
    doc: str
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    features: Callable[[Target], frozenset[str]] = lambda target: frozenset()
