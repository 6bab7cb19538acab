"""`firmwright build`: build a firmware image from a model or a project folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.build import build_project
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome, add_options
from firmwright.flows.firmware_images import build_image

NAME = "build"
HELP = "build firmware for a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(
        parser, ".tflite, .onnx or .fwir file, or a project folder written by compile"
    )
    add_options(parser, "-o --output DIR  build a model in this folder")
    arguments.add_variant_option(parser)
    arguments.add_toolchain_option(parser)
    arguments.add_firmware_option(parser)
    arguments.add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    if Path(args.model).is_dir():
        image = _build_folder(args)
    else:
        if args.firmware != "serial" and args.variant != "release":
            raise UsageError(
                f"the benchmark firmware has no {args.variant} image, since its counts need the "
                "serial link.",
                where=args.model,
                hint="use --variant release, or omit --firmware.",
            )
        compiled = arguments.apply_firmware_option(args, arguments.compile_from_args(args))
        image = build_image(compiled, args.variant, args.output, compiler=args.compiler)
    return Outcome(image_to_json(image), format_summary(image))


def _build_folder(args: argparse.Namespace) -> Image:
    extra = sorted(arguments.compile_options(args).keys() - {"board", "board_dirs"})
    extra += ["firmware"] if args.firmware != "serial" else []
    if extra or args.output:
        option = "output" if args.output else extra[0].replace("_", "-")
        raise UsageError(
            f"--{option} applies to models only; it is fixed in a project.",
            where=args.model,
            hint="compile the model with it again, then build.",
        )
    image = build_project(Path(args.model), args.variant, compiler=args.compiler)
    if args.board and args.board != image.board:
        raise UsageError(
            f"the project is for board {image.board}, not {args.board}.",
            where=args.model,
            hint=f"omit --board, or compile the model for {args.board}.",
        )
    return image


def image_to_json(image: Image) -> dict[str, Any]:
    """Return the object for `build --json`; values that the toolchain cannot provide are null."""
    stack_known, sizes_known = image.stack_is_known, image.sizes_are_known
    return {
        "board": image.board,
        "variant": image.variant,
        "directory": str(image.directory),
        "elf": str(image.elf),
        "bin": str(image.bin) if image.bin else None,
        "hex": str(image.hex) if image.hex else None,
        "library": str(image.library) if image.library else None,
        "flash_bytes": image.sizes.flash_bytes if sizes_known else None,
        "ram_bytes": image.sizes.ram_bytes if sizes_known else None,
        "model_flash_bytes": image.model_flash_bytes if sizes_known else None,
        "model_ram_bytes": image.model_ram_bytes if sizes_known else None,
        "model_ram_with_stack_bytes": image.model_ram_with_stack_bytes if stack_known else None,
        "text_bytes": image.sizes.bytes_of("text"),
        "rodata_bytes": image.sizes.bytes_of("rodata"),
        "data_bytes": image.sizes.bytes_of("data"),
        "bss_bytes": image.sizes.bytes_of("bss", "noinit"),
        "stack_bytes": image.stack.size_bytes if stack_known else None,
        "stack_path": list(image.stack.path),
        "firmware_stack_bytes": image.firmware_stack.size_bytes if stack_known else None,
        "stack_unknown": list(image.firmware_stack.unknown),
        "regions": [
            {"name": r.name, "used_bytes": r.used_bytes, "size_bytes": r.size_bytes}
            for r in image.sizes.regions
        ],
    }


def format_summary(image: Image) -> str:
    head = format_pairs(
        [("image", str(image.elf)), ("board", image.board), ("variant", image.variant)]
    )
    if not image.sizes_are_known:
        return f"{head}\n\nThe sizes are unknown: the image is not an ELF file."
    sizes, stack = image.sizes, image.firmware_stack
    data_bytes = sizes.ram_bytes - sizes.bytes_of("stack")
    rows: list[list[Cell]] = [
        ["flash", sizes.flash_bytes, image.model_flash_bytes],
        ["data and pools", data_bytes, image.model_ram_bytes],
    ]
    if image.stack_is_known:
        total = data_bytes + stack.size_bytes
        rows.append(["stack, worst path", stack.size_bytes, image.stack.size_bytes])
        rows.append(["total RAM", total, image.model_ram_with_stack_bytes])
    else:
        reserved = sizes.bytes_of("stack")
        rows.append(["stack, worst path", "unknown", "unknown"])
        rows += [["reserved stack", reserved, None]] if reserved else []
    regions: list[list[Cell]] = [
        [r.name, r.used_bytes, r.size_bytes, f"{100 * r.used_bytes / r.size_bytes:.1f} %"]
        for r in sizes.regions
    ]
    parts = [head, format_table(["bytes", "firmware", "model's share"], rows)]
    if regions:
        parts.append(format_table(["region", "used", "size", "full"], regions))
    return "\n\n".join(parts)
