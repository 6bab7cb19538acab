# ruff: noqa: INP001  # a script, not a package
"""Count one call of a function of a bare-metal image in QEMU, for silicon.csv.

    python benchmarks/count_elf.py IMAGE.elf --flash 5:8:1024:256:0:0:0 -o POINT.csv.gz

Writes the most frequent instructions with their executions. Prints all executions, the
stalls of fetches and of data (--flash and --ram take the numbers of the plugin) and the
unaligned accesses. The image must run on the board's QEMU machine, call FUNCTION at
least once, and exit.
"""

import argparse
import csv
import gzip
import io
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from firmwright.boards import load_board
from firmwright.build.disassembler import disassemble
from firmwright.build.elf_reader import read_sections_and_symbols
from firmwright.device.instruction_counter import (
    InstructionCount,
    InstructionCounter,
    build_counter_plugin,
)
from firmwright.flows.board.build_cache import cache_root
from firmwright.targets.disassembly import Instruction

COVERAGE = 0.98
SETS = {
    "writes": "writes",
    "reads": "reads",
    "address_registers": "address",
    "base": "base",
    "early": "early",
    "late": "late",
}
HEAD = ("address", "size_bytes", "kind", "variant", "target", "words")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("elf", type=Path)
    parser.add_argument("--root", default="root")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--flash", default="0:4:0:0:0:0:0")
    parser.add_argument("--ram", default="", help="ADDRESS:SIZE:WAITS of cached RAM")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    board = load_board(args.board)
    instructions = disassemble(board, args.elf)
    _, symbols = read_sections_and_symbols(args.elf)
    root = next(symbol for symbol in symbols if symbol.name == args.root)
    flash = (
        board.flash.start,
        board.flash.size_bytes,
        *map(int, args.flash.split(":")),
    )
    ram = [int(number, 0) for number in args.ram.split(":") if number]
    plugin = build_counter_plugin(cache_root() / "plugins")
    with InstructionCounter(
        plugin, root.address & ~1, root.size_bytes, (), flash, ram=ram
    ) as counter:
        machine = [
            board.run.program,
            "-M",
            board.run.machine,
            *board.run.args,
            "-nographic",
            "-semihosting",
        ]
        command = [*machine, "-kernel", str(args.elf), "-plugin", counter.argument]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=600)
        cells = counter.read()
    total = sum(cell.count for cell in cells)
    write_counts(args.output, ((c, instructions[c.address]) for c in cells))
    sums = [
        sum(getattr(c, n) for c in cells)
        for n in ("fetch_stalls", "data_stalls", "unaligned")
    ]
    print(args.output.name, total, *sums, sep=",")


def write_counts(
    file: Path, executed: Iterable[tuple[InstructionCount, Instruction]]
) -> None:
    """Write the most frequent instructions with the executions from all call sites."""
    merged: dict[int, tuple[InstructionCount, Instruction]] = {}
    for cell, what in executed:
        before, _ = merged.get(cell.address, (replace(cell, count=0, taken=0), what))
        count, taken = cell.count + before.count, cell.taken + before.taken
        merged[cell.address] = replace(cell, count=count, taken=taken), what
    rows = [merged[address] for address in sorted(merged)]
    total, least, seen = sum(cell.count for cell, _ in rows), 0, 0
    for least in sorted((cell.count for cell, _ in rows), reverse=True):
        seen += least
        if seen >= COVERAGE * total:
            break
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*HEAD, *SETS, "count", "taken"))
    for cell, what in rows:
        if cell.count >= least:
            sets = [" ".join(sorted(getattr(what, name))) for name in SETS.values()]
            place = (cell.address, what.size_bytes, what.kind, what.variant)
            head = (*place, what.target, what.words)
            writer.writerow((*head, *sets, cell.count, cell.taken))
    file.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


if __name__ == "__main__":
    main()
