"""The devices that a compilation may use, from the user's words to attributes of the module.

In: what the user named, and the board. Out: attributes `devices` and `fallback` of the module, none
where nothing was named. UsageError for what the board does not have, and for what does not go
together with devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.boards.cores import core_count
from firmwright.ir.core import Attr
from firmwright.ir.graph.devices import DEVICES, MAIN, device_named
from firmwright.ir.module import IRModule


def with_devices(
    module: IRModule, board: Board, devices: Sequence[str], *, fallback: bool
) -> IRModule:
    """`module` that may use those devices besides the core that runs it."""
    if not devices:
        if fallback:
            raise UsageError(
                "--fallback is for what other devices do.", hint="--devices cpu0,cpu1."
            )
        return module
    _check_names(devices, board)
    _check_interface(module)
    attrs: dict[str, Attr] = {DEVICES: tuple(devices)}
    if fallback:
        attrs["fallback"] = True
    return module.with_attrs(**attrs)


def _check_names(devices: Sequence[str], board: Board) -> None:
    cores = [f"cpu{number}" for number in range(core_count(board.cores, is_host=board.is_host))]
    for name in devices:
        device_named(name)
        if devices.count(name) > 1:
            raise UsageError(f"the device {name} is named twice.")
        if name not in cores:
            has = f"the cores {', '.join(cores)}" if cores[1:] else "one core, cpu0"
            raise UsageError(
                f"there is no device {name}: the board has {has}.",
                where=board.name,
                hint="a board with more cores, such as mps2-an521.",
            )
    if devices[0] != MAIN:
        raise UsageError(
            f"the devices are {', '.join(devices)}; the first must be {MAIN}, "
            "which runs the model.",
            hint=f"--devices {','.join([MAIN, *(name for name in devices if name != MAIN)])}.",
        )


def _check_interface(module: IRModule) -> None:
    """Other devices know the pools alone: what they work on lies there or is linked."""
    wrong = {
        "--io caller": module.io.mode == "caller",
        "--input-rows": module.io.input_rows,
        "--no-link-params": not module.attrs.get("link_params", True),
        "constants that a function reads": any(
            pool.scope in ("port", "async") for pool in module.pools
        ),
    }
    for what, is_so in wrong.items():
        if is_so:
            raise UsageError(
                f"{what} and further devices do not go together: these see the pools alone.",
                where=module.name,
                hint="leave one of them out.",
            )
