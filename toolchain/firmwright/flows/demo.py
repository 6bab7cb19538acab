"""The demo: compile, build, run, verify and measure the bundled digits example.

The outputs and the accuracy on test images are measured on the board; the reference is LiteRT.
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
    """The results of the demo; `missing` names absent tools for the emulated board."""

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
    """Run all steps of the demo.

    The default board is the emulated Cortex-M4 if its tools are installed, else the host.
    """
    missing = () if board else missing_tools()
    board_name = board or (FALLBACK_BOARD if missing else EMULATED_BOARD)
    model = load_model(digits_dir() / "digits.tflite")
    compiled = compile_for(model, board_name)
    arrays = read_npz(digits_dir() / "digits_test.npz")
    labels = np.load(digits_dir() / "digits_labels.npy", allow_pickle=False)
    (tensor,) = compiled.module.io.inputs
    batch = make_batch(arrays, [tensor], "digits_test.npz")
    image = build_image(compiled)
    verification = verify(compiled, batch=batch)
    (output,) = compiled.module.io.outputs
    predictions = [sample[output.name].reshape(-1) for sample in verification.outputs]
    return DemoResult(
        compiled=compiled,
        image=image,
        verification=verification,
        profile=profile(compiled),
        images=np.stack([sample[tensor.name] for sample in batch.samples]).reshape(-1, 8, 8),
        labels=labels,
        outputs=np.stack(predictions),
        missing=missing,
    )


def missing_tools() -> tuple[str, ...]:
    board = load_board(EMULATED_BOARD)
    tools = (f"{board.toolchain}-gcc", board.run.program)
    return tuple(tool for tool in tools if shutil.which(tool) is None)
