"""Interface of a BYOC backend: the class that an accelerator vendor implements.

A subclass of `Backend` defines a table of patterns, and hooks that generate kernels for
matched regions. It has no effect until a target of its kind is selected. Methods are
pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import plugin_call
from firmwright.base.suggestions import suggest_name
from firmwright.ir.core import Target
from firmwright.ir.graph.devices import is_device_name
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, Pattern, call_patterns, op
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.pass_catalog import SELECTABLE_TIR_PASSES
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.targets import target_kind
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.target_kind import Phase


def match_always(match: Match) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PatternEntry:
    """A row of a backend's table: name, pattern, and predicate on the match."""

    name: str
    pattern: Pattern
    predicate: Callable[[Match], bool] = match_always


@dataclass(frozen=True, slots=True)
class LoweringMethod:
    """A method of a backend that makes the kernels of one pattern; see `lowers`."""

    pattern: Pattern
    takes: Callable[..., bool]
    lower: Callable[..., None]


def lowers(
    pattern: Pattern | str, takes: Callable[..., bool] | None = None
) -> Callable[[Callable[..., None]], LoweringMethod]:
    """Make a method the row of the table with `pattern`, or an operator, and its code.

    The method gets a `BackendKernel` and has the name of the row. `takes`, the row's
    condition, is a method defined before it, with the match as argument:

        @lowers(op("conv2d", wildcard(), constant(), constant()), takes=fits)
        def conv(self, kernel): ...
    """
    wanted = op(pattern) if isinstance(pattern, str) else pattern

    def mark(method: Callable[..., None]) -> LoweringMethod:
        return LoweringMethod(wanted, takes or _take_always, method)

    return mark


def _take_always(backend: Backend, match: Match) -> bool:
    return True


class Backend:
    """Base class of backends; subclasses override attributes and methods as needed.

    Either `lower`, which emits loops and calls of `intrinsics`, or `generate`, which
    writes C files and calls of their functions, generates the kernel of a region that
    matched `patterns`. Methods with the decorator `lowers` are further rows of the
    table, with code of their own.
    """

    name: str = ""
    doc: str = ""
    version: str = "1"
    attrs: Mapping[str, target_kind.TargetAttribute] = {}
    merge_regions: bool = False
    pools: tuple[str, ...] = ()
    """Pools that the board must provide."""
    device: str = ""
    """Device that executes calls asynchronously, such as `npu0`; "" is the core."""
    wait: str = ""
    """C function that waits for the calls that kernels started, `int32_t wait(void)`.

    "" if calls are complete when the kernels return.
    """
    visible_pools: tuple[str, ...] = ()
    """Pools accessible to the backend's kernels; () means all and program memory.

    Tensors are placed there, and constants are copied there once.
    """
    bus_master: bool = False
    """Whether it reads program memory, but none that is tightly coupled to the core."""
    tiles: int = 1
    """Maximum row tiles of a call.

    In a private pool, their transfers overlap computation.
    """
    estimated_by: str = ""
    """Source of `cost`, for profiles."""
    emulated_by: str = ""
    """C function that computes the calls on boards without the device.

    Counts exclude it.
    """
    intrinsics: tuple[Intrinsic, ...] = ()
    check: str = ""
    """C function called before a run, `int32_t check(uint32_t data_version)`, or ""."""
    data_version: int = 1
    """Version of constants in the backend's format.

    The device supports it if `check` returns 0.
    """
    passes: target_kind.PassSelection = target_kind.PassSelection(
        only=SELECTABLE_TIR_PASSES
    )
    """By default, regions stay as matched by the patterns."""

    def patterns(self) -> Sequence[PatternEntry]:
        """Return the pattern table; entries are tried in order."""
        return ()

    def phases(self) -> Mapping[Phase, Sequence[Pass]]:
        """Return passes for named points of the pipeline (targets/target_kind.py)."""
        return {}

    def features(self, target: Target) -> frozenset[str]:
        """Return the features of `target` that intrinsics may require."""
        return frozenset()

    def lower(self, kernel: BackendKernel) -> None:
        """Emit the kernel of a region as TIR."""
        raise NotImplementedError

    def generate(self, kernel: BackendKernel) -> None:
        """Write a region's C files (`kernel.file`) and the kernel that calls them."""
        raise NotImplementedError

    def tir_to_runtime(self) -> Sequence[Pass]:
        """Return passes that change the backend's kernels after memory planning."""
        return ()

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        """Return the library files that the functions `symbols` need, by name."""
        return {}

    def c_flags(self, target: Target) -> Sequence[str]:
        """Return compiler flags for the backend's own C files."""
        return ()

    def cost(self, match: Match) -> int | None:
        """Return the modeled cycles of a run of the match, or None to measure it.

        One cycle counts as one instruction in an emulator.
        """
        return None

    def rejections(
        self, function: Function, module: IRModule, target: Target
    ) -> Mapping[str, str]:
        """Return why calls of `function` stay on the core.

        Keys are the names of their first outputs.
        """
        return {}

    def transfer(self, size_bytes: int) -> int | None:
        """Return the cycles of a transfer to or from it; None is the board's DMA."""
        return None

    def library(self, target: Target) -> str:
        """Return the library's version, for which alone measurements are valid."""
        return ""

    # ---- derived values --------------------------------------------------------------

    @cached_property
    def kind(self) -> target_kind.TargetKind:
        class_doc = (type(self).__doc__ or "").strip().partition("\n")[0]
        with plugin_call(f"`tir_to_runtime` of the backend {self.name}"):
            at_the_end = tuple(self.tir_to_runtime()) or None
        with plugin_call(f"`phases` of the backend {self.name}"):
            phases = {name: tuple(steps) for name, steps in self.phases().items()}
        hooks = target_kind.Hooks(
            self._hook("generate"), self._hook("lower"), at_the_end
        )
        return target_kind.TargetKind(
            self.name,
            self.doc or class_doc,
            self.attrs,
            self.features,
            is_core=False,
            hooks=hooks,
            passes=self.passes,
            phases=phases,
        )

    @cached_property
    def table(self) -> tuple[PatternEntry, ...]:
        """The pattern table with full names, `backend.entry`."""
        entries = []
        with plugin_call(f"`patterns` of the backend {self.name}"):
            for entry in self.patterns():
                name = f"{self.name}.{entry.name}"
                entries.append(PatternEntry(name, entry.pattern, entry.predicate))
        for name, method in self.lowering_methods.items():
            entry = PatternEntry(name, method.pattern, partial(method.takes, self))
            entries.append(entry)
        return tuple(entries)

    @cached_property
    def lowering_methods(self) -> Mapping[str, LoweringMethod]:
        """The methods with the decorator `lowers`, by the full names of their rows."""
        methods: dict[str, LoweringMethod] = {}
        for owner in reversed(type(self).__mro__):
            for name, value in vars(owner).items():
                methods.pop(f"{self.name}.{name}", None)
                if isinstance(value, LoweringMethod):
                    methods[f"{self.name}.{name}"] = value
        return methods

    def _hook(self, method: str) -> target_kind.FunctionHook | None:
        is_own = getattr(type(self), method) is not getattr(Backend, method)
        marked = self.lowering_methods if method == "lower" else {}
        if not is_own and not marked:
            return None

        def hook(
            function: Function, module: IRModule, target: Target
        ) -> target_kind.LoweredFunction:
            kernel = BackendKernel(function, module, target)
            if kernel.entry in marked:
                marked[kernel.entry].lower(self, kernel)
            else:
                getattr(self, method)(kernel)
            return kernel.lowered()

        return hook


