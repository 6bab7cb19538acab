"""Resolve the targets of a compilation: the board's core and the listed backends.

The module's target table has `cpu` first, then the backends in the user's order of
preference, named after their kinds (`npu1`, a second one `npu1_1`). Functions have
their target as attribute; the results of the hooks and passes of targets are checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from firmwright.base.errors import PluginError, UsageError
from firmwright.base.source_paths import module_file_problem
from firmwright.boards import Board
from firmwright.ir.core import Target
from firmwright.ir.graph.devices import is_core_target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule
from firmwright.partitioning.pattern_matching import active_backends
from firmwright.targets.registry import parse_target, parse_targets, target_kind_of


def target_of(function: AnyFunction) -> str:
    """Return the target that a function is assigned to; "" if it has none yet."""
    return str(function.attrs.get("target", ""))


def functions_on_target(module: IRModule, target: str) -> list[AnyFunction]:
    """Return the functions that are assigned to `target`."""
    return [func for func in module.functions.values() if target_of(func) == target]


_OTHER_SOURCES: Final = (
    ".cc",
    ".cpp",
    ".cxx",
    ".c++",
    ".s",
    ".asm",
    ".ino",
    ".m",
    ".rs",
    ".zig",
)
"""Suffixes of sources that build systems know but projects' builds do not compile."""
_BUILT: Final = (".c", ".o", ".a")
"""Suffixes of files that the build of a project compiles or links."""
_DEPTH: Final = len(PurePosixPath("backend/NAME/file.c").parts)
"""Number of parts of the path of a file that is built."""


def with_new_files(
    module: IRModule, files: Mapping[str, bytes], origin: str
) -> IRModule:
    """Add C files; PluginError for other content, or one that must not be written."""
    check_sources(files, origin, module.name)
    for path, data in files.items():
        problem = module_file_problem(path, module.files)
        if problem:
            what = f"{origin} writes the file {path}, which {problem}."
            raise PluginError(what, where=module.name)
        if module.files.get(path, data) != data:
            what = f"{origin} writes the file {path}, which exists with other content."
            hint = "a file name per region, such as that of `kernel.symbol`."
            raise PluginError(what, where=module.name, hint=hint)
    return replace(module, files={**module.files, **files}) if files else module


def check_sources(files: Iterable[str], origin: str, where: str) -> None:
    """Raise PluginError if a build would ignore one of `files`, paths in a project."""
    for path in map(PurePosixPath, files):
        if path.suffix.lower() in _OTHER_SOURCES or path.suffix == ".C":
            what = (
                f"{origin} has the file {path}, but builds and packages compile only C "
                "(.c)."
            )
            hint = (
                "write it in C, or add it compiled, as an object or archive (.o, .a)."
            )
            raise PluginError(what, where=where, hint=hint)
        if path.suffix in _BUILT and len(path.parts) > _DEPTH:
            what = (
                f"{origin} has the file {path}, but files in subfolders are not built."
            )
            raise PluginError(
                what, where=where, hint=f"the name {path.name}, without a folder."
            )


def targets_by_tensor(module: IRModule) -> dict[str, str]:
    """Return the target of the operator that makes each first output, "" for none."""
    targets: dict[str, str] = {}
    for function in module.functions.values():
        if not isinstance(function, Function):
            continue
        for call in function.body:
            is_region = call.target != "" and call.op.startswith("@")
            if not is_region:
                targets[call.outputs[0].name] = target_of(function)
    return targets


def check_only_modified(
    before: IRModule, after: IRModule, target: str, label: str
) -> None:
    """Raise UsageError if the pass `label` changed functions of other targets."""
    for name, function in before.functions.items():
        other = target_of(function)
        if other != target and after.functions.get(name) != function:
            owner = f"of target {other}" if other else "of no target yet"
            what = f"{label} changed the function @{name}, which is {owner}."
            hint = (
                f"a pass that rebuilds functions with the attribute target={target!r} "
                "alone."
            )
            raise UsageError(what, where=before.name, hint=hint)
    for name, constant in before.constants.items():
        if after.constants.get(name, constant) != constant:
            what = f"{label} changed the constant @{name}, which others may use."
            raise UsageError(
                what, where=before.name, hint="a new constant under another name."
            )
    for path, data in before.files.items():
        if after.files.get(path, data) != data:
            raise PluginError(f"{label} changed the file {path}.", where=before.name)
    for field in (
        "name",
        "targets",
        "pools",
        "io",
        "entry_name",
        "origin",
        "settings",
        "results",
        "attrs",
        "requests",
    ):
        if getattr(before, field) != getattr(after, field):
            what = f"{label} changed the {field} of the module."
            hint = "a pass that changes functions, constants and files alone."
            raise UsageError(what, where=before.name, hint=hint)


