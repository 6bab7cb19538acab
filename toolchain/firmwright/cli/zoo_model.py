"""One model of the catalog as text and as JSON, with the commands that use it."""

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from firmwright.boards import load_board
from firmwright.cli.fit import time_to_json
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.frontends.tflite import is_c_source
from firmwright.zoo.catalog import ZooModel, read_catalog
from firmwright.zoo.needs import ModelNeed, run_time_of

_TFLM = "TFLM"
"""The beginning of the reference of models that LiteRT does not run as they are."""


def source_to_json(model: ZooModel) -> dict[str, object]:
    source, facts = model.source, model.facts
    return {
        "name": source.name,
        "task": source.task,
        "sha256": source.sha256,
        "repository": source.repository,
        "path": source.path,
        "address": source.address,
        "license": source.license or None,
        "file_bytes": facts.bytes,
        "inputs": facts.inputs.split("; "),
        "outputs": facts.outputs.split("; "),
        "operators": facts.operators,
        "macs": facts.macs,
        "compared_with": facts.reference,
        "bit_exact": facts.is_exact,
        "version": facts.version,
    }


def need_to_json(need: ModelNeed) -> dict[str, object]:
    figures = need.figures
    return {
        "fits": need.fits,
        "workspace_bytes": figures.workspace_bytes,
        "flash_bytes": figures.flash_bytes,
        "stack_bytes": figures.stack_bytes,
        "instructions": figures.instructions,
        "milliseconds": time_to_json(need.time),
    }


def describe_model(model: ZooModel, board: str, file: Path | None) -> dict[str, object]:
    """Return the facts, the needs on each board, and the commands."""
    boards: dict[str, object] = {}
    for need in _needs(model):
        boards[need.figures.board] = need_to_json(need)
    return {
        **source_to_json(model),
        "file": str(file) if file else None,
        "boards": boards,
        "commands": commands_of(model, board, file),
        "note": array_note(model) or None,
    }


def format_model(model: ZooModel, board: str, file: Path | None) -> str:
    source, facts = model.source, model.facts
    result = "bit-exact with" if facts.is_exact else "within the tolerance of"
    pairs: list[tuple[str, Cell]] = [
        ("model", source.name),
        ("task", source.task),
        ("published", source.address),
        ("license", source.license or "see the repository"),
        ("sha256", source.sha256),
        ("file", f"{facts.bytes:,} bytes"),
        ("inputs", facts.inputs),
        ("outputs", facts.outputs),
        ("operators", f"{facts.operators}, {facts.macs:,} MACs"),
        ("verified", f"{result} {facts.reference}, by firmwright {facts.version}"),
    ]
    rows: list[Sequence[Cell]] = []
    for need in _needs(model):
        figures = need.figures
        row: list[Cell] = [figures.board, "yes" if need.fits else "no"]
        row += [figures.workspace_bytes, figures.flash_bytes, figures.stack_bytes]
        time = need.time.milliseconds if need.time else None
        rows.append([*row, figures.instructions, time])
    head = ["board", "fits", "RAM", "flash", "stack", "instructions", "modeled ms"]
    commands = "\n".join(f"  {command}" for command in commands_of(model, board, file))
    intro = "With this file:" if file else "With the file from there:"
    parts = [
        format_pairs(pairs),
        format_table(head, rows, drop=("stack", "instructions")),
        array_note(model),
        f"{intro}\n{commands}",
    ]
    return "\n\n".join(filter(None, parts))


def _needs(model: ZooModel) -> list[ModelNeed]:
    needs: list[ModelNeed] = []
    for name, figures in model.figures.items():
        time = run_time_of(figures, load_board(name))
        needs.append(ModelNeed(model, figures, figures.fits, time))
    return needs


def commands_of(model: ZooModel, board: str, file: Path | None = None) -> list[str]:
    """Return the commands for the model; without a file, for its published name."""
    path = PurePosixPath(model.source.path)
    name = str(file) if file else path.name
    if not file and array_note(model):
        name = f"{model.source.name}.tflite"
    settings = ""
    if model.facts.reference.startswith(_TFLM):
        settings += " --numerics tflm"
    if model.source.input_shape:
        settings += f" --input-shape {shlex.quote(model.source.input_shape)}"
    argument = f"{shlex.quote(name)} --board {board}{settings}"
    return [
        f"firmwright fit {argument}",
        f"firmwright verify {shlex.quote(name)}{settings}",
        f"firmwright compile {argument} -o {model.source.name}",
    ]


def array_note(model: ZooModel) -> str:
    """Return a note for a model that is not the largest array of its file, or ""."""
    source = model.source
    if not is_c_source(source.path):
        return ""
    for other in read_catalog():
        is_same_file = (other.source.repository, other.source.path) == (
            source.repository,
            source.path,
        )
        if is_same_file and other.facts.bytes > model.facts.bytes:
            return (
                "The file has several models, of which Firmwright reads the largest. "
                f"Save the bytes of this one's array as {source.name}.tflite."
            )
    return ""
