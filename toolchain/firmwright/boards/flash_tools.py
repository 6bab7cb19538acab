"""The tools that can flash a board, with the argument that each needs."""

import re
from dataclasses import dataclass
from typing import Final

from firmwright.boards.problems import Problems
from firmwright.boards.toml_table import TomlTable
from firmwright.boards.trust import check_flash_argument

FLASH_RUNNERS: Final = {
    "st-flash": "more options, usually none",
    "openocd": "its configuration files, separated by blanks",
    "pyocd": "the target's name",
    "jlink": "the device's name",
    "esptool": "the chip's name",
    "picotool": "the family's name",
    "uf2": "the label of the volume that the boot ROM shows",
    "gdb": "HOST:PORT of the stub",
    "serial": "the protocol of a boot ROM: an3155",
}
"""The meaning of each tool's argument, by the tool's name."""
SERIAL_PROTOCOLS: Final = ("an3155",)

_USB: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class FlashTools:
    """Pairs of a tool and its argument, the default first, and the port's USB ids."""

    tools: tuple[tuple[str, str], ...] = ()
    usb: tuple[str, ...] = ()
    uf2_family: int = 0

    def argument_for(self, runner: str) -> str | None:
        """Return the argument of `runner`; None if it cannot flash the board."""
        return dict(self.tools).get(runner)


def read_flash_tools(table: TomlTable) -> FlashTools:
    """Read `[flash]`.

    Without `runner`, the default is the first tool of FLASH_RUNNERS that has a key.
    """
    table.expect_keys((*FLASH_RUNNERS, "runner", "usb", "uf2_family"))
    tools = [(name, table.text(name)) for name in FLASH_RUNNERS if table.has(name)]
    problems = Problems()
    for name, argument in tools:
        with problems.collect():
            check_flash_argument(table, name, argument)
    problems.raise_any()
    if table.has("runner"):
        first = table.choice("runner", [name for name, _ in tools])
        tools.sort(key=lambda tool: tool[0] != first)
    if table.has("serial"):
        table.choice("serial", SERIAL_PROTOCOLS)
    usb = table.strings("usb", ())
    for ids in usb:
        if not _USB.fullmatch(ids):
            what = f"{ids!r} is not a pair of vendor and product as '0483:374b'."
            raise table.error("usb", what)
    return FlashTools(tuple(tools), usb, table.integer("uf2_family", 0))
