"""`firmwright export`: export models as a package for another build system."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from firmwright.base.extensions import merge_tables
from firmwright.cli.fit import figures, fit_to_json
from firmwright.cli.model_list import check_several_models, compile_several_from_args
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.export.package_export import (
    ExportedPackage,
    export_model,
    parts_of,
)
from firmwright.flows.export.text_arguments import read_text_argument
from firmwright.flows.predict.fit import fit_of_program
from firmwright.package.export_input import PackageMetadata
from firmwright.pipeline import Bundle, Compilation, bundle


def run(args: argparse.Namespace) -> Outcome:
    check_several_models(args, {})
    commands = export_commands()
    suffixes = [Path(model).suffix.lower() for model in args.models]
    for key in (args.format, *suffixes):
        if command := commands.get(key):
            return command(args)
    metadata = package_metadata(args)
    compiled = compile_for_export(args)
    package = export_model(
        compiled,
        args.format,
        args.output,
        with_tests=args.with_tests,
        measure_stack=args.measure_stack,
        metadata=metadata,
    )
    return show_package(compiled, args.format, package)


def export_commands() -> Mapping[str, Callable[[argparse.Namespace], Outcome]]:
    """Return the functions of extensions that perform the verb themselves.

    Their keys are formats, or suffixes of the files that they take.
    """
    return merge_tables(
        None, "EXPORT_COMMANDS", lambda extension: extension.export_commands
    )


def show_package(
    compiled: Compilation | Bundle, form: str, package: ExportedPackage
) -> Outcome:
    """Return what `export` prints of a package in the format `form`."""
    fits = [fit_of_program(part) for part in parts_of(compiled)]
    data: dict[str, object] = {
        "model": compiled.summary.model,
        "board": compiled.board.name,
        "format": form,
        "output": str(package.path),
        "files": list(package.tree.files),
        "models": [fit_to_json(fit) for fit in fits],
    }
    rows: list[tuple[str, Cell]] = [
        ("package", str(package.path)),
        ("format", form),
        ("files", len(package.tree.files)),
    ]
    for fit in fits:
        rows += [("model", fit.model), *figures(fit)]
        if fit.model in package.stacks:
            rows.append(("stack in the header", package.stacks[fit.model]))
    if isinstance(compiled, Bundle):
        summary = compiled.summary
        sharing = "separate for each" if summary.concurrent else "shared"
        rows.append(("RAM of all", f"{summary.workspace_bytes:,} bytes, {sharing}"))
    usage = [line for line in package.usage.splitlines() if line[:3] != "```"]
    return Outcome(data, "\n".join([format_pairs(rows), "", *usage]))


def package_metadata(args: argparse.Namespace) -> PackageMetadata:
    """Return name, version and owner of the package; UsageError for an invalid one."""
    text, file = "", args.license_file
    if file:
        usage = "the path of a text file with --license-file"
        text = read_text_argument(file, "license", usage)
    return PackageMetadata(
        name=args.package_name or "",
        version=args.package_version,
        maintainer=args.maintainer,
        url=args.url or "",
        license_text=text,
    )


def compile_for_export(args: argparse.Namespace) -> Compilation | Bundle:
    """Compile the models of the arguments, several of them for one firmware."""
    parts = compile_several_from_args(args)
    return parts[0] if len(parts) == 1 else bundle(parts, concurrent=args.concurrent)
