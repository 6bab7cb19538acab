"""`firmwright export`: export models as a package for another build system."""

import argparse
from typing import Any

from firmwright.cli import arguments
from firmwright.cli.model_list import (
    add_models_argument,
    check_several_models,
    compile_several_from_args,
)
from firmwright.cli.text_table import format_pairs
from firmwright.cli.verb import Outcome, add_options
from firmwright.flows.package_export import export_model, read_text_argument
from firmwright.package.export_formats import FORMATS
from firmwright.package.package_metadata import NO_METADATA, PackageMetadata
from firmwright.pipeline import bundle

NAME = "export"
HELP = "export models as a package for another build system"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models_argument(parser)
    add_options(
        parser,
        """
        --format  the build system
        -o --output PATH  output folder; for mlf and cmsis-pack a file
        --with-tests  include the model file, known answers and tests for pytest --fw-board B
        """,
        format={"choices": FORMATS, "required": True},
    )
    add_options(
        parser.add_argument_group("package"),
        f"""
        --package-name NAME  name of the package (default: the name of the model)
        --package-version X.Y.Z  semantic version of the package (default: {NO_METADATA.version})
        --maintainer WHO  name and address, such as 'Ada Co <ml@ada.example>' (default:
            {NO_METADATA.maintainer})
        --url URL  web page of the package
        --license-file FILE  text of the license, for the package's LICENSE
        """,
        package_version={"default": NO_METADATA.version},
        maintainer={"default": NO_METADATA.maintainer},
    )
    arguments.add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    check_several_models(args, {})
    metadata = _metadata(args)
    parts = compile_several_from_args(args)
    compiled = parts[0] if len(parts) == 1 else bundle(parts, concurrent=args.concurrent)
    tree, output = export_model(
        compiled, args.format, args.output, with_tests=args.with_tests, metadata=metadata
    )
    data: dict[str, Any] = {
        "model": compiled.summary.model,
        "board": compiled.board.name,
        "format": args.format,
        "output": str(output),
        "files": list(tree.files),
    }
    rows = [("package", str(output)), ("format", args.format), ("files", len(tree.files))]
    return Outcome(data, format_pairs(rows))


def _metadata(args: argparse.Namespace) -> PackageMetadata:
    text, file = "", args.license_file
    if file:
        text = read_text_argument(file, "license", "the path of a text file with --license-file")
    return PackageMetadata(
        name=args.package_name or "",
        version=args.package_version,
        maintainer=args.maintainer,
        url=args.url or "",
        license_text=text,
    )
