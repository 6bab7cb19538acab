# ruff: noqa: INP001  # a script, not a package
r"""Write the models of a calibration as points of silicon.csv.

    firmwright calibrate kws.tflite vww.tflite --board B --port P --json \
        > calibration.json
    python benchmarks/silicon_points.py calibration.json kws.tflite vww.tflite \
        --board B

Counts the same kernels in QEMU. Writes silicon/NAME.csv.gz, and appends rows to
silicon.csv, in the folder of this script or in --output. Settings and source are for
the contributor to complete.
"""

import argparse
import csv
import json
from dataclasses import fields
from datetime import date
from pathlib import Path

from count_elf import write_counts

from firmwright.bench.silicon_accuracy import SiliconPoint
from firmwright.boards import load_board
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calibration", type=Path)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--boards-dir", type=Path, action="append", default=[])
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    points = json.loads(args.calibration.read_text(encoding="utf-8"))["points"]
    measured = {point["name"]: point["measured"] for point in points}
    board = load_board(args.board, args.boards_dir)
    names = [field.name for field in fields(SiliconPoint)]
    (args.output / "silicon").mkdir(parents=True, exist_ok=True)
    table = args.output / "silicon.csv"
    is_new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([names] if is_new else [])
        for file in args.models:
            model = load_model(file)
            compiled = compile_for(model, args.board, board_dirs=tuple(args.boards_dir))
            counts = measure_instructions(compiled)
            cells = [cell for cell, _ in counts.executed]
            events = ("count", "fetch_stalls", "data_stalls", "unaligned")
            sums = [sum(getattr(cell, name) for cell in cells) for name in events]
            write_counts(
                args.output / "silicon" / f"{model.name}.csv.gz", counts.executed
            )
            core, mhz = board.pipeline or board.core, round(board.run_hz / 1e6)
            flash = ":".join(map(str, board.flash.read_model))
            head = (
                f"Firmwright {model.name}",
                f"{model.name}.csv.gz",
                core,
                board.name,
                mhz,
            )
            source = f"firmwright calibrate, {date.today()}"
            settings = "those of the board file"
            writer.writerow(
                (*head, flash, *sums, measured[model.name], settings, source)
            )


if __name__ == "__main__":
    main()
