"""`firmwright export`: export a model as a package for another build system."""

import argparse

from firmwright.base.version import VERSION
from firmwright.cli import arguments
from firmwright.cli.text_table import format_pairs
from firmwright.cli.verb import Outcome, add_options
from firmwright.flows.package_export import export_model
from firmwright.package.export_formats import ARCHIVES, FORMATS

NAME = "export"
HELP = "export a model as a package for another build system"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(parser)
    add_options(
        parser,
        """
        --format  the build system
        -o --output PATH  output folder; for mlf and cmsis-pack a file
        --with-tests  include the model file, known answers and tests for pytest --fw-board B
        """,
        format={"choices": FORMATS, "required": True},
    )
    arguments.add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    compiled = arguments.compile_from_args(args)
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
    return Outcome(data, format_pairs(rows))