def check_backend(backend: Backend, operators: frozenset[str]) -> None:
    """Check a backend independently of any model.

    Raises:
        UsageError: the name is invalid, hooks are missing, or the pattern table is
        inconsistent.
    """
    where = f"backend {backend.name or type(backend).__name__}"
    if not backend.name.replace("-", "_").isidentifier():
        raise UsageError(
            f"its name {backend.name!r} is not an identifier.",
            where=where,
            hint="name = 'npu1'.",
        )
    if backend.device and not is_device_name(backend.device):
        raise UsageError(
            f"its device {backend.device!r} is not a type and a number.",
            where=where,
            hint="device = 'npu0'.",
        )
    hooks = backend.kind.hooks
    if hooks.relay_to_runtime is None and hooks.relay_to_tir is None:
        raise UsageError(
            "it has neither `lower` nor `generate`.",
            where=where,
            hint="define one of them, or methods with the decorator `lowers`.",
        )
    others = hooks.relay_to_runtime is not None or backend.merge_regions
    if backend.lowering_methods and others:
        raise UsageError(
            "its methods with `lowers` make kernels of single matches, beside `lower`.",
            where=where,
            hint="without `generate` and `merge_regions`.",
        )
    _check_table(backend, operators, where)


def _check_table(backend: Backend, operators: frozenset[str], where: str) -> None:
    names = [entry.name for entry in backend.table]
    for entry in backend.table:
        if names.count(entry.name) > 1:
            raise UsageError(f"two patterns have the name {entry.name}.", where=where)
        covered = {part.op for part in call_patterns(entry.pattern)}
        if not covered:
            raise UsageError(
                f"the pattern {entry.name} covers no operator.",
                where=where,
                hint="op(...).",
            )
        for name in sorted(covered - operators):
            what = f"the pattern {entry.name} names the unknown operator {name!r}."
            hint = f"{suggest_name(name, operators)}; `firmwright ops` lists them."
            raise UsageError(what, where=where, hint=hint)
