"""MCUboot's part in the verbs: `export` signs images, `flash` sends them."""

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.build import read_project_board
from firmwright.cli.boot_loaders import BootLoader
from firmwright.cli.export import compile_for_export, package_metadata
from firmwright.cli.flash import port_prompt
from firmwright.cli.text_table import format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.device.serial_port import find_serial_port, usb_ports
from firmwright.extensions.mcuboot.signing import ImageSigning
from firmwright.extensions.mcuboot.smp_update import send_update
from firmwright.extensions.mcuboot.update import export_update, read_update
from firmwright.package.export_input import NO_METADATA
from firmwright.pipeline import Bundle, Compilation


def _export_update(args: argparse.Namespace) -> Outcome:
    metadata = package_metadata(args)
    for name, value, unset in (
        ("--key", args.key, None),
        ("--package-version", args.package_version, NO_METADATA.version),
    ):
        if value == unset:
            hint = f"add {name}; firmwright export --help describes it."
            raise UsageError(f"signed images need {name}.", where="export", hint=hint)
    folder = Path(args.models[0])
    source: Compilation | Bundle | Path
    if folder.is_dir():
        source = folder
        board = load_board(read_project_board(folder), args.board_dirs)
    else:
        source = compile_for_export(args)
        board = source.board
    more = tuple(shlex.split(args.imgtool_args or ""))
    if args.security_counter:
        more = ("--security-counter", args.security_counter, *more)
    signing = ImageSigning(Path(args.key), metadata.version, more)
    output = Path(args.output or f"{folder.stem}-{metadata.version}")
    files = export_update(source, board, output, signing, args.image)
    data = {
        "board": board.name,
        "format": args.format,
        "output": str(output),
        "files": list(files),
    }
    rows = [("update", str(output)), ("version", metadata.version)]
    rows += [("image", file) for file in files]
    return Outcome(data, format_pairs(rows))


_STATE_NOTES = {
    "test": "the application confirms it, or the next restart reverts it.",
    "unconfirmed": "the application has not confirmed it: this restart reverts it.",
}


def _send_update(args: argparse.Namespace) -> Outcome:
    update = read_update(Path(args.model))
    if args.dry_run:
        lines = []
        for image in update.images:
            size = f"{len(image.data):,} bytes"
            lines.append(f"{image.file}: image {image.number}, {size}")
        return Outcome({"runner": args.runner, "commands": []}, "\n".join(lines))
    port = args.address
    if not port:
        usb = load_board(update.board, args.board_dirs).flash_tools.usb
        port = find_serial_port(update.board, usb, usb_ports(), port_prompt())
    results = send_update(update.images, port, confirm=args.confirm)
    rows = [[r.image, r.version, r.file, r.sent_bytes, r.state] for r in results]
    states = sorted({r.state for r in results} & _STATE_NOTES.keys())
    notes = [f"{state}: {_STATE_NOTES[state]}" for state in states]
    table = format_table(["image", "version", "file", "bytes sent", "state"], rows)
    data = {
        "runner": args.runner,
        "place": port,
        "images": [asdict(r) for r in results],
    }
    return Outcome(data, "\n".join([table, *notes]))


EXPORT_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Outcome]] = {
    "mcuboot": _export_update
}
BOOT_LOADERS: Mapping[str, BootLoader] = {
    "mcuboot": BootLoader(flash=_send_update, flash_options=("confirm",))
}
