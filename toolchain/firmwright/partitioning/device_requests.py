"""Applies the user's choice of devices to a module's settings and to named tensors."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.boards import Board
from firmwright.boards.peripherals import copy_channels, core_count
from firmwright.ir.graph.devices import (
    MAIN_DEVICE,
    is_copy_device,
    is_core,
    module_devices,
    parse_device,
)
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest, RequestOrigin
from firmwright.ir.settings import Devices
from firmwright.partitioning.backend_libraries import find_waits
from firmwright.partitioning.device_targets import (
    split_targets,
    with_core_targets,
    with_devices_of_targets,
)
from firmwright.partitioning.engine_instances import engine_device
from firmwright.passes.graph.placement_requests import (
    record_requests,
    record_text_requests,
)
from firmwright.passes.graph.value_names import with_unique_names

DeviceAssignments = Sequence[tuple[str, str, str]]
"""Tensors with their devices and pools.

The device computes or holds the tensor; the pool is "" if unspecified.
"""


def apply_device_requests(
    module: IRModule,
    board: Board,
    devices: Sequence[str],
    places: DeviceAssignments,
    *,
    fallback: bool,
) -> IRModule:
    """Return the module with its devices and the requests of its text and `places`.

    `devices` may have targets, as in `cpu1=cortex-m -mcpu=cortex-m33`.
    """
    engines = _engines(module)
    devices, targets = split_targets(devices)
    if devices:
        _check_names(devices, board, engines)
    elif fallback and not engines:
        raise UsageError(
            "--fallback requires other devices.", hint="--devices cpu0,cpu1."
        )
    if devices or engines or places:
        _check_interface(module)
        chosen = _devices(module, board, devices, fallback=fallback)
        module = replace(module, settings=replace(module.settings, devices=chosen))
    names = tuple(dict.fromkeys((MAIN_DEVICE, *module_devices(module), *engines)))
    module = with_devices_of_targets(with_core_targets(module, board, targets))
    module = record_text_requests(module, names)
    return _assign_values(module, places, names) if places else module


def _engines(module: IRModule) -> list[str]:
    """Return the devices of the targets that do not run on the main core."""
    devices = [engine_device(module, name) for name in module.targets]
    return [device for device in devices if device]


def _devices(
    module: IRModule, board: Board, devices: Sequence[str], *, fallback: bool
) -> Devices:
    """Return the devices of a module on `board`.

    Engines without a function that waits for them are emulated, by a spare core if
    there is one.
    """
    engines = _engines(module)
    waits = find_waits(module)
    emulated = [engine for engine in engines if engine not in waits]
    has_spare_core = board.cores is not None and "cpu1" not in devices
    copiers = tuple(filter(is_copy_device, devices))
    if engines and board.dma is not None and not copiers:
        copiers = tuple(copy_channels(board.dma, is_host=False))
    return Devices(
        names=tuple(devices),
        copiers=copiers,
        has_fallback=fallback,
        emulated_engines=tuple(emulated) if has_spare_core else (),
    )


def _assign_values(
    module: IRModule, places: DeviceAssignments, device_names: Collection[str]
) -> IRModule:
    """Return the module with the requests of `places`, after checks of each of them."""
    if not module.graphs:
        what = "tensors of a lowered module cannot be placed."
        hint = "place them when the model itself is compiled."
        raise UsageError(what, where=module.name, hint=hint)
    module = with_unique_names(module)
    requests = tuple(_checked_requests(module, places, device_names))
    return record_requests(module, requests)


def _checked_requests(
    module: IRModule, places: DeviceAssignments, device_names: Collection[str]
) -> Iterator[PlacementRequest]:
    """Yield the requests of `places`; raise UsageError for the first invalid one."""
    constants: set[str] = set()
    tensors: set[str] = set()
    for graph in module.graphs:
        for value in graph.values:
            tensors.add(value.name)
            if value.constant is not None:
                constants.add(value.name)
    pools = [pool.name for pool in module.pools if pool.access == "rw"]
    assignments: dict[str, tuple[str, str]] = {}
    for tensor, device, pool in places:
        problem, hint = "", ""
        if tensor not in tensors:
            problem = "the model has no such tensor"
            hint = f"{suggest_name(tensor, tensors)}."
        elif device not in device_names:
            problem = f"there is no device {device}"
            hint = f"one of {', '.join(device_names)}."
        elif pool and pool not in pools:
            problem = f"there is no pool {pool} to write to"
            hint = f"one of {', '.join(pools)}."
        elif tensor in constants and not pool:
            problem = "a constant is placed in a pool"
            hint = f"{tensor}={device}:{pools[0]}."
        elif assignments.get(tensor, (device, pool)) != (device, pool):
            other = ":".join(filter(None, assignments[tensor]))
            problem = f"it contradicts --assign-device {tensor}={other}"
        if problem:
            place = ":".join(filter(None, (device, pool)))
            message = f"--assign-device {tensor}={place} is invalid: {problem}."
            raise UsageError(message, where=module.name, hint=hint)
        assignments[tensor] = device, pool
        yield PlacementRequest(tensor, device, pool, RequestOrigin.DEVICE_OPTION)


def _check_names(devices: Sequence[str], board: Board, engines: Sequence[str]) -> None:
    """Raise UsageError for a device named twice or that the board does not have."""
    count = core_count(board.cores, is_host=board.is_host)
    cores = [f"cpu{number}" for number in range(count)]
    others = [*copy_channels(board.dma, is_host=board.is_host), *engines]
    for name in devices:
        parse_device(name)
        if devices.count(name) > 1:
            raise UsageError(f"the device {name} is named twice.")
        if name not in cores and name not in others:
            raise _unknown_device(name, board, cores, others)
    if devices[0] != MAIN_DEVICE:
        raise UsageError(
            f"the devices are {', '.join(devices)}; the first must be {MAIN_DEVICE}, "
            "which runs the model.",
            hint=f"--devices {','.join(dict.fromkeys([MAIN_DEVICE, *devices]))}.",
        )


def _unknown_device(
    name: str, board: Board, cores: Sequence[str], others: Sequence[str]
) -> UsageError:
    available = "one core, cpu0"
    if len(cores) > 1:
        available = f"the cores {', '.join(cores)}"
    if others:
        available += f", and {', '.join(others)}"
    hint = "--target with an accelerator that has this device."
    if is_core(name):
        hint = "a board with more cores, such as mps2-an521."
    message = f"there is no device {name}: the board has {available}."
    return UsageError(message, where=board.name, hint=hint)


def _check_interface(module: IRModule) -> None:
    """Raise UsageError if the interface has data that only the main core can access."""
    core_only = {
        "--io-buffers caller": module.io.mode == "caller",
        "--stream-input-rows": module.io.stream_input_rows,
    }
    for option, is_set in core_only.items():
        if is_set:
            raise UsageError(
                f"{option} and further devices cannot be combined: "
                "other devices can access only the pools.",
                where=module.name,
                hint="omit one of them.",
            )
