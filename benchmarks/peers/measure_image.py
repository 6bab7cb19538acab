# ruff: noqa: INP001  # a script, not a package
r"""Count the instructions of another system's image, and write a row of peers.csv.

    python benchmarks/peers/measure_image.py IMAGE.elf --peer microTVM \
        --core cortex-m4 --model kws_ref_model.tflite \
        --source mlcommons/tiny_results_v1.0 --commit ... --how ...

Build the image as its project describes, for the machine of --board (bare-metal, ends
by semihosting) or, with --user, as a static Linux program for QEMU's user mode. It must
call FUNCTION (by default `root`, not inlined) for each inference; the last call counts,
as in Firmwright's own figures. The column `obtained` states compiler and options of
each image, and `root` calls

- TFLM: `MicroInterpreter::Invoke`, with the model's operators registered as int8;
- microTVM: `tvmgen_default_run` of the generated C, with an allocator for its memory;
- muRISCV-NN: as TFLM, with `--user qemu-riscv32` (for vectors also
  `-cpu rv32,v=true,vlen=128`).
"""

import argparse
import csv
from datetime import date
from pathlib import Path

from image_run import machine_command, run_image

from firmwright.boards import load_board

TABLE = Path(__file__).parent.parent / "peers.csv"
KEY = ("peer", "core", "model", "metric")
SCRIPT = "benchmarks/peers/measure_image.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("elf", type=Path)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument(
        "--user", default="", help="such as qemu-riscv32 -cpu rv32,v=true,vlen=128"
    )
    parser.add_argument("--function", default="root")
    parser.add_argument("--table", type=Path, default=TABLE)
    for name in ("peer", "core", "model", "source", "commit", "how"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    emulator = args.user.split() or machine_command(load_board(args.board))
    instructions = run_image(args.elf, emulator, args.function).instructions
    row = {
        **{
            key: getattr(args, key)
            for key in ("peer", "core", "model", "source", "commit")
        },
        **{
            "metric": "instructions",
            "value": str(instructions),
            "unit": "instructions",
        },
        **{"obtained": args.how, "script": SCRIPT, "date": str(date.today())},
    }
    with args.table.open(encoding="utf-8", newline="") as text:
        reader = csv.DictReader(text)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    rows = [other for other in rows if any(other[key] != row[key] for key in KEY)]
    with args.table.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, row])
    print(f"{args.peer} {args.model} {args.core}: {instructions:,} instructions")


if __name__ == "__main__":
    main()
