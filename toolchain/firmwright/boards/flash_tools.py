"""How firmware gets onto a board: which tools can, what each calls the chip, who it is on USB.

In: the table `[flash]` of a board. Out: a `FlashTools`. A tool's key is its name; its value is what
that tool must be told of this chip: a name, a file, an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from firmwright.base.errors import BoardError
from firmwright.boards.toml_table import TomlTable

FLASH_RUNNERS: Final = {
    "st-flash": "further options, mostly none",
    "openocd": "its configuration files, with blanks between them",
    "pyocd": "the target's name",
    "jlink": "the device's name",
    "esptool": "the chip's name",
    "picotool": "the family's name",
    "uf2": "the label of the volume that the boot ROM shows",
    "gdb": "HOST:PORT of the stub",
    "serial": "the protocol: an3155 of a boot ROM, or loader: our own",
}
"""The tools by name, and what a board tells them."""
BOOTLOADER_PROTOCOL: Final = "bootloader"
SERIAL_PROTOCOLS: Final = ("an3155", BOOTLOADER_PROTOCOL)

_USB: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class FlashTools:
    """Tools and what they are told, the one taken first at the beginning; USB ids of the port."""

    tools: tuple[tuple[str, str], ...] = ()
    usb: tuple[str, ...] = ()
    uf2_family: int = 0

    def argument_for(self, runner: str) -> str | None:
        """What `runner` must know of this board; None where it cannot flash it."""
        return dict(self.tools).get(runner)


def read_flash_tools(table: TomlTable) -> FlashTools:
    """What `table` says; without a `runner` the first of RUNNERS that it names is the default."""
    table.expect_keys((*FLASH_RUNNERS, "runner", "usb", "uf2_family"))
    tools = [(name, table.text(name)) for name in FLASH_RUNNERS if table.has(name)]
    if table.has("runner"):
        first = table.choice("runner", [name for name, _ in tools])
        tools.sort(key=lambda tool: tool[0] != first)
    if table.has("serial"):
        table.choice("serial", SERIAL_PROTOCOLS)
    usb = table.strings("usb", ())
    for ids in usb:
        if not _USB.fullmatch(ids):
            what = f"{ids!r} is not a vendor and a product as '0483:374b'."
            raise BoardError(what, where=table.where("usb"))
    return FlashTools(tuple(tools), usb, table.integer("uf2_family", 0))
