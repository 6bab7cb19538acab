"""Firmware of a real board in QEMU: its kernels and memory on a machine of its core."""

from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.boards import list_boards
from firmwright.boards.schema import with_memory_of
from firmwright.pipeline import Compilation


def emulate(compiled: Compilation) -> Compilation:
    """Return `compiled` for a QEMU machine with equal kernels if its board is real."""
    board = compiled.board
    if board.run.kind != "serial":
        return compiled
    core = board.core
    if core.startswith("cortex-m0"):
        core = "cortex-m3"  # Its instructions are a superset.
    machines = [m for m in list_boards() if m.core == core and m.run.kind == "qemu"]
    if not machines:
        hint = "use a board with another core."
        raise UsageError(
            f"QEMU has no machine with a {core}.", where=board.name, hint=hint
        )
    machine = max(machines, key=lambda machine: machine.ram_bytes or 0)
    machine = with_memory_of(replace(machine, core=board.core), board)
    kept = ("name", "cpu_flags", "compiler", "limits")
    same = {key: getattr(board, key) for key in kept}
    return replace(compiled, board=replace(machine, **same))
