"""Main programs of firmware that extensions provide, in place of the server loop."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.errors import UsageError
from firmwright.base.extensions import merge_tables
from firmwright.package.custom_main import FirmwareMain
from firmwright.pipeline import Compilation

FirmwareFactory: TypeAlias = Callable[[Compilation], FirmwareMain]
"""A function that makes the main program of a model, or raises UsageError."""
SERIAL = "serial"
"""The name of the core's own main program, the server of the serial link."""


def with_firmware_main(compiled: Compilation, name: str) -> Compilation:
    """Return the compilation with main program `name`; UsageError if there is none."""
    if name == SERIAL:
        return compiled
    door = merge_tables(
        None, "FIRMWARE_MAINS", lambda extension: extension.firmware_mains
    )
    factories: Mapping[str, FirmwareFactory] = door
    if name not in factories:
        hint = f"one of {', '.join((SERIAL, *factories))}."
        raise UsageError(f"there is no firmware {name!r}.", hint=hint)
    return replace(compiled, firmware_main=factories[name](compiled))
