"""`firmwright export`: export models as a package for another build system."""

import argparse
import shlex
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.boards.mcuboot import MCUBOOT
from firmwright.build import read_project_board
from firmwright.cli.model_list import check_several_models, compile_several_from_args
from firmwright.cli.text_table import format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.board.mcuboot import export_update
from firmwright.flows.export.package_export import export_model
from firmwright.flows.export.text_arguments import read_text_argument
from firmwright.package.export_input import NO_METADATA, PackageMetadata
from firmwright.package.mcuboot_update import ImageSigning
from firmwright.pipeline import Bundle, Compilation, bundle


def run(args: argparse.Namespace) -> Outcome:
    check_several_models(args, {})
    metadata = _metadata(args)
    if args.format == MCUBOOT:
        return _export_update(args, metadata)
    compiled = _compile(args)
    tree, output = export_model(
        compiled,
        args.format,
        args.output,
        with_tests=args.with_tests,
        measure_stack=args.measure_stack,
        metadata=metadata,
    )
    data: dict[str, object] = {
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


def _compile(args: argparse.Namespace) -> Compilation | Bundle:
    parts = compile_several_from_args(args)
    return parts[0] if len(parts) == 1 else bundle(parts, concurrent=args.concurrent)


def _export_update(args: argparse.Namespace, metadata: PackageMetadata) -> Outcome:
    for name, value, unset in (
        ("--key", args.key, None),
        ("--package-version", args.package_version, NO_METADATA.version),
    ):
        if value == unset:
            hint = f"add {name}; firmwright export --help describes it."
            raise UsageError(f"signed images need {name}.", where="export", hint=hint)
    folder = Path(args.models[0])
    source: Compilation | Bundle | Path = folder if folder.is_dir() else _compile(args)
    if isinstance(source, Path):
        board = load_board(read_project_board(source), args.board_dirs)
    else:
        board = source.board
    more = tuple(shlex.split(args.imgtool_args or ""))
    if args.security_counter:
        more = ("--security-counter", args.security_counter, *more)
    signing = ImageSigning(Path(args.key), metadata.version, more)
    output = Path(args.output or f"{folder.stem}-{metadata.version}")
    files = export_update(source, board, output, signing, args.image)
    data = {"board": board.name, "format": MCUBOOT, "output": str(output), "files": list(files)}
    rows = [("update", str(output)), ("version", metadata.version), *(("image", f) for f in files)]
    return Outcome(data, format_pairs(rows))
