"""Passes of users, which may change the whole module; the result is verified."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.errors import ModelError, PluginError, UsageError
from firmwright.base.plugin_calls import entry_points, package_of, plugin_call
from firmwright.base.suggestions import suggest_name
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.schedules.registry import INTRINSICS

UserPass: TypeAlias = "Pass | Callable[[IRModule], IRModule] | str"
"""A pass, a function, or text: `MODULE:FUNCTION[@PLACE]` or `ENTRY_POINT[@PLACE]`."""
IMPORT_STAGE = "import"
"""The place before the first pass of the pipeline."""
ENTRY_POINT_GROUP = "firmwright.passes"
"""The group of the entry points of installed packages that are passes."""


def make_user_pass(item: UserPass) -> Pass:
    """Return the pass with its place and origin, or raise UsageError."""
    if isinstance(item, Pass) and item.origin:
        return item
    name, _, place = item.partition("@") if isinstance(item, str) else ("", "", "")
    found = _load(name) if isinstance(item, str) else item
    if not callable(found):
        raise UsageError(
            f"the pass {name} is not a function.", hint="--pass MODULE:FUNCTION."
        )
    step: Pass
    if isinstance(found, Pass):
        run, step = found.run, found
    else:
        run, step = found, Pass(getattr(found, "__name__", "pass"), found)
    module = getattr(run, "__module__", "") or "unknown"
    function = getattr(run, "__qualname__", step.name)
    origin = f"{module}:{function} {package_of(module)}".rstrip()
    place = place or step.after or IMPORT_STAGE
    places = (IMPORT_STAGE, *PASS_NAMES)
    if place not in places:
        what = f"the pass {step.name} is to run after {place!r}, which is not a pass."
        raise UsageError(what, hint=f"{suggest_name(place, places)}.")
    if step.name in places:
        raise UsageError(
            f"the pass {step.name} has the name of another one.", hint="rename it."
        )
    return replace(step, after=place, origin=origin)


def _load(name: str) -> object:
    module, colon, function = name.partition(":")
    if not colon:
        points = entry_points(group=ENTRY_POINT_GROUP)
        named = [point for point in points if point.name == name]
        if not named:
            what = f"no installed package has an entry point {name}"
            what += f" in {ENTRY_POINT_GROUP}."
            hint = "install the package, or --pass MODULE:FUNCTION."
            raise UsageError(what, hint=hint)
        module, function = named[0].module, named[0].attr
    # The current folder, as `python -m` does; packages are installed elsewhere.
    own = [os.getcwd()] if colon else []
    sys.path[:0] = own
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        what = f"the pass {name} cannot be loaded: {error}."
        raise UsageError(
            what, hint="a module in this folder, or an installed one."
        ) from error
    finally:
        for folder in own:
            sys.path.remove(folder)


def insert_user_passes(
    steps: Sequence[Pass], passes: Sequence[Pass]
) -> tuple[Pass, ...]:
    """Insert each pass after its place, in the order given."""
    names: set[str] = set()
    for step in passes:
        if step.name in names:
            raise UsageError(
                f"two passes have the name {step.name}.", hint="rename one of them."
            )
        names.add(step.name)
    places = (IMPORT_STAGE, *(step.name for step in steps))
    for step in passes:
        if step.after not in places:
            raise UsageError(
                f"the pass {step.name} follows {step.after}, which does not run."
            )
    inserted = [_verified(step) for step in passes if step.after == IMPORT_STAGE]
    for step in steps:
        inserted.append(step)
        inserted += [_verified(own) for own in passes if own.after == step.name]
    return tuple(inserted)


def without_applied(module: IRModule, steps: Sequence[Pass]) -> tuple[Pass, ...]:
    applied = module.results.user_passes
    return tuple(step for step in steps if not step.after or step.name not in applied)


def _verified(step: Pass) -> Pass:
    label = f"the pass {step.name} ({step.origin})"

    def run(module: IRModule) -> IRModule:
        with plugin_call(label):
            after = step.run(module)
        if not isinstance(after, IRModule):
            kind = type(after).__name__
            raise PluginError(f"{label} returned {kind}, not an IRModule.")
        try:
            verify_module(after, op_table(), collect_intrinsics(after, INTRINSICS))
        except ModelError as error:
            raise PluginError(f"{label} left an invalid module: {error}") from error
        applied = (*module.results.user_passes, step.name)
        return replace(after, results=replace(after.results, user_passes=applied))

    return replace(step, run=run)
