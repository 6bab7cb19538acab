"""Runs passes for the targets that take them, and the passes that targets add.

In: a module with functions of several targets, and a default pass. Out: the module after it; of
each target only the functions changed that it takes the pass for. A module whose functions are all
of the core's own (every module without a backend) goes through the pass as a whole. With several
owners the pass runs once for each of them, the others' functions being empty meanwhile: what is
not taken costs nothing, and what each costs is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.partitioning.function_targets import check_only_modified, functions_for, target_of
from firmwright.passes.tir.dce import referenced_constants
from firmwright.targets.target_kind import CHOICE, Phase, TargetKind

TargetKindLookup = Callable[[Target], TargetKind]
ALL_TARGETS = "all"
"""What a pass that works on the module as a whole is timed under."""


@dataclass(frozen=True, slots=True)
class PassTiming:
    """What a pass took for one target, or for `all` at once."""

    name: str
    target: str
    seconds: float


@dataclass
class PassTimer:
    """Passes as they ran, with their times: no part of a compilation's result."""

    rows: list[PassTiming] = field(default_factory=list)

    def timed(self, name: str, target: str, step: Callable[[], IRModule]) -> IRModule:
        """What `step` returns; its time is written down."""
        start = time.perf_counter()
        module = step()
        self.rows.append(PassTiming(name, target, time.perf_counter() - start))
        return module


def make_per_target_pass(
    step: Pass, names: Collection[str], kind_of: TargetKindLookup, watch: PassTimer
) -> Pass:
    """`step`, one of the passes `names`, as the targets of a module want it."""

    def run(module: IRModule) -> IRModule:
        _check_choices(module, names, kind_of)
        module = _added(module, step.name, "before", kind_of, watch)
        if step.name in CHOICE:
            module = _for_each_owner(step, module, kind_of, watch)
        else:
            given = module
            module = watch.timed(step.name, ALL_TARGETS, lambda: step(given))
        return _added(module, step.name, "after", kind_of, watch)

    return Pass(step.name, run)


def run_phase(
    module: IRModule, phase: Phase, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    """The passes that targets have for `phase`, target by target."""
    for name, target in module.targets.items():
        for step in kind_of(target).phases.get(phase, ()):
            module = _own(step, module, name, f"the {phase} pass {step.name}", phase, watch)
    return module


def _check_choices(module: IRModule, names: Collection[str], kind_of: TargetKindLookup) -> None:
    """UsageError for a target that speaks of a pass which there is not, or which all must take."""
    for name, target in module.targets.items():
        choice = kind_of(target).passes
        wrong = sorted({*choice.skip, *(choice.only or ())} - CHOICE)
        known: Collection[str] = CHOICE
        if not wrong:
            wrong, known = sorted({*choice.before, *choice.after} - {*names}), names
        if wrong:
            raise UsageError(
                f"target {name} chooses the pass {wrong[0]!r}, which is none that it can choose.",
                hint=f"one of {', '.join(sorted(known))}.",
            )


def _added(
    module: IRModule, name: str, where: str, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    for owner_name, target in module.targets.items():
        for step in getattr(kind_of(target).passes, where).get(name, ()):
            what = f"the pass {step.name} {where} {name}"
            module = _own(step, module, owner_name, what, name, watch)
    return module


def _own(
    step: Pass, module: IRModule, name: str, what: str, place: str, watch: PassTimer
) -> IRModule:
    """A target's own pass: before partitioning all that is nobody's yet may change."""
    after = watch.timed(f"{place}:{step.name}", name, lambda: step(module))
    if place == "pre_partition":
        free = {k: func for k, func in module.functions.items() if not target_of(func)}
        changed = {k: after.functions[k] for k in free if k in after.functions}
        before = replace(module, functions={**module.functions, **changed})
        check_only_modified(before, after, name, f"{what} of target {name}")
    else:
        check_only_modified(module, after, name, f"{what} of target {name}")
    return after


# ---- one owner at a time -------------------------------------------------------------------------


def _for_each_owner(
    step: Pass, module: IRModule, kind_of: TargetKindLookup, watch: PassTimer
) -> IRModule:
    default = next(iter(module.targets), "")
    owners = dict.fromkeys(target_of(func) or default for func in module.functions.values())
    takes = {
        name: name not in module.targets or kind_of(module.targets[name]).passes.takes(step.name)
        for name in owners
    }
    if len(owners) == 1 and all(takes.values()):
        return watch.timed(step.name, next(iter(owners)), lambda: step(module))
    for name in owners:
        if takes[name]:
            module = watch.timed(step.name, name, lambda: _only(step, module, name, default))  # noqa: B023 - called at once
    return module


def _only(step: Pass, module: IRModule, name: str, default: str) -> IRModule:
    """`step` with every function of others empty, which are put back afterwards."""
    others = {k: f for k, f in module.functions.items() if (target_of(f) or default) != name}
    hidden = {k: _empty(f) for k, f in others.items()}
    after = step(replace(module, functions={**module.functions, **hidden}))
    functions = {k: others.get(k, func) for k, func in after.functions.items()}
    back = replace(after, functions={**functions, **{k: others[k] for k in others}})
    named = referenced_constants(back)
    constants = {
        **{k: c for k, c in module.constants.items() if k in after.constants or k in named},
        **after.constants,
    }
    return replace(back, constants=constants)


def _empty(function: AnyFunction) -> AnyFunction:
    match function:
        case Function():
            return replace(function, body=())
        case tir.PrimFunc():
            return replace(function, body=tir.Seq(()))


def count_functions_by_target(module: IRModule) -> dict[str, int]:
    """How many functions each target of the module's table has."""
    return {name: len(functions_for(module, name)) for name in module.targets}
