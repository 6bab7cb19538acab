"""`firmwright run`: run a model on the host, an emulator or a board."""

import argparse

from firmwright.base.display_names import format_shape
from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.samples import sample_batches
from firmwright.flows.samples.sample_batches import read_inputs
from firmwright.pipeline import Compilation

_VALUES_SHOWN = 12


def run(args: argparse.Namespace) -> Outcome:
    compiled = arguments.compile_from_args(args)
    batch = batch_from_args(args, compiled)
    with make_session_opener(args)(compiled) as session:
        outputs = sample_batches.stack_outputs(session.run_all(batch.samples), batch)
    if args.output:
        sample_batches.write_npz(args.output, outputs)
    kinds: dict[str, object] = {}
    rows: list[tuple[str, str, str, str]] = []
    for name, array in outputs.items():
        dtype, shape = str(array.dtype), format_shape(array.shape)
        kinds[name] = {"dtype": dtype, "shape": array.shape}
        rows.append((name, dtype, shape, _preview(array.ravel().tolist())))
    data = {
        "model": compiled.module.name,
        "board": compiled.board.name,
        "samples": len(batch.samples),
        "outputs": kinds,
    }
    table = format_table(["output", "dtype", "shape", "values"], rows)
    text = "\n\n".join(filter(None, [table, "\n".join(batch.notes)]))
    return Outcome(data, text, warnings=batch.warnings)


def batch_from_args(
    args: argparse.Namespace, compiled: Compilation
) -> sample_batches.SampleBatch:
    if args.input and args.samples is not None:
        raise UsageError(
            "--input and --samples exclude each other.", hint="omit one of them."
        )
    if args.input:
        return read_inputs(args.input, compiled)
    if args.samples is None:
        raise UsageError(
            "no input was given.", hint="add --input IN.npz, or --samples N."
        )
    return sample_batches.generate_largest(compiled.module, args.samples, args.seed)


def _preview(values: list[float]) -> str:
    shown: list[str] = []
    for value in values[:_VALUES_SHOWN]:
        shown.append(f"{value:.6g}" if isinstance(value, float) else str(value))
    return " ".join(shown) + (" ..." if len(values) > _VALUES_SHOWN else "")
