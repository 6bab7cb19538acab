"""`firmwright run`: inputs in, outputs out, on host, emulator or board."""

from __future__ import annotations

import argparse

from firmwright.base.errors import UsageError
from firmwright.cli.base import (
    Outcome,
    add_compile_options,
    add_model,
    add_samples,
    compiled_of,
)
from firmwright.cli.running_options import add_device, add_variant, opener
from firmwright.cli.table import Cell, shape_text, table
from firmwright.flows.inputs import Batch, batch_of, generated, read_npz, stack, write_npz
from firmwright.pipeline import Compiled

NAME = "run"
HELP = "run a model on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--input", metavar="NPZ", help="arrays by tensor name, or input_1, input_2, ..."
    )
    parser.add_argument("--output", metavar="NPZ", help="write the outputs here, by tensor name")
    add_samples(parser, None)
    add_compile_options(parser)
    add_device(parser)
    add_variant(parser)


def run(args: argparse.Namespace) -> Outcome:
    compiled = compiled_of(args)
    batch = batch_of_args(args, compiled)
    with opener(args)(compiled) as session:
        outputs = stack(session.run_all(batch.samples), stacked=batch.stacked)
    if args.output:
        write_npz(args.output, outputs)
    data = {
        "model": compiled.module.name,
        "board": compiled.board.name,
        "samples": len(batch.samples),
        "outputs": {
            name: {"dtype": str(array.dtype), "shape": list(array.shape)}
            for name, array in outputs.items()
        },
    }
    rows: list[list[Cell]] = [
        [name, str(array.dtype), shape_text(array.shape), preview(array.reshape(-1).tolist())]
        for name, array in outputs.items()
    ]
    return Outcome(data, table(["output", "dtype", "shape", "values"], rows))


def batch_of_args(args: argparse.Namespace, compiled: Compiled) -> Batch:
    """The samples that --input or --samples name."""
    inputs = compiled.module.io.inputs
    if args.input and args.samples is not None:
        raise UsageError("--input and --samples exclude each other.", hint="one of them.")
    if args.input:
        return batch_of(read_npz(args.input), inputs, args.input)
    if args.samples is None:
        raise UsageError("there is nothing to run on.", hint="--input IN.npz, or --samples N.")
    return generated(inputs, args.samples, args.seed)


def preview(values: list[float], most: int = 12) -> str:
    shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values[:most]]
    return " ".join(shown) + (" ..." if len(values) > most else "")
