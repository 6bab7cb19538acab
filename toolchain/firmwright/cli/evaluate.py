"""`firmwright evaluate`: measure a model's and its firmware's accuracy on data."""

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.source_date import output_date
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.model import write_file
from firmwright.flows.verify.evaluation import evaluate
from firmwright.flows.verify.output_check import checked_by_evaluation
from firmwright.pipeline import Compilation
from firmwright.report.evaluation import (
    Evaluation,
    LayerAccuracy,
    describe_clipping,
    format_scores,
    render_evaluation,
)

ROWS_SHOWN = 20


def evaluate_from_args(args: argparse.Namespace, compiled: Compilation) -> Evaluation:
    return evaluate(
        compiled,
        args.data,
        labels=args.labels,
        classes=args.classes,
        against=args.against,
        metric=args.metric,
        output=args.output_name,
        samples=args.samples,
        compared=args.compare,
        open_with=make_session_opener(args),
    )


def run(args: argparse.Namespace) -> Outcome:
    compiled = arguments.compile_from_args(args)
    result = evaluate_from_args(args, compiled)
    if args.output:
        command, date = shown_command(args.words), output_date(os.environ)
        check = checked_by_evaluation(compiled, result, command, date)
        write_file(args.output, render_evaluation(result, check=check).encode())
    data = {
        "model": result.model,
        "board": result.board,
        "data": result.data,
        "samples": result.samples,
        "metric": result.metric,
        "is_labeled": result.is_labeled,
        "classes": result.classes,
        "runs": result.runs,
        "mismatches": result.mismatches,
        "confusions": result.confusions,
        "changed": result.changed,
        "compared": result.compared,
        "layers": result.layers,
        "html": args.output,
        "warnings": result.warnings,
    }
    return Outcome(data, format_evaluation(result))


def shown_command(words: Sequence[str]) -> str:
    """Return the command line; absolute paths are names of files, as pages travel."""
    shown: list[str] = []
    for word in words:
        option, equals, value = word.partition("=")
        if word.startswith("--") and equals and Path(value).is_absolute():
            shown.append(f"{option}={Path(value).name}")
        else:
            shown.append(Path(word).name if Path(word).is_absolute() else word)
    return shlex.join(["firmwright", *shown])


def format_evaluation(result: Evaluation) -> str:
    metric: str = result.metric
    if not result.is_labeled:
        metric = f"{metric}, without labels"
    agreement = "agrees with the model's runtime"
    if result.mismatches:
        agreement = f"{result.mismatches:,} values differ from the model's runtime"
    lines: list[tuple[str, Cell]] = [
        ("model", result.model),
        ("board", result.board),
        ("data", f"{result.data}: {result.samples:,} samples"),
        ("metric", metric),
        ("firmware", agreement),
    ]
    for text in result.warnings:
        lines.append(("warning", text))
    if result.first_loss:
        lines.append(("loss begins", result.first_loss))
    head, scores = format_scores(result.runs)
    parts = [format_pairs(lines), format_table(head, scores)]
    if result.has_matrix:
        table: list[list[Cell]] = []
        rows = zip(result.classes, result.confusion_matrix(), strict=True)
        for name, counts in rows:
            table.append([name, *(count or "·" for count in counts)])
        parts.append(format_table(["label \\ predicted", *result.classes], table))
    elif result.errors:
        errors: list[list[Cell]] = []
        for item in result.errors[:ROWS_SHOWN]:
            label = result.class_name(item.label)
            predicted = result.class_name(item.predicted)
            errors.append([label, predicted, item.count])
        parts.append(format_table(["label", "predicted", "samples"], errors))
    if result.changed:
        changed: list[list[str]] = []
        for sample in result.changed[:ROWS_SHOWN]:
            classes = (sample.label, sample.first, sample.firmware)
            changed.append([sample.name, *map(result.class_name, classes)])
        parts.append(f"samples that changed class: {len(result.changed):,}")
        head = ["sample", "label", result.runs[0].what, "firmware"]
        parts.append(format_table(head, changed))
    if result.layers:
        samples = f"{result.compared:,} samples"
        if result.compared < result.samples:
            samples = f"{result.compared:,} of the samples (--compare N for more)"
        parts.append(f"errors of layers over {samples}, worst first")
        parts.append(format_layers(result.layers[:ROWS_SHOWN]))
        parts.append(format_pairs(describe_clipping(result.layers)))
    return "\n\n".join(filter(None, parts))


def format_layers(layers: Sequence[LayerAccuracy]) -> str:
    """Format the errors of layers, with the share that clips if values of any do."""
    head = ["layer", "operator", "SQNR dB", "mean error", "max error", "largest value"]
    clips = any(layer.clipped for layer in layers)
    if clips:
        head.append("clips")
    rows: list[list[Cell]] = []
    for layer in layers:
        errors = (layer.mean_abs_error, layer.max_abs_error, layer.largest)
        figures = [f"{value:.3g}" for value in errors]
        if clips:
            figures.append(layer.clipped_share)
        rows.append([layer.label, layer.op, layer.sqnr_db, *figures])
    return format_table(head, rows)
