"""What an accelerator's vendor writes: one class that says what a backend takes and how.

In: a subclass of `Backend`. Out: a `TargetKind` with attributes, hooks and phases, and a table of
patterns. A backend that is registered does nothing: it takes part where a target of its kind is
named. It is code, not state: every method gives the same for the same arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from firmwright.base.errors import UsageError
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, Pattern
from firmwright.ir.graph.patterns import pattern_ops as of_pattern
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.target_kind import (
    TIR_CHOICE,
    FunctionHook,
    Hooks,
    LoweredFunction,
    PassSelection,
    Phase,
    TargetAttribute,
    TargetKind,
)


def match_always(match: Match) -> bool:
    """The predicate of a pattern that says all there is to say."""
    return True


@dataclass(frozen=True, slots=True)
class PatternEntry:
    """A row of a backend's table: what its name is, what it covers, and of that what it takes."""

    name: str
    pattern: Pattern
    predicate: Callable[[Match], bool] = match_always


class Backend:
    """Base of all backends. Class attributes and methods are there to be overridden.

    Either `lower` or `generate` makes the kernels. Both are handed a `BackendKernel`: a region of
    the graph under the names of the entries of `patterns` (with `merge_regions` several entries at
    once, else one). `lower` writes loops and calls of `intrinsics`; `generate` writes C files of
    its own and a call of what they define.
    """

    name: str = ""
    doc: str = ""
    version: str = "1"
    attrs: Mapping[str, TargetAttribute] = {}
    merge_regions: bool = False
    pools: tuple[str, ...] = ()
    """Pools that the board must have."""
    device: str = ""
    """What does its calls while the core goes on, such as `npu0`; "" is the core itself."""
    visible_pools: tuple[str, ...] = ()
    """The pools that its kernels reach: their tensors lie there, their constants are copied there
    once. () is all of them, and the program's memory."""
    tiles: int = 1
    """Into how many row tiles a call may be cut, so that transfers overlap with work, where its
    device has a pool to itself."""
    intrinsics: tuple[Intrinsic, ...] = ()
    check: str = ""
    """A C function that a run asks first, `int32_t check(uint32_t data_version)`; "": none."""
    data_version: int = 1
    """Of constants in the backend's own form: what `check` answers 0 to can be run there."""
    passes: PassSelection = PassSelection(only=TIR_CHOICE)
    """Regions stay as the patterns matched them, unless it asks for more."""

    def patterns(self) -> Sequence[PatternEntry]:
        """The table, the entry that is to be tried first at its head."""
        return ()

    def phases(self) -> Mapping[Phase, Sequence[Pass]]:
        """Passes at named places of the pipeline; see `targets/target_kind.py`."""
        return {}

    def features(self, target: Target) -> frozenset[str]:
        """What intrinsics may require of this instance."""
        return frozenset()

    def lower(self, kernel: BackendKernel) -> None:
        """Writes the kernel of a region in TIR."""
        raise NotImplementedError

    def generate(self, kernel: BackendKernel) -> None:
        """Writes the C of a region (`kernel.file`) and the kernel that calls it."""
        raise NotImplementedError

    def tir_to_runtime(self) -> Sequence[Pass]:
        """Changes of the backend's kernels as they are printed."""
        return ()

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        """The library that kernels call, by file name: what `symbols`, which they call, need."""
        return {}

    def c_flags(self, target: Target) -> Sequence[str]:
        """Compiler flags of the backend's own C files."""
        return ()

    def cost(self, match: Match) -> int | None:
        """Cycles that one run of what is matched takes, as modelled; None: it is to be measured.

        For what an emulator cannot tell: there a cycle of the model stands for an instruction.
        """
        return None

    def transfer(self, size_bytes: int) -> int:
        """Cycles that a tensor of that size takes on its way to the backend, or from it."""
        return 0

    def library(self, target: Target) -> str:
        """What its C files are of, beside `version`: measurements hold for that alone."""
        return ""

    # ---- what others see -----------------------------------------------------------------------

    @cached_property
    def kind(self) -> TargetKind:
        """The backend as a target kind."""
        return TargetKind(
            self.name,
            self.doc or (type(self).__doc__ or "").strip().partition("\n")[0],
            self.attrs,
            self.features,
            is_core=False,
            hooks=Hooks(
                self._hook("generate"), self._hook("lower"), tuple(self.tir_to_runtime()) or None
            ),
            passes=self.passes,
            phases={name: tuple(found) for name, found in self.phases().items()},
        )

    @cached_property
    def table(self) -> tuple[PatternEntry, ...]:
        """The entries under their full names, `backend.entry`."""
        return tuple(
            PatternEntry(f"{self.name}.{entry.name}", entry.pattern, entry.predicate)
            for entry in self.patterns()
        )

    def _hook(self, method: str) -> FunctionHook | None:
        """The hook that `method` is, where the subclass has one."""
        if getattr(type(self), method) is getattr(Backend, method):
            return None

        def hook(function: Function, module: IRModule, target: Target) -> LoweredFunction:
            kernel = BackendKernel(function, module, target)
            getattr(self, method)(kernel)
            return kernel.lowered()

        return hook


def check_backend(backend: Backend, operators: frozenset[str]) -> None:
    """UsageError for what cannot be right in a backend, whatever the model."""
    where = f"backend {backend.name or type(backend).__name__}"
    if not backend.name.replace("-", "_").isidentifier():
        raise UsageError(
            f"its name {backend.name!r} is no word.", where=where, hint="name = 'npu1'."
        )
    hooks = backend.kind.hooks
    if hooks.relay_to_runtime is None and hooks.relay_to_tir is None:
        raise UsageError("it has neither `lower` nor `generate`.", where=where, hint="one of both.")
    _check_table(backend, operators, where)


def _check_table(backend: Backend, operators: frozenset[str], where: str) -> None:
    names = [entry.name for entry in backend.table]
    for entry in backend.table:
        if names.count(entry.name) > 1:
            raise UsageError(f"two patterns are called {entry.name}.", where=where)
        found = of_pattern(entry.pattern)
        if not found:
            raise UsageError(
                f"the pattern {entry.name} covers no operator.", where=where, hint="op(...)."
            )
        for name in sorted(found - operators):
            raise UsageError(
                f"the pattern {entry.name} names the unknown operator {name!r}.",
                where=where,
                hint=f"{_nearest(name, operators)}; `firmwright ops` lists them.",
            )


def _nearest(word: str, known: frozenset[str]) -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.0)
    return close[0]
