"""Run a pass once per target that opted in, and the passes that targets add around it.

While a pass runs for one target, stubs replace the functions of the others.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import plugin_call
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.ir.pass_catalog import SELECTABLE_PASSES
from firmwright.partitioning.target_resolution import check_only_modified, target_of
from firmwright.passes.tir.dce import referenced_constants
from firmwright.targets.saved_backend import kind_in
from firmwright.targets.target_kind import Phase

ALL_TARGETS = "all"
"""Target name under which the time of whole-module passes is recorded."""


@dataclass(frozen=True, slots=True)
class PassTiming:
    """The seconds that a pass took for one target, or for `all` targets together."""

    name: str
    target: str
    seconds: float


@dataclass
class PassTimer:
    """Record the times of passes; they are not part of a compilation's result."""

    rows: list[PassTiming] = field(default_factory=list)

    def run_timed(
        self, name: str, target: str, step: Callable[[], IRModule]
    ) -> IRModule:
        start = time.perf_counter()
        module = step()
        self.rows.append(PassTiming(name, target, time.perf_counter() - start))
        return module


def make_per_target_pass(step: Pass, names: Collection[str], watch: PassTimer) -> Pass:
    """Wrap `step`, one of the passes `names`, to run for each target selecting it."""

    def run(module: IRModule) -> IRModule:
        _check_choices(module, names)
        module = _run_added_passes(module, step.name, "before", watch)
        if step.name in SELECTABLE_PASSES:
            module = _run_for_each_target(step, module, watch)
        else:
            module = watch.run_timed(step.name, ALL_TARGETS, partial(step, module))
        return _run_added_passes(module, step.name, "after", watch)

    return Pass(step.name, run)


def run_phase(
    module: IRModule,
    phase: Phase,
    watch: PassTimer,
    names: Collection[str] | None = None,
) -> IRModule:
    """Run the passes that targets, or those with these names, add at a phase."""
    for name in module.targets if names is None else names:
        for step in kind_in(module, name).phases.get(phase, ()):
            label = f"the {phase} pass {step.name} of target {name}"
            module = _run_own_pass(step, module, name, label, phase, watch)
    return module


def _check_choices(module: IRModule, names: Collection[str]) -> None:
    """Raise UsageError if a target names an unknown pass or skips a mandatory one."""
    for name in module.targets:
        choice = kind_in(module, name).passes
        selected = {*choice.skip, *(choice.only or ())}
        _check_pass_names(selected, SELECTABLE_PASSES, name)
        _check_pass_names({*choice.before, *choice.after}, names, name)


def _check_pass_names(
    chosen: Collection[str], valid: Collection[str], target: str
) -> None:
    invalid = sorted(set(chosen) - set(valid))
    if invalid:
        what = f"target {target} cannot select pass {invalid[0]!r}."
        raise UsageError(what, hint=f"one of {', '.join(sorted(valid))}.")


def _run_added_passes(
    module: IRModule, name: str, where: Literal["before", "after"], watch: PassTimer
) -> IRModule:
    """Run the passes that targets add before or after the pass `name`."""
    for owner in module.targets:
        choice = kind_in(module, owner).passes
        added = choice.before if where == "before" else choice.after
        for step in added.get(name, ()):
            label = f"the pass {step.name} {where} {name} of target {owner}"
            module = _run_own_pass(step, module, owner, label, name, watch)
    return module


def _run_own_pass(
    step: Pass, module: IRModule, name: str, label: str, place: str, watch: PassTimer
) -> IRModule:
    """Run a target's own pass, which may change open functions before partitioning."""
    with plugin_call(label):
        after = watch.run_timed(f"{place}:{step.name}", name, partial(step, module))
    before = module
    if place == "pre_partition":
        # A function without a target may change: the check sees the new one as old.
        functions = dict(module.functions)
        for key, function in module.functions.items():
            if not target_of(function) and key in after.functions:
                functions[key] = after.functions[key]
        before = replace(module, functions=functions)
    check_only_modified(before, after, name, label)
    return after


# ---- one owner at a time -------------------------------------------------------------


def _run_for_each_target(step: Pass, module: IRModule, watch: PassTimer) -> IRModule:
    """Run `step` once for each target that takes it and has functions.

    Functions without a target belong to the first target of the module's table.
    """
    default = next(iter(module.targets), "")
    owners: dict[str, None] = {}
    for func in module.functions.values():
        owners[target_of(func) or default] = None
    taking = [name for name in owners if _takes_pass(module, name, step)]
    if len(owners) == len(taking) == 1:
        return watch.run_timed(step.name, taking[0], partial(step, module))
    for name in taking:
        run = partial(_run_with_stubs, step, module, name, default)
        module = watch.run_timed(step.name, name, run)
    return module


def _takes_pass(module: IRModule, target: str, step: Pass) -> bool:
    if target not in module.targets:
        return True
    return kind_in(module, target).passes.takes(step.name)


def _run_with_stubs(step: Pass, module: IRModule, name: str, default: str) -> IRModule:
    """Run `step` on the functions of target `name` alone, then put the others back.

    The pass may remove constants of which it sees no use; those that the other
    functions read are kept.
    """
    others: dict[str, AnyFunction] = {}
    for key, function in module.functions.items():
        if (target_of(function) or default) != name:
            others[key] = function
    stubs = {key: _stub(function) for key, function in others.items()}
    before = replace(module, functions={**module.functions, **stubs})
    after = step(before)
    if after is before:
        return module
    back = replace(after, functions={**after.functions, **others})
    referenced = referenced_constants(back)
    constants: dict[str, Constant] = {}
    for key, constant in module.constants.items():
        if key in after.constants or key in referenced:
            constants[key] = constant
    return replace(back, constants={**constants, **after.constants})


def _stub(function: AnyFunction) -> AnyFunction:
    """Return a function with the same signature and an empty body."""
    if isinstance(function, Function):
        return replace(function, body=())
    return replace(function, body=tir.Seq(()))
