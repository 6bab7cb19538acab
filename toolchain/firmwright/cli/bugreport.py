"""`firmwright bugreport`: pack the data for a bug report into one archive."""

import argparse
import json
import platform
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.errors import FirmwrightError
from firmwright.base.templates import render_template
from firmwright.base.version import VERSION
from firmwright.cli import arguments
from firmwright.cli.doctor import ToolStatus, check_tools, status_to_json
from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.compilation import compile_for, options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model, write_file
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.package.option_serialization import serialize_options
from firmwright.package.zip_archive import zip_tree


def run(args: argparse.Namespace) -> Outcome:
    read, home = partial(arguments.prepare_compilation, args), str(Path.home())
    words, tools = args.words, check_tools()
    request = BugReportRequest(read, words, tools, args.with_weights, home)
    report = make_bug_report(request)
    write_file(args.output, report.data)
    weights = "with" if args.with_weights else "without"
    packed = f"{len(report.files)} files, {len(report.data):,} bytes"
    texts = [
        f"{args.output}: {packed}, {weights} weights.",
        format_table(["file", "bytes"], list(report.files.items())),
        f"Outcome of the compilation: {report.outcome}",
    ]
    data = {
        "file": args.output,
        "bytes": len(report.data),
        "files": dict(report.files),
        "with_weights": args.with_weights,
        "outcome": report.outcome,
    }
    return Outcome(data, "\n\n".join(texts))


@dataclass(frozen=True, slots=True)
class BugReportRequest:
    """The contents to pack; `read` returns the model with its options or raises."""

    read: Callable[[], tuple[Model, OptionValues]]
    words: Sequence[str]
    findings: Sequence[ToolStatus]
    with_weights: bool
    home: str


@dataclass(frozen=True, slots=True)
class BugReport:
    """The archive, the sizes of its files in bytes, and the compilation's outcome."""

    data: bytes
    files: Mapping[str, int]
    outcome: str


def make_bug_report(request: BugReportRequest) -> BugReport:
    texts, outcome = _compilation(request)
    template = "bugreport.txt.j2"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    versions = {
        "firmwright": VERSION,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": system,
        "encoding": sys.getfilesystemencoding(),
    }
    files: dict[str, str | bytes] = {
        "README.txt": render_template("firmwright.cli", template, request=request),
        "versions.json": _json(versions),
        "doctor.json": _json([status_to_json(status) for status in request.findings]),
        "outcome.txt": outcome + "\n",
        **texts,
    }
    for path, content in files.items():
        if isinstance(content, str):
            files[path] = _hide_home(content, request.home)
    tree = SourceTree(files)
    sizes = {path: len(data) for path, data in tree.encoded().items()}
    return BugReport(zip_tree(tree), sizes, outcome.splitlines()[-1])


def _compilation(request: BugReportRequest) -> tuple[dict[str, str | bytes], str]:
    """Compile the model; return the files to pack and the text of outcome.txt."""
    files: dict[str, str | bytes] = {
        "command.json": _json({"words": list(request.words)})
    }
    try:
        model, options_by_name = request.read()
        options = options_for(model.module, options_by_name)
        command_line = {
            "words": list(request.words),
            "options": serialize_options(options),
        }
        files["command.json"] = _json(command_line)
        if request.with_weights and model.source is not None:
            files[f"model/{model.name}.bin"] = model.source
        text = print_module(model.module, elide_constants=not request.with_weights)
        files["ir/00-import.fwir"] = text
        seen = [text]

        def add(name: str, module: IRModule) -> None:
            text = print_module(module, elide_constants=True)
            if text != seen[-1]:
                files[f"ir/{len(seen):02}-{name}.fwir"] = text
            seen.append(text)

        compiled = compile_for(model, watch=add, **options_by_name)
    except FirmwrightError as error:
        return files, f"{''.join(traceback.format_exception(error))}{error}"
    except Exception as error:  # noqa: BLE001 - crashes are reported, too
        return files, "".join(traceback.format_exception(error)).rstrip()
    return files, f"compiled: model id {compiled.model_id}"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _hide_home(text: str, home: str) -> str:
    """Replace the home folder by `~`, also as escaped in JSON and Windows paths."""
    if len(home.rstrip("/\\")) < 2:  # the root folder names no user
        return text
    for form in {home, home.replace("\\", "\\\\"), home.replace("\\", "/")}:
        text = text.replace(form, "~")
    return text
