"""`firmwright demo`: compile, run and verify the bundled example."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.artifacts import Image
from firmwright.base.array_files import read_npy, read_npz
from firmwright.base.child_process import find_program
from firmwright.base.dtypes import Array
from firmwright.base.errors import MismatchError
from firmwright.base.resources import digits_dir
from firmwright.base.templates import render_template
from firmwright.base.version import VERSION
from firmwright.boards import load_board
from firmwright.cli import build as build_verb
from firmwright.cli import profile as profile_verb
from firmwright.cli import verify as verify_verb
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.profiling import Profile, profile
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import make_batch
from firmwright.flows.verify.verification import Verification, verify
from firmwright.pipeline import Compilation

EMULATED_BOARD = "mps2-an386"
FALLBACK_BOARD = "host"
MAX_IMAGES_SHOWN = 8
SHADES = " ░▒▓█"


def run(args: argparse.Namespace) -> Outcome:
    demo = run_demo(args.board)
    verification = demo.verification
    error = None
    if not verification.exact:
        verdict = verify_verb.format_verdict(verification)
        error = MismatchError(verdict, where=verification.board)
    return Outcome(demo_to_json(demo), format_demo(demo), error)


def demo_to_json(demo: DemoResult) -> dict[str, object]:
    """Return the JSON keys of verify, compile, build and profile, and the accuracy."""
    built = build_verb.image_to_json(demo.image)
    summary = demo.compiled.summary.to_json()
    keys = ["workspace_bytes", "lower_bound_bytes", "scratch_bytes"]
    keys += ["constants_bytes", "pools"]
    return {
        **verify_verb.verification_to_json(demo.verification),
        "accuracy": demo.accuracy,
        "right": demo.correct,
        "missing_tools": list(demo.missing),
        **{key: summary[key] for key in keys},
        **built,
        **profile_verb.profile_to_json(demo.profile),
        "firmware_stack_bytes": built["firmware_stack_bytes"],
    }


def format_demo(demo: DemoResult) -> str:
    """Format the five steps, some images, and the cost of the operators."""
    return render_template(
        "firmwright.cli",
        "demo.txt.j2",
        demo=demo,
        version=VERSION,
        pictures=_digits(demo),
        costs=_costs(demo),
        emulated_board=EMULATED_BOARD,
    ).rstrip()


def _digits(demo: DemoResult) -> str:
    """Format some images with the board's predictions, wrong ones first."""
    wrong: list[int] = []
    right: list[int] = []
    for k, label in enumerate(demo.labels):
        if demo.predictions[k] == label:
            right.append(k)
        else:
            wrong.append(k)
    one_of_each = {int(demo.labels[k]): k for k in reversed(right)}
    others = [one_of_each[label] for label in sorted(one_of_each)]
    chosen = [*wrong[:2], *others][:MAX_IMAGES_SHOWN]
    pictures = [render_image(demo.images[k]) for k in chosen]
    lines: list[str] = []
    for parts in zip(*pictures, strict=True):
        lines.append(("  " + "   ".join(parts)).rstrip())
    captions: list[str] = []
    for k in chosen:
        note = f", not {demo.labels[k]}" if k in wrong else ""
        captions.append(f"{demo.predictions[k]}{note}".center(8))
    lines.append("  " + "   ".join(captions).rstrip())
    lines.append("  (predictions of the board; wrong ones, if any, come first)")
    return "\n".join(lines)


def render_image(image: Array) -> list[str]:
    """Render an image as text, with two rows of pixels on each line."""
    ink = image.astype(int) - int(image.min())
    most = max(int(ink.max()), 1)
    levels = (ink * (len(SHADES) - 1) + most // 2) // most
    pairs = zip(levels[0::2], levels[1::2], strict=True)
    lines: list[str] = []
    for top, low in pairs:
        cells = [_cell(int(t), int(b)) for t, b in zip(top, low, strict=True)]
        lines.append("".join(cells))
    return lines


def _cell(top: int, bottom: int) -> str:
    half = len(SHADES) // 2
    if (top >= half) == (bottom >= half):
        return SHADES[(top + bottom) // 2]
    return "▀" if top >= half else "▄"


def _costs(demo: DemoResult) -> str:
    cost = demo.profile
    total = sum(operator.count for operator in cost.operators) or 1
    rows: list[Sequence[Cell]] = []
    for op in cost.operators:
        share = op.count / total
        bar = f"{100 * share:4.1f} % {'█' * round(20 * share)}"
        per_mac = op.count / op.macs if op.macs else None
        rows.append((op.label, op.macs or None, op.count, per_mac, bar))
    return format_table(["operator", "MACs", cost.unit, "per MAC", "share"], rows, "  ")


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The results of the demo; `missing` are tools that the emulated board needs."""

    compiled: Compilation
    image: Image
    verification: Verification
    profile: Profile
    images: Array
    labels: Array
    outputs: Array
    missing: tuple[str, ...]

    @property
    def predictions(self) -> Array:
        classes: Array = np.argmax(self.outputs, axis=-1)
        return classes

    @property
    def correct(self) -> int:
        return int(np.count_nonzero(self.predictions == self.labels))

    @property
    def accuracy(self) -> float:
        return self.correct / len(self.labels)


def run_demo(board: str = "") -> DemoResult:
    """Run the demo, by default on an emulated Cortex-M4 or, without it, on the host."""
    missing = () if board else missing_tools()
    board_name = board or (FALLBACK_BOARD if missing else EMULATED_BOARD)
    model = load_model(digits_dir() / "digits.tflite")
    compiled = compile_for(model, board_name)
    arrays = read_npz(digits_dir() / "digits_test.npz")
    labels = read_npy(digits_dir() / "digits_labels.npy")
    (tensor,) = compiled.module.io.inputs
    batch = make_batch(arrays, [tensor], "digits_test.npz")
    image = build_image(compiled)
    verification = verify(compiled, batch=batch)
    (output,) = compiled.module.io.outputs
    predictions = [sample[output.name].reshape(-1) for sample in verification.outputs]
    images = np.stack([sample[tensor.name] for sample in batch.samples])
    return DemoResult(
        compiled=compiled,
        image=image,
        verification=verification,
        profile=profile(compiled),
        images=images.reshape(-1, 8, 8),
        labels=labels,
        outputs=np.stack(predictions),
        missing=missing,
    )


def missing_tools() -> tuple[str, ...]:
    board = load_board(EMULATED_BOARD)
    tools = (f"{board.toolchain}-gcc", board.run.program)
    return tuple(tool for tool in tools if find_program(tool) is None)
