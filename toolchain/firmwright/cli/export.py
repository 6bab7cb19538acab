"""`firmwright export`: a model as a package for another build system."""

from __future__ import annotations

import argparse

from firmwright.base.version import VERSION
from firmwright.cli.base import Outcome, add_compile_options, add_model, compiled_of
from firmwright.cli.table import facts
from firmwright.flows.exporting import export_model
from firmwright.package.exporting import ARCHIVES, FORMATS

NAME = "export"
HELP = "write a model as a package for another build system"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="which build system")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="the folder, or of mlf and cmsis-pack the file"
    )
    parser.add_argument(
        "--with-tests",
        action="store_true",
        help="with the model file, known answers and tests for pytest --fw-board B",
    )
    add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    compiled = compiled_of(args)
    usual = ARCHIVES.get(args.format, "{name}")
    output = args.output or usual.format(name=compiled.module.name, version=VERSION)
    tree = export_model(compiled, args.format, output, with_tests=args.with_tests)
    data = {
        "model": compiled.module.name,
        "board": compiled.board.name,
        "format": args.format,
        "output": str(output),
        "files": list(tree.files),
    }
    rows = [("package", str(output)), ("format", args.format), ("files", len(tree.files))]
    return Outcome(data, facts(rows))
