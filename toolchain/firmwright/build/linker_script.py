"""Generates the linker script and board header from a board's memory map and drivers.

The stack is at the start of the first RAM region, so that an overflow faults. Every
region has a `.noinit.REGION` section for pools. Secondary flash regions and regions
with a constant pool hold `.rodata.REGION`, or `.external.REGION` (for
`.noinit.REGION.external`) outside of the image.
"""

from firmwright.base.templates import render_template
from firmwright.boards import Board
from firmwright.boards.memory import MemoryRegion

_GUARDS = (0x10000, 0x1000, 0x100)
"""Sizes of the area below the stack that are tried, the largest first."""
_ENTRY = {
    "cortex_m": "fwr_reset_handler",
    "cortex_r": "fwr_start",
    "riscv32": "fwr_start",
    "xtensa": "fwr_start",
}


def format_linker_script(board: Board) -> str:
    return render_template(
        "firmwright.build",
        "link.ld.j2",
        board=board,
        entry=_ENTRY[board.port],
        extra_regions=extra_constant_regions(board),
    )


def extra_constant_regions(board: Board) -> tuple[MemoryRegion, ...]:
    """Return regions other than the program's flash for constants of the image."""
    extra: list[MemoryRegion] = []
    for region in board.memory:
        holds_constants = region.kind == "flash" or region.const_pool
        if holds_constants and region != board.flash:
            extra.append(region)
    return tuple(extra)


def format_board_header(board: Board) -> str:
    guard_bytes = stack_guard_bytes(board)
    return render_template(
        "firmwright.build", "fwr_board.h.j2", board=board, guard_bytes=guard_bytes
    )


def stack_guard_bytes(board: Board) -> int:
    """Return the size of the area below the stack that the MPU protects, or 0.

    It is a power of two.
    """
    low = board.ram.start
    for size in _GUARDS:
        overlaps = any(r.start < low and r.end > low - size for r in board.memory)
        if low % size == 0 and low >= size and not overlaps:
            return size
    return 0