CORE_TARGET_NAME = "cpu"
"""Name of the main core in a module's target table."""


def resolve_targets(board: Board, text: str) -> dict[str, Target]:
    """Return the target table for `text`, the value of --target ("" = core only)."""
    known = parse_targets(", ".join((str(board_target(board)), *board.targets)))
    requested = parse_targets(text, known) if text else ()
    table = {CORE_TARGET_NAME: resolve_core(board, find_core(requested))}
    return {**table, **unique_target_names(filter(is_backend, requested))}


def find_core(targets: Sequence[Target]) -> Target | None:
    """Return the only core among targets, or None; UsageError if there are two."""
    cores = [target for target in targets if not is_backend(target)]
    if len(cores) > 1:
        what = f"two targets are cores: {cores[0]} and {cores[1]}."
        raise UsageError(what, hint="one core, after the backends.")
    return cores[0] if cores else None


def extend_targets(table: Mapping[str, Target], text: str) -> dict[str, Target]:
    """Add the targets of `text` to a module's table; a core replaces the table's core.

    Equal targets are not added; one without attributes is the target of its kind.
    """
    backends = _accelerators(table)
    requested = parse_targets(text, tuple(table.values()))
    core = find_core(requested) or table.get(CORE_TARGET_NAME)
    for target in filter(is_backend, requested):
        if requested.count(target) > backends.count(target):
            backends.append(target)
    extended: dict[str, Target] = {}
    if core is not None:
        extended[CORE_TARGET_NAME] = core
    return {**extended, **unique_target_names(backends)}


def _accelerators(table: Mapping[str, Target]) -> list[Target]:
    """Return the targets of a module's table that are no cores."""
    listed: list[Target] = []
    for name, target in table.items():
        if name != CORE_TARGET_NAME and not is_core_target(name):
            listed.append(target)
    return listed


def unique_target_names(targets: Iterable[Target]) -> dict[str, Target]:
    """Name targets after their kinds, with numbers for further ones: npu1, npu1_1."""
    named: dict[str, Target] = {}
    for target in targets:
        name, count = target.kind, 0
        while name in named:
            count += 1
            name = f"{target.kind}_{count}"
        named[name] = target
    return named


def resolve_core(board: Board, asked: Target | None) -> Target:
    """Return the board's core, or the requested one, which must not contradict it."""
    own = board_target(board)
    if asked is None:
        return own
    if not board.is_host and asked.kind == own.kind and asked != own:
        what = f"target {asked} contradicts board {board.name}, which is {own}."
        raise UsageError(what, hint="omit --target, or choose a board with that core.")
    if not board.is_host and asked.kind not in (own.kind, "c"):
        what = f"target {asked} cannot run on board {board.name}, which is {own}."
        raise UsageError(what)
    return asked


def board_target(board: Board) -> Target:
    """Return the target of a board's core."""
    if board.is_host:
        return parse_target("host")
    for port in ("cortex_m", "cortex_r", "xtensa"):
        if board.port == port:
            kind = port.replace("_", "-")
            return parse_target(f"{kind} -mcpu={board.core}")
    mcpu = f" -mcpu={board.pipeline}" if board.pipeline else ""
    return parse_target(f"riscv32 -march={board.core}{mcpu}")


def format_targets(targets: Sequence[Target]) -> str:
    return ", ".join(map(str, targets))


def canonical_target_string(targets: Mapping[str, Target], board: Board) -> str:
    """Return the value of --target that gives these targets on `board`."""
    core = targets.get(CORE_TARGET_NAME)
    listed = _accelerators(targets)
    if core is not None and core != board_target(board):
        listed.append(core)
    return format_targets(listed)


def is_backend(target: Target) -> bool:
    """Return whether the target executes parts of another target's program."""
    return not target_kind_of(target).is_core


def check_targets(module: IRModule, board: Board) -> None:
    """Raise UsageError if a function's target or a backend's pool is missing."""
    for function in module.functions.values():
        if target_of(function) and target_of(function) not in module.targets:
            targets = format_targets(tuple(module.targets.values()))
            raise UsageError(
                f"the function @{function.name} has the target {target_of(function)}, "
                f"which is not among the targets ({targets}).",
                where=module.name,
                hint=(
                    "omit --target, as the module names its own; or partition the "
                    "model again."
                ),
            )
    pool_names = [pool.name for pool in module.pools]
    for item in active_backends(module):
        for pool in item.backend.pools:
            if pool in pool_names:
                continue
            hint = f"a board whose memory map has a region {pool}."
            if board.is_host:
                hint = f"--pool {pool}=BYTES, in addition to the others."
            raise UsageError(
                f"the backend {item.name} needs the pool {pool}, which board "
                f"{board.name} does not have (its pools: "
                f"{', '.join(pool_names) or 'none'}).",
                hint=hint,
            )
