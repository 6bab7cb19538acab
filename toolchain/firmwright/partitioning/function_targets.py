"""The target of each function, and a check that a target's pass changed only its own functions."""

from firmwright.base.errors import UsageError
from firmwright.ir.module import AnyFunction, IRModule


def target_of(function: AnyFunction) -> str:
    return str(function.attrs.get("target", ""))


def functions_for(module: IRModule, target: str) -> list[AnyFunction]:
    return [func for func in module.functions.values() if target_of(func) == target]


def check_only_modified(before: IRModule, after: IRModule, target: str, label: str) -> None:
    """Raise UsageError if the pass `label` for `target` changed functions of other targets.

    New functions and constants are permitted.
    """
    for name, function in before.functions.items():
        other = target_of(function)
        if other != target and after.functions.get(name) != function:
            owner = f"of target {other}" if other else "of no target yet"
            raise UsageError(
                f"{label} changed the function @{name}, which is {owner}.",
                where=before.name,
                hint=f"a pass that rebuilds functions with the attribute target={target!r} alone.",
            )
    for name, constant in before.constants.items():
        if after.constants.get(name, constant) != constant:
            raise UsageError(
                f"{label} changed the constant @{name}, which others may use.",
                where=before.name,
                hint="a new constant under another name.",
            )
    for field in ("name", "targets", "pools", "io", "attrs"):
        if getattr(before, field) != getattr(after, field):
            raise UsageError(
                f"{label} changed the {field} of the module.",
                where=before.name,
                hint="a pass that changes functions, constants and files alone.",
            )
