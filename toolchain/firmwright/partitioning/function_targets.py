"""Whose a function is, and the proof that nobody else's was touched.

In: a module before and after something that belongs to one target. Out: nothing, or one UsageError
that names what was changed and by whom: plug-ins are other people's code.
"""

from __future__ import annotations

from firmwright.base.errors import UsageError
from firmwright.ir.module import AnyFunction, IRModule


def target_of(function: AnyFunction) -> str:
    """The name, in the module's table, of the target that the function carries; "" if none."""
    return str(function.attrs.get("target", ""))


def functions_for(module: IRModule, target: str) -> list[AnyFunction]:
    """The functions of that target, in the module's order."""
    return [func for func in module.functions.values() if target_of(func) == target]


def check_only_modified(before: IRModule, after: IRModule, target: str, what: str) -> None:
    """UsageError if `what`, which works for `target`, changed more than that one's functions.

    New functions and constants are its own too.
    """
    for name, function in before.functions.items():
        found = after.functions.get(name)
        if target_of(function) != target and found is not function and found != function:
            whose = target_of(function)
            raise UsageError(
                f"{what} changed the function @{name}, which is "
                f"{f'of target {whose}' if whose else 'of no target yet'}.",
                where=before.name,
                hint=f"a pass that rebuilds functions with the attribute target={target!r} alone.",
            )
    for name, constant in before.constants.items():
        if name in after.constants and after.constants[name] != constant:
            raise UsageError(
                f"{what} changed the constant @{name}, which others may use.",
                where=before.name,
                hint="a new constant under another name.",
            )
    for fact in ("name", "targets", "pools", "io", "attrs"):
        if getattr(before, fact) != getattr(after, fact):
            raise UsageError(
                f"{what} changed the {fact} of the module.",
                where=before.name,
                hint="a pass that changes functions, constants and files alone.",
            )
