"""`firmwright init`: make a project: options (firmwright.toml), model, test, build."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.resources import digits_dir
from firmwright.base.templates import render_template
from firmwright.boards import load_board
from firmwright.cli.project_file import PROJECT_FILE
from firmwright.cli.text_table import format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.model.model import MODEL_SUFFIXES, load_model

TEMPLATES = {
    PROJECT_FILE: "firmwright.toml.j2",
    "test_firmware.py": "test_firmware.py.j2",
    ".gitignore": "gitignore.j2",
}
NEXT_STEPS = ("firmwright verify", "firmwright profile", "firmwright build", "pytest")


def run(args: argparse.Namespace) -> Outcome:
    folder = Path(args.output or ".")
    board = load_board(args.board or "host", args.board_dirs).name
    source = Path(args.model) if args.model else _find_model(folder)
    model = load_model(source)
    is_inside = source.resolve().is_relative_to(folder.resolve())
    values = {
        "model": os.path.relpath(source, folder) if is_inside else source.name,
        "board": board,
    }
    files: dict[str, bytes] = {}
    for name, template in TEMPLATES.items():
        text = render_template("firmwright.cli", template, **values)
        files[name] = text.encode()
    if not is_inside:
        # The source of an ONNX model includes data in other files.
        is_onnx = source.suffix == ".onnx"
        files[source.name] = (is_onnx and model.source) or source.read_bytes()
    others = {path.name for path in folder.glob("[!.]*")} - {values["model"]}
    if args.output is None and others:
        what = f"the current folder is not empty; init would add {', '.join(files)}."
        hint = "-o DIR, or -o . for this folder."
        raise UsageError(what, where=str(folder.resolve()), hint=hint)
    _write(folder, files)
    steps = [] if folder == Path() else [f"cd {folder}"]
    rows = [
        *values.items(),
        ("files", ", ".join(files)),
        ("next", "; ".join([*steps, *NEXT_STEPS])),
    ]
    data = {"directory": str(folder), **values, "files": list(files)}
    return Outcome(data, format_pairs([("project", str(folder.resolve())), *rows]))


def _find_model(folder: Path) -> Path:
    """Return the only model file in `folder`; without one, the bundled model."""
    suffixes = (*MODEL_SUFFIXES, ".keras")
    models = [file for file in sorted(folder.glob("*")) if file.suffix in suffixes]
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        what = f"the folder has several models: {names}."
        raise UsageError(what, where=str(folder), hint="name one of them.")
    return models[0] if models else digits_dir() / "digits.tflite"


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name in files:
        if (folder / name).exists():
            what = f"{name} exists already."
            hint = "use another folder, or remove the file."
            raise UsageError(what, where=str(folder), hint=hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        what = f"the project cannot be written: {error.strerror}."
        raise UsageError(what, where=str(folder), hint="use another folder.") from error
