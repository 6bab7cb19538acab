"""`firmwright calibrate`: compare modeled cycles with a chip, correct a board file."""

import argparse
from dataclasses import asdict
from pathlib import Path

from firmwright.artifacts import Variant
from firmwright.base.errors import UsageError
from firmwright.base.resources import digits_dir
from firmwright.bench.calibration import calibrate, write_calibration
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import flash, plan_flashing, run_flash_command
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.model import load_model
from firmwright.pipeline import Compilation


def run(args: argparse.Namespace) -> Outcome:
    if not args.port:
        what = "there is no port at which cycles are counted."
        hint = "add --port /dev/ttyACM0, or another URL."
        raise UsageError(what, where="--port", hint=hint)

    def open_chip(compiled: Compilation, variant: Variant) -> ModelSession:
        image = build_image(compiled, variant)
        if args.flash_command:
            run_flash_command(image, args.flash_command)
        else:
            flash(plan_flashing(compiled.board, image))
        return open_session(
            compiled, port=args.port, timeout_s=args.timeout, image=image
        )

    files = args.models or [digits_dir() / "digits.tflite"]
    models = [load_model(name) for name in files]
    points, own = calibrate(models, args.board, open_chip, args.board_dirs)
    file = write_calibration(args.board, own, Path(args.output), args.board_dirs)
    waits = "unknown" if own.wait_states is None else own.wait_states
    rows: list[tuple[str, Cell]] = [
        ("scale", f"{own.scale} cycles on the chip for a modeled one"),
        ("range", f"{own.least} to {own.most}"),
        ("flash", f"{waits} wait states"),
        ("written", f"{file}, for --boards-dir {file.parent.parent}"),
    ]
    cells: list[list[Cell]] = []
    for point in points:
        ratio = f"{point.ratio:.3f}"
        cells.append([point.name, point.measured, point.modeled, ratio])
    table = format_table(["program", "on the chip", "modeled", "ratio"], cells)
    data = {"calibration": asdict(own), "points": [asdict(point) for point in points]}
    return Outcome({"file": str(file), **data}, f"{format_pairs(rows)}\n\n{table}")
