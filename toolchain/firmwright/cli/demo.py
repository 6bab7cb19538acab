"""`firmwright demo`: compile, run and verify the bundled example."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import MismatchError
from firmwright.base.version import VERSION
from firmwright.cli import build as build_verb
from firmwright.cli import profile as profile_verb
from firmwright.cli import verify as verify_verb
from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome, add_options
from firmwright.flows.demo import EMULATED_BOARD, DemoResult, run_demo
from firmwright.flows.sample_batches import Array

NAME = "demo"
HELP = "compile, run and verify the bundled example"
MAX_IMAGES_SHOWN = 8
SHADES = " ░▒▓█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser, f"--board B  board (default: {EMULATED_BOARD}, in QEMU)", board={"default": ""}
    )


def run(args: argparse.Namespace) -> Outcome:
    demo = run_demo(args.board)
    verification = demo.verification
    error = None
    if not verification.exact:
        error = MismatchError(verify_verb.format_verdict(verification), where=verification.board)
    return Outcome(demo_to_json(demo), format_demo(demo), error)


def demo_to_json(demo: DemoResult) -> dict[str, Any]:
    """Return the keys of verify, compile, build and profile, and the accuracy on the board."""
    built, measured = (
        build_verb.image_to_json(demo.image),
        profile_verb.profile_to_json(demo.profile),
    )
    summary = demo.compiled.summary.to_json()
    keys = ("workspace_bytes", "lower_bound_bytes", "scratch_bytes", "constants_bytes", "pools")
    return {
        **verify_verb.verification_to_json(demo.verification),
        "accuracy": demo.accuracy,
        "right": demo.correct,
        "missing_tools": list(demo.missing),
        **{key: summary[key] for key in keys},
        **built,
        **measured,
        "firmware_stack_bytes": built["firmware_stack_bytes"],
    }


def format_demo(demo: DemoResult) -> str:
    """Format the five steps, some images, and the cost of the operators."""
    return "\n\n".join(
        [_title(demo), *_notes(demo), _steps(demo), _digits(demo), _costs(demo), _more()]
    )


def _title(demo: DemoResult) -> str:
    return f"Firmwright {VERSION}: handwritten digits on {demo.compiled.board.description}"


def _notes(demo: DemoResult) -> list[str]:
    if not demo.missing:
        return []
    names = " and ".join(demo.missing)
    return [f"({names} is not installed, so the demo runs on this computer.)"]


def _steps(demo: DemoResult) -> str:
    summary, image, verification = demo.compiled.summary, demo.image, demo.verification
    work, bound = summary.workspace_bytes, summary.lower_bound_bytes
    least = "the lower bound" if work == bound else f"{work - bound:,} above the lower bound"
    target = next(iter(summary.target.values()))
    bits = "within the tolerance of" if verification.is_float else "bit for bit equal to"
    verdict = bits if verification.exact else f"{verification.mismatches:,} differ from"
    rows = [
        (
            "compile",
            f"digits.tflite, {summary.operator_count} operators, for {target}",
            f"workspace {work:,} bytes, {least}; constants {summary.constants_bytes:,} bytes",
        ),
        (
            "build",
            f"{image.elf.name} with link and main loop: {image.sizes.flash_bytes:,} bytes of flash",
            f"the model's share: flash {image.model_flash_bytes:,}, RAM {image.model_ram_bytes:,}, "
            f"stack {image.stack.size_bytes:,} bytes",
        ),
        (
            "run",
            f"{verification.samples} images sent over the serial link, {verification.values:,} "
            "outputs read back",
            _cost_line(demo),
        ),
        ("verify", f"all {verification.values:,} outputs {verdict} {verification.reference}", ""),
        (
            "measure",
            f"{demo.correct} of {len(demo.labels)} test images classified correctly on the board: "
            f"{100 * demo.accuracy:.1f} %",
            "",
        ),
    ]
    lines = []
    for number, (verb, first, second) in enumerate(rows, 1):
        lines.append(f"  {number}  {verb:<8} {first}")
        lines += [f"     {'':<8} {second}"] if second else []
    return "\n".join(lines)


def _cost_line(demo: DemoResult) -> str:
    cost = demo.profile
    text = f"one inference takes {cost.total:,} {cost.unit}"
    clock = demo.compiled.board.clock_hz
    if cost.unit == "instructions" and cost.macs:
        text += f", {cost.total / cost.macs:.2f} for each multiply-add"
    elif cost.unit == "cycles" and clock:
        text += f", {1000 * cost.total / clock:.2f} ms"
    return text


def _digits(demo: DemoResult) -> str:
    """Format some images with the board's predictions; the wrong predictions come first."""
    wrong = [k for k in range(len(demo.labels)) if demo.predictions[k] != demo.labels[k]]
    right = [k for k in range(len(demo.labels)) if k not in wrong]
    chosen = [*wrong[:2], *_one_of_each(demo, right)][:MAX_IMAGES_SHOWN]
    pictures = [render_image(demo.images[k]) for k in chosen]
    lines = [("  " + "   ".join(parts)).rstrip() for parts in zip(*pictures, strict=True)]
    captions = [_caption(int(demo.predictions[k]), int(demo.labels[k])) for k in chosen]
    lines.append("  " + "   ".join(caption.center(8) for caption in captions).rstrip())
    lines.append("  (predictions of the board; wrong ones, if any, come first)")
    return "\n".join(lines)


def _one_of_each(demo: DemoResult, candidates: Sequence[int]) -> list[int]:
    first: dict[int, int] = {}
    for k in candidates:
        first.setdefault(int(demo.labels[k]), k)
    return [first[label] for label in sorted(first)]


def _caption(answer: int, label: int) -> str:
    return f"{answer}" if answer == label else f"{answer}, not {label}"


def render_image(image: Array) -> list[str]:
    """Render an image as text, with two rows of pixels on each line."""
    ink = image.astype(int) - int(image.min())
    most = max(int(ink.max()), 1)
    levels = (ink * (len(SHADES) - 1) + most // 2) // most
    pairs = zip(levels[0::2], levels[1::2], strict=True)
    return [
        "".join(_cell(int(t), int(b)) for t, b in zip(top, low, strict=True)) for top, low in pairs
    ]


def _cell(top: int, bottom: int) -> str:
    """Return the character for two pixels: a half block at an edge, else a shade."""
    half = len(SHADES) // 2
    match (top >= half, bottom >= half):
        case (True, False):
            return "▀"
        case (False, True):
            return "▄"
        case _:
            return SHADES[(top + bottom) // 2]


def _costs(demo: DemoResult) -> str:
    cost = demo.profile
    total = sum(operator.count for operator in cost.operators) or 1
    rows = [
        [
            operator.name,
            operator.kind,
            operator.macs or None,
            operator.count,
            operator.count / operator.macs if operator.macs else None,
            f"{100 * operator.count / total:4.1f} % {'█' * round(20 * operator.count / total)}",
        ]
        for operator in cost.operators
    ]
    return format_table(["operator", "kind", "MACs", cost.unit, "per MAC", "share"], rows, "  ")


def _more() -> str:
    return (
        "  To use your own model:\n"
        f"    firmwright verify MODEL.tflite --board {EMULATED_BOARD}\n"
        f"    firmwright compile MODEL.tflite --board {EMULATED_BOARD} -o DIR"
    )
