"""The main job on the bundled example: from the model file to verified firmware and its figures.

In: a board, or none to take the Cortex-M4 in QEMU where its tools are, else the host. Out: a
`DemoResult`. Everything in it is measured: the outputs come over the board's link, the reference is
LiteRT's, the accuracy is of the board's own answers on images that training never saw.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass

import numpy as np

from firmwright.artifacts import Image
from firmwright.base.resources import digits_dir
from firmwright.boards import load_board
from firmwright.flows.compilation import compile_for
from firmwright.flows.firmware_images import build_image
from firmwright.flows.model import load_model
from firmwright.flows.profiling import Profile, profile
from firmwright.flows.sample_batches import Array, make_batch, read_npz
from firmwright.flows.verification import Verification, verify
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
EMULATED_BOARD = "mps2-an386"
FALLBACK_BOARD = "host"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo did. `answers` are the classes that the board gave for `images`."""

    compiled: Compilation
    image: Image
    verification: Verification
    profile: Profile
    images: Array
    labels: Array
    outputs: Array
    missing: tuple[str, ...]

    @property
    def answers(self) -> Array:
        found: Array = np.argmax(self.outputs, axis=-1)
        return found

    @property
    def right(self) -> int:
        return int(np.count_nonzero(self.answers == self.labels))

    @property
    def accuracy(self) -> float:
        return self.right / len(self.labels)


def run_demo(board: str = "") -> DemoResult:
    """Compile, build, run, verify and measure the digits example."""
    missing = () if board else missing_tools()
    chosen = board or (FALLBACK_BOARD if missing else EMULATED_BOARD)
    model = load_model(digits_dir() / "digits.tflite")
    compiled = compile_for(model, chosen)
    arrays = read_npz(digits_dir() / "digits_test.npz")
    labels = np.load(digits_dir() / "digits_labels.npy", allow_pickle=False)
    (tensor,) = compiled.module.io.inputs
    batch = make_batch(arrays, [tensor], "digits_test.npz")
    image = build_image(compiled)
    verification = verify(compiled, batch=batch)
    (output,) = compiled.module.io.outputs
    answers = [sample[output.name].reshape(-1) for sample in verification.outputs]
    return DemoResult(
        compiled=compiled,
        image=image,
        verification=verification,
        profile=profile(compiled),
        images=np.stack([sample[tensor.name] for sample in batch.samples]).reshape(-1, 8, 8),
        labels=labels,
        outputs=np.stack(answers),
        missing=missing,
    )


def missing_tools() -> tuple[str, ...]:
    """What this machine lacks to build for the emulated board and run it."""
    board = load_board(EMULATED_BOARD)
    tools = (f"{board.toolchain}-gcc", board.run.program)
    return tuple(tool for tool in tools if shutil.which(tool) is None)
