"""The record of a target kind: attributes, features, and where it takes part in a compilation.

A feature is a plain word that schedule rules and intrinsics require (`dsp`, `mve`, `fpu`). Hooks
and phases are passes over the module, or make one kernel of one function; what runs them
(partitioning/target_hooks.py, partitioning/target_passes.py) sees to it that functions of other
targets stay as they are. Nothing here is called while a kind is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from firmwright.ir import tir
from firmwright.ir.core import Constant, Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule, Pass


@dataclass(frozen=True, slots=True)
class TargetAttribute:
    """An attribute's default (which fixes its type), allowed values (empty: any), and meaning."""

    default: int | bool | str
    doc: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """The kernel that a function became, the constants it names, and C files that it needs.

    Files are by their name in the backend's folder of the project.
    """

    function: tir.PrimFunc
    constants: Mapping[str, Constant] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


FunctionHook: TypeAlias = Callable[[Function, IRModule, Target], LoweredFunction]
"""Makes one kernel: its parameters are the function's parameters, then its results."""
ModuleHook: TypeAlias = "Pass | tuple[Pass, ...]"
Hook: TypeAlias = "ModuleHook | FunctionHook"
HookName: TypeAlias = Literal["relay_to_runtime", "relay_to_tir", "tir_to_runtime"]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Where a kind makes code itself; None leaves it to the default.

    `relay_to_runtime` and `relay_to_tir` turn the kind's graph functions into PrimFuncs: the former
    writes C files and a kernel that calls them, the latter loops and intrinsics.
    `tir_to_runtime` changes the kind's kernels as they are printed, memory planned.
    """

    relay_to_runtime: Hook | None = None
    relay_to_tir: Hook | None = None
    tir_to_runtime: ModuleHook | None = None


Phase: TypeAlias = Literal["pre_partition", "post_partition", "after_scheduling", "after_planning"]
PHASES: tuple[Phase, ...] = (
    "pre_partition",
    "post_partition",
    "after_scheduling",
    "after_planning",
)
"""Places where a kind may add passes.

`after_scheduling` is before constants are merged and placed, so passes there may still repack them.
"""


GRAPH_CHOICE = frozenset(
    {"layout", "fold-scale", "fuse-activations", "fuse-expressions", "fold-pad", "graph-dce"}
)
TIR_CHOICE = frozenset({"unroll", "simplify", "narrow-index"})
CHOICE = GRAPH_CHOICE | TIR_CHOICE
"""The default passes that work function by function, so that a target may choose among them."""


@dataclass(frozen=True, slots=True)
class PassSelection:
    """Which of the default passes the kind's functions take, by name: `only` some, or all but some.

    `before` and `after` are passes of the kind's own around one of the default ones.
    """

    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    before: Mapping[str, tuple[Pass, ...]] = field(default_factory=dict)
    after: Mapping[str, tuple[Pass, ...]] = field(default_factory=dict)

    def takes(self, name: str) -> bool:
        return name not in self.skip and (self.only is None or name in self.only)


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A family of code generators. A core runs the program; another kind takes part of it."""

    name: str
    doc: str
    attrs: Mapping[str, TargetAttribute] = field(default_factory=dict)
    features: Callable[[Target], frozenset[str]] = lambda target: frozenset()
    is_core: bool = True
    hooks: Hooks = Hooks()
    passes: PassSelection = PassSelection()
    phases: Mapping[Phase, tuple[Pass, ...]] = field(default_factory=dict)
