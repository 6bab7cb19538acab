"""Target kinds: attributes, features, and hooks into the compilation.

A feature is a word that schedules and intrinsics may require (`dsp`, `mve`, `fpu`).
Hooks and phases are module passes, or functions that generate a kernel; `partitioning`
ensures that functions of other targets are not modified.
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
    """An attribute of a target: default, which fixes its type, meaning, and choices."""

    default: int | bool | str
    doc: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """A kernel, its constants, and its C files by path in the backend's folder."""

    function: tir.PrimFunc
    constants: Mapping[str, Constant] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


FunctionHook: TypeAlias = Callable[[Function, IRModule, Target], LoweredFunction]
"""Generates one kernel, whose parameters are the function's, then its results."""
ModuleHook: TypeAlias = "Pass | tuple[Pass, ...]"
Hook: TypeAlias = "ModuleHook | FunctionHook"
HookName: TypeAlias = Literal["relay_to_runtime", "relay_to_tir", "tir_to_runtime"]
BACKEND_METHODS: Mapping[HookName, str] = {
    "relay_to_runtime": "generate",
    "relay_to_tir": "lower",
    "tir_to_runtime": "tir_to_runtime",
}
"""Methods of backends by the hook, which messages name."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Code generation hooks of a kind; None selects the default.

    `relay_to_runtime` and `relay_to_tir` convert graph functions to PrimFuncs: the
    former writes C files and a kernel that calls them, the latter emits loops and
    intrinsics. `tir_to_runtime` changes kernels after memory planning.
    """

    relay_to_runtime: Hook | None = None
    relay_to_tir: Hook | None = None
    tir_to_runtime: ModuleHook | None = None


Phase: TypeAlias = Literal[
    "pre_partition", "post_partition", "after_scheduling", "after_planning"
]
"""Points of the pipeline at which a kind may add passes.

`after_scheduling` precedes the placement of constants, so passes there may repack them.
"""


@dataclass(frozen=True, slots=True)
class PassSelection:
    """Selection of a kind's default passes: `only` these, or all except `skip`.

    `before` and `after` are additional passes around a default pass.
    """

    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    before: Mapping[str, tuple[Pass, ...]] = field(default_factory=dict)
    after: Mapping[str, tuple[Pass, ...]] = field(default_factory=dict)

    def takes(self, name: str) -> bool:
        return name not in self.skip and (self.only is None or name in self.only)


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A family of code generators: a core, or a backend for a part of the program."""

    name: str
    doc: str
    attrs: Mapping[str, TargetAttribute] = field(default_factory=dict)
    features: Callable[[Target], frozenset[str]] = lambda target: frozenset()
    is_core: bool = True
    hooks: Hooks = Hooks()
    passes: PassSelection = PassSelection()
    phases: Mapping[Phase, tuple[Pass, ...]] = field(default_factory=dict)
