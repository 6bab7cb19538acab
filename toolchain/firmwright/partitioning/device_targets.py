"""The targets of cores: which instructions the code of each core may have.

The target of a further core is in the module's table under the name of its device, such
as `cpu1`. It chooses the kernels of the calls there, and the flags of their C file.
Cores without one execute code for the main core, whose instructions all cores have.
"""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.ir.core import Target
from firmwright.ir.graph.devices import (
    MAIN_DEVICE,
    core_targets,
    device_name,
    is_core_target,
    with_device,
)
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.target_resolution import (
    CORE_TARGET_NAME,
    board_target,
    is_backend,
)
from firmwright.passes.graph.value_names import map_values
from firmwright.passes.map_functions import map_graph_functions
from firmwright.targets.registry import parse_target, target_features


def split_targets(devices: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Target]]:
    """Return the names in the value of --devices, and the targets that it gives."""
    names: list[str] = []
    targets: dict[str, Target] = {}
    for item in devices:
        name, equals, text = item.partition("=")
        names.append(name)
        if equals:
            targets[name] = parse_target(text)
    return tuple(names), targets


def join_targets(module: IRModule) -> tuple[str, ...]:
    """Return the value of --devices that gives the module's devices and targets."""
    joined: list[str] = []
    for name in module.settings.devices.names:
        own = f"={module.targets[name]}" if name in core_targets(module) else ""
        joined.append(f"{name}{own}")
    return tuple(joined)


def with_core_targets(
    module: IRModule, board: Board, targets: dict[str, Target]
) -> IRModule:
    """Return the module with targets of cores; UsageError if one cannot run there."""
    main = module.targets[CORE_TARGET_NAME]
    for name, target in targets.items():
        problem = hint = ""
        if name == MAIN_DEVICE or not is_core_target(name):
            problem = "only cores beside the main core have a target here"
            hint = "--target for the main core and for accelerators."
        elif is_backend(target):
            problem = "this is the target of an accelerator"
            hint = "--target with it."
        elif not _can_run(board, target):
            own = _core_target(board)
            problem = f"{name} of board {board.name} is {own}"
            hint = f"--devices '{MAIN_DEVICE},{name}={own}'."
        elif module.settings.devices.has_fallback and not _has_features(main, target):
            problem = f"with --fallback, {MAIN_DEVICE} executes the calls of {name} too"
            hint = "omit one of them."
        if problem:
            what = f"{name} cannot have the target {target}: {problem}."
            raise UsageError(what, where=module.name, hint=hint)
    others = {n: t for n, t in targets.items() if t != main}
    return replace(module, targets={**module.targets, **others})


def _core_target(board: Board) -> Target:
    """Return the target of the further cores of a board."""
    if board.cores is None or not board.cores.core:
        return board_target(board)
    return board_target(replace(board, core=board.cores.core))


def _can_run(board: Board, target: Target) -> bool:
    own = _core_target(board)
    is_known = target.kind in (own.kind, "c")
    return board.is_host or (is_known and _has_features(own, target))


def _has_features(core: Target, target: Target) -> bool:
    """Return whether a core has all instructions of a target."""
    return target_features(target) <= target_features(core)


def core_flags(
    module: IRModule, board: Board
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the compiler flags of the cores with a target, after those of the board.

    Floats are passed as on the main core, in integer registers if it has no others.
    """
    flags: list[tuple[str, tuple[str, ...]]] = []
    for name in () if board.is_host else core_targets(module):
        target, own = module.targets[name], []
        if target.kind == "cortex-m":
            own.append(f"-mcpu={target.attr('mcpu')}")
            has_fpu = "fpu" in target_features(target)
            if has_fpu and "-mfloat-abi=soft" in board.cpu_flags:
                own.append("-mfloat-abi=softfp")
        flags.append((name, tuple(own)))
    return tuple(flags)


def with_devices_of_targets(module: IRModule) -> IRModule:
    """Return the module with the device of each target that its text gives a value.

    Raises UsageError if the text gives the value another device.
    """
    values = (value for graph in module.graphs for value in graph.values)
    if not any(value.virtual_device.target for value in values):
        return module

    def placed(value: Value) -> Value:
        target = value.virtual_device.target
        if not target:
            return value
        device = _device_of(module, target)
        own = device_name(value.virtual_device)
        if own not in ("", device):
            raise UsageError(
                f"the tensor {value.name} has two contradictory assignments: its own "
                f"text assigns it to {own} and to the target {target}, which is "
                f"{device}.",
                where=module.name,
                hint="omit one of the two.",
            )
        return with_device(value, device)

    return map_graph_functions(module, lambda graph: map_values(graph, placed))


def _device_of(module: IRModule, target: str) -> str:
    """Return the device whose calls have a target; UsageError for an unknown one."""
    if target in core_targets(module):
        return target
    if target not in module.targets:
        what = f"its own text names the target {target}, which no device has."
        hint = f"one of {', '.join(module.targets)}; or --devices with a target."
        raise UsageError(what, where=module.name, hint=hint)
    return engine_device(module, target) or MAIN_DEVICE
