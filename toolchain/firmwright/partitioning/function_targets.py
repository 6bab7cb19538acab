"""The target of each function, and checks of what the hooks and passes of targets produce."""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.errors import PluginError, UsageError
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule


def target_of(function: AnyFunction) -> str:
    return str(function.attrs.get("target", ""))


def functions_for(module: IRModule, target: str) -> list[AnyFunction]:
    return [func for func in module.functions.values() if target_of(func) == target]


def with_new_files(module: IRModule, files: Mapping[str, bytes], origin: str) -> IRModule:
    """Add C files; raise PluginError if one exists with other content."""
    for path, data in files.items():
        if module.files.get(path, data) != data:
            raise PluginError(
                f"{origin} writes the file {path}, which exists with other content.",
                where=module.name,
                hint="a file name per region, such as that of `kernel.symbol`.",
            )
    return replace(module, files={**module.files, **files}) if files else module


def targets_by_tensor(module: IRModule) -> dict[str, str]:
    """Return the target of the operator that makes each first output; "" if it has none yet."""
    return {
        call.outputs[0].name: target_of(function)
        for function in module.functions.values()
        if isinstance(function, Function)
        for call in function.body
        if not (call.target and call.op.startswith("@"))
    }


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
    for path, data in before.files.items():
        if after.files.get(path, data) != data:
            raise PluginError(f"{label} changed the file {path}.", where=before.name)
    for field in ("name", "targets", "pools", "io", "attrs"):
        if getattr(before, field) != getattr(after, field):
            raise UsageError(
                f"{label} changed the {field} of the module.",
                where=before.name,
                hint="a pass that changes functions, constants and files alone.",
            )
