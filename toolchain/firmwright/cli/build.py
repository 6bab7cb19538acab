"""`firmwright build`: build a firmware image from a model or a project folder."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.build import build_project
from firmwright.build.stack_check import check_stack, stack_warnings
from firmwright.cli import arguments
from firmwright.cli.fit import describe_time_as_built, time_to_json
from firmwright.cli.model_list import check_several_models, compile_several_from_args
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.board.build_cache import object_folder
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.firmware_mains import SERIAL, with_firmware_main
from firmwright.flows.predict.time_prediction import predict_time, predict_time_as_built
from firmwright.pipeline import Bundle, Compilation, bundle
from firmwright.targets.run_time import RunTime


def run(args: argparse.Namespace) -> Outcome:
    args.model = args.models[0]
    if len(args.models) == 1 and Path(args.model).is_dir():
        image = _build_folder(args)
        times: list[_Times] = []
    else:
        check_several_models(args, {"--firmware": args.firmware != SERIAL})
        if args.firmware != SERIAL and args.variant != "release":
            raise UsageError(
                f"the benchmark firmware has no {args.variant} image, since its counts "
                "need the serial link.",
                where=args.model,
                hint="use --variant release, or omit --firmware.",
            )
        parts = compile_several_from_args(args)
        times = [_predict(part) for part in parts if not part.board.is_host]
        if len(parts) > 1:
            firmware: Bundle | Compilation = bundle(parts, concurrent=args.concurrent)
        else:
            firmware = with_firmware_main(parts[0], args.firmware)
        image = build_image(
            firmware,
            args.variant,
            args.output,
            compiler=args.compiler,
            allow_stack=True,
        )
    error = None if args.allow_stack else _stack_error(image)
    data = {**image_to_json(image), "allow_stack": args.allow_stack}
    data["milliseconds"] = [time_to_json(time.modeled) for time in times]
    data["milliseconds_as_built"] = [time_to_json(time.built) for time in times]
    warnings = () if error else stack_warnings(image)
    text = format_summary(image)
    for time in times:
        if time.modeled is not None:
            text += f"\n\nPredicted time of a run: {time.modeled}."
            if time.built is not None:
                built = describe_time_as_built(time.built, time.modeled)
                text += f"\nBut {built}."
    return Outcome(data, text, error, warnings)


@dataclass(frozen=True, slots=True)
class _Times:
    """The time at the modeled clock, and that of the image if its clock is another."""

    modeled: RunTime | None
    built: RunTime | None


def _predict(compiled: Compilation) -> _Times:
    return _Times(predict_time(compiled), predict_time_as_built(compiled))


def _stack_error(image: Image) -> DoesNotFitError | None:
    try:
        check_stack(image)
    except DoesNotFitError as error:
        return error
    return None


def _build_folder(args: argparse.Namespace) -> Image:
    extra = sorted(arguments.given_options(args) - {"board", "board_dirs"})
    extra += ["firmware"] if args.firmware != SERIAL else []
    has_output = args.output and "output" not in getattr(args, "from_project", ())
    if extra or has_output:
        option = "output" if has_output else extra[0].replace("_", "-")
        what = f"--{option} applies to models only; it is fixed in a project."
        hint = "compile the model with it again, then build."
        raise UsageError(what, where=args.model, hint=hint)
    image = build_project(
        Path(args.model),
        args.variant,
        compiler=args.compiler,
        objects=object_folder(),
        allow_stack=True,
    )
    check_board(args, image.board)
    return image


def check_board(args: argparse.Namespace, board: str) -> None:
    """Raise UsageError if the user named another board than that of the project."""
    if "board" in arguments.given_options(args) and args.board != board:
        what = f"the project is for board {board}, not {args.board}."
        hint = f"omit --board, or compile the model for {args.board}."
        raise UsageError(what, where=args.model, hint=hint)


def image_to_json(image: Image) -> dict[str, object]:
    """Return the object of `build --json`; values unknown to the toolchain are null."""
    sizes, stack = image.sizes, image.firmware_stack
    unknown = [] if image.stack_is_known else ["stack_bytes", "firmware_stack_bytes"]
    unknown += [] if image.stack_is_known else ["model_ram_with_stack_bytes"]
    unknown += ["stack_bytes", "firmware_stack_bytes"] if stack.unbounded else []
    unknown += ["model_ram_with_stack_bytes"] if image.stack.unbounded else []
    if not image.sizes_are_known:
        unknown += ["flash_bytes", "ram_bytes", "model_flash_bytes", "model_ram_bytes"]
    cause = None
    if stack.unbounded:
        first = stack.unbounded[0]
        cause = {"reason": first.reason, "cycle": first.cycle}
    return {
        "board": image.board,
        "variant": image.variant,
        "directory": image.directory,
        "elf": image.elf,
        "bin": image.bin,
        "hex": image.hex,
        "library": image.library,
        "model_flash_bytes": image.model_flash_bytes,
        "model_ram_bytes": image.model_ram_bytes,
        "model_ram_with_stack_bytes": image.model_ram_with_stack_bytes,
        "flash_bytes": sizes.flash_bytes,
        "ram_bytes": sizes.ram_bytes,
        "regions": sizes.regions,
        "text_bytes": sizes.bytes_of("text"),
        "rodata_bytes": sizes.bytes_of("rodata"),
        "data_bytes": sizes.bytes_of("data"),
        "bss_bytes": sizes.bytes_of("bss", "noinit"),
        "stack_bytes": image.stack.size_bytes,
        "stack_path": image.stack.path,
        "firmware_stack_bytes": stack.size_bytes,
        "stack_unknown": stack.unknown,
        "stack_reserved_bytes": sizes.bytes_of("stack"),
        "stack_unbounded": cause,
        **dict.fromkeys(unknown),
    }


def format_summary(image: Image) -> str:
    facts = [("image", str(image.elf)), ("board", image.board)]
    for name, file in (("hex", image.hex), ("bin", image.bin)):
        if file is not None:
            facts.append((name, str(file)))
    head = format_pairs([*facts, ("variant", image.variant)])
    if not image.sizes_are_known:
        return f"{head}\n\nThe sizes are unknown: the image is not an ELF file."
    sizes, stack = image.sizes, image.firmware_stack
    reserved = sizes.bytes_of("stack")
    data_bytes = sizes.ram_bytes - reserved
    rows: list[list[Cell]] = [
        ["flash", sizes.flash_bytes, image.model_flash_bytes],
        ["data and pools", data_bytes, image.model_ram_bytes],
    ]
    if stack.unbounded:
        share = str(image.stack)
        rows.append(["stack, worst path", "unbounded", share])
        rows.append(["stack, known part", stack.size_bytes, image.stack.size_bytes])
    elif image.stack_is_known:
        total = data_bytes + stack.size_bytes
        rows.append(["stack, worst path", stack.size_bytes, image.stack.size_bytes])
        rows.append(["RAM needed", total, image.model_ram_with_stack_bytes])
    else:
        rows.append(["stack, worst path", "unknown", "unknown"])
    rows += [["stack reserved", reserved, None]] if reserved else []
    regions: list[list[Cell]] = []
    for region in sizes.regions:
        full = f"{100 * region.used_bytes / region.size_bytes:.1f} %"
        regions.append([region.name, region.used_bytes, region.size_bytes, full])
    parts = [head, format_table(["bytes", "firmware", "model's share"], rows)]
    if regions:
        parts.append(format_table(["region", "used", "size", "full"], regions))
    return "\n\n".join(parts)
