"""Run a pass once per target that opted in, and the passes that targets add around it.

While a pass runs for one target, stubs replace the functions of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.ir.pass_catalog import SELECTABLE_PASSES
from firmwright.partitioning.function_targets import check_only_modified, functions_for, target_of
from firmwright.passes.tir.dce import referenced_constants
from firmwright.targets.target_kind import Phase, TargetKind

TargetKindLookup = Callable[[Target], TargetKind]
ALL_TARGETS = "all"
"""Target name under which the time of whole-module passes is recorded."""


@dataclass(frozen=True, slots=True)
class PassTiming:
    """The seconds that a pass took for one target, or for `all` at once."""

    name: str
    target: str
    seconds: float


@dataclass
class PassTimer:
    """Records the times of passes; they are not part of a compilation's result."""

    rows: list[PassTiming] = field(default_factory=list)

    def run_timed(self, name: str, target: str, step: Callable[[], IRModule]) -> IRModule:
        start = time.perf_counter()
        module = step()
        self.rows.append(PassTiming(name, target, time.perf_counter() - start))
        return module


def make_per_target_pass(
    step: Pass, names: Collection[str], kind_of: TargetKindLookup, watch: PassTimer
) -> Pass:
    """Wrap `step`, one of the passes `names`, so that it runs for each target that selects it."""

    def run(module: IRModule) -> IRModule:
        _check_choices(module, names, kind_of)
        module = _run_added_passes(module, step.name, "before", kind_of, watch)
        if step.name in SELECTABLE_PASSES:
            module = _run_for_each_target(step, module, kind_of, watch)
        else:
            module_before = module
            module = watch.run_timed(step.name, ALL_TARGETS, lambda: step(module_before))
        return _run_added_passes(module, step.name, "after", kind_of, watch)

    return Pass(step.name, run)


def run_phase(
    module: IRModule, phase: Phase, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    for name, target in module.targets.items():
        for step in kind_of(target).phases.get(phase, ()):
            module = _run_own_pass(
                step, module, name, f"the {phase} pass {step.name}", phase, watch
            )
    return module


def _check_choices(module: IRModule, names: Collection[str], kind_of: TargetKindLookup) -> None:
    """Raise UsageError for targets that name an unknown pass or skip a mandatory one."""
    for name, target in module.targets.items():
        choice = kind_of(target).passes
        invalid = sorted({*choice.skip, *(choice.only or ())} - SELECTABLE_PASSES)
        valid: Collection[str] = SELECTABLE_PASSES
        if not invalid:
            invalid, valid = sorted({*choice.before, *choice.after} - {*names}), names
        if invalid:
            raise UsageError(
                f"target {name} cannot select pass {invalid[0]!r}.",
                hint=f"one of {', '.join(sorted(valid))}.",
            )


def _run_added_passes(
    module: IRModule, name: str, where: str, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    for owner_name, target in module.targets.items():
        for step in getattr(kind_of(target).passes, where).get(name, ()):
            pass_label = f"the pass {step.name} {where} {name}"
            module = _run_own_pass(step, module, owner_name, pass_label, name, watch)
    return module


def _run_own_pass(
    step: Pass, module: IRModule, name: str, pass_label: str, place: str, watch: PassTimer
) -> IRModule:
    """Run a target's own pass, which may also change unassigned functions before partitioning."""
    after = watch.run_timed(f"{place}:{step.name}", name, lambda: step(module))
    if place == "pre_partition":
        free = {k: func for k, func in module.functions.items() if not target_of(func)}
        changed = {k: after.functions[k] for k in free if k in after.functions}
        before = replace(module, functions={**module.functions, **changed})
        check_only_modified(before, after, name, f"{pass_label} of target {name}")
    else:
        check_only_modified(module, after, name, f"{pass_label} of target {name}")
    return after


# ---- one owner at a time -------------------------------------------------------------------------


def _run_for_each_target(
    step: Pass, module: IRModule, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    default = next(iter(module.targets), "")
    owners = dict.fromkeys(target_of(func) or default for func in module.functions.values())
    takes = {
        name: name not in module.targets or kind_of(module.targets[name]).passes.takes(step.name)
        for name in owners
    }
    if len(owners) == 1 and all(takes.values()):
        return watch.run_timed(step.name, next(iter(owners)), lambda: step(module))
    for name in owners:
        if takes[name]:
            run = partial(_run_with_stubs, step, module, name, default)
            module = watch.run_timed(step.name, name, run)
    return module


def _run_with_stubs(step: Pass, module: IRModule, name: str, default: str) -> IRModule:
    others = {k: f for k, f in module.functions.items() if (target_of(f) or default) != name}
    hidden = {k: _stub(f) for k, f in others.items()}
    after = step(replace(module, functions={**module.functions, **hidden}))
    functions = {k: others.get(k, func) for k, func in after.functions.items()}
    back = replace(after, functions={**functions, **{k: others[k] for k in others}})
    named = referenced_constants(back)
    constants = {
        **{k: c for k, c in module.constants.items() if k in after.constants or k in named},
        **after.constants,
    }
    return replace(back, constants=constants)


def _stub(function: AnyFunction) -> AnyFunction:
    match function:
        case Function():
            return replace(function, body=())
        case tir.PrimFunc():
            return replace(function, body=tir.Seq(()))


def count_functions_by_target(module: IRModule) -> dict[str, int]:
    return {name: len(functions_for(module, name)) for name in module.targets}
