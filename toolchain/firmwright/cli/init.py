"""`firmwright init`: make a project with a model, or the package of a backend.

A project has options (firmwright.toml), a model, a test and a build.
"""

import argparse
import importlib.util
import os
import re
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
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.cores import CORE_KINDS

TEMPLATES = {
    PROJECT_FILE: "firmwright.toml.j2",
    "test_firmware.py": "test_firmware.py.j2",
    ".gitignore": "gitignore.j2",
}
BACKEND_TEMPLATES = {
    "pyproject.toml": "pyproject.toml.j2",
    "{module}/__init__.py": "backend.py.j2",
    "{module}/{module}.h": "backend.h.j2",
    "{module}/{module}.c": "backend.c.j2",
    "tests/test_{module}.py": "test_backend.py.j2",
    ".github/workflows/check.yml": "check.yml.j2",
    ".gitignore": "gitignore.j2",
}
NEXT_STEPS = ("firmwright verify", "firmwright profile", "firmwright build", "pytest")


def run(args: argparse.Namespace) -> Outcome:
    return _make_backend(args) if args.backend else _make_project(args)


def _make_project(args: argparse.Namespace) -> Outcome:
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


def _make_backend(args: argparse.Namespace) -> Outcome:
    """Write the package of a backend: pyproject, class, C, tests, workflow of a CI."""
    name = args.backend
    if args.model or args.board:
        what = "a backend's package has no model and no board."
        raise UsageError(what, hint="--backend NAME alone, or with -o.")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        what = f"{name!r} is no name of a target."
        hint = "small letters, digits and single hyphens, such as npu1 or my-npu."
        raise UsageError(what, where="--backend", hint=hint)
    module = name.replace("-", "_")
    if name in CORE_KINDS or BACKENDS.find(name) is not None:
        what = f"there is a target {name} already."
        raise UsageError(what, where="--backend", hint="another name.")
    if importlib.util.find_spec(module) is not None:
        what = f"there is a Python module {module} already."
        raise UsageError(what, where="--backend", hint="another name.")
    words = [word.capitalize() for word in module.split("_")]
    values = {"name": name, "module": module, "class": "".join(words)}
    files: dict[str, bytes] = {}
    for path, template in BACKEND_TEMPLATES.items():
        text = render_template("firmwright.cli", f"backend/{template}", **values)
        files[path.format(module=module)] = text.encode()
    folder = Path(args.output or f"firmwright-{name}")
    _write(folder, files)
    steps = [f"pip install -e '{folder}[test]'", f"firmwright backend test {name}"]
    rows = [
        ("backend", str(folder.resolve())),
        ("files", ", ".join(files)),
        ("next", "; ".join([*steps, f"pytest {folder}"])),
    ]
    data = {"directory": str(folder), "backend": name, "files": list(files)}
    return Outcome(data, format_pairs(rows))


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
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        what = f"the project cannot be written: {error.strerror}."
        raise UsageError(what, where=str(folder), hint="use another folder.") from error
