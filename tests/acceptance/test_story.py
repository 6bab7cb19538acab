"""The language model of examples/11_story on a Cortex-M4: tokens, RAM, cycles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.pipeline import Compilation

pytestmark = [pytest.mark.qemu]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "11_story"
BOARD = "mps2-an386"
RAM_MAX = 64 * 1024
CYCLES_MAX = 1_200_000
"""100 tokens a second at 120 MHz."""
POSITIONS = 200
START = 1
STORY = """
403 407 261 378 432 383 286 261 376 298 315 421 395 317 426 338 401 396 267
337 410 408 419 292 411 322 265 282 295 433 426 385 328 432 358 394 261 370
432 352 266 268 388 426 338 391 266 267 337 335 312 432 398 312 286 267 414
270 333 415 426 13 438 310 439 419 357 336 432 313 438 310 432 278 316 439
419 298 414 267 265 282 295 433 426 436 317 286 296 418 269 279 292 416 439
413 409 416 327 263 415 294 267 400 426 338 336 432 313 442 391 267 337 335
364 420 268 388 432 398 359 280 303 439 413 272 417 264 312 426 436 13 438
310 286 296 418 269 279 292 416 439 413 409 416 327 263 415 294 267 400 426
338 336 432 313 442 439 423 262 304 420 422 432 317 426 359 279 292 416 439
413 409 416 327 263 415 294 267 400 426 436 13 438 310 279 292 416 439 413
391 267 281 421 427 311 357 432 384 358
"""
TOKENS = tuple(int(token) for token in STORY.split())
"""The tokens of llama2.c's run.c (float32) at temperature 0, after the token START."""


@pytest.fixture
def story(
    model_path: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Compilation:
    weights = model_path("stories260K/stories260K.bin").parent
    return compiled(weights, tmp_path_factory.getbasetemp() / "story")


@cache
def compiled(weights: Path, folder: Path) -> Compilation:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, EXAMPLE / "story.py", "--weights", weights, "-o", folder]
    subprocess.run(command, check=True)
    return compile_for(load_model(folder / "story.onnx"), BOARD)


def step(token: int, position: int) -> dict[str, Any]:
    return {
        "token": np.full((1, 1, 1), token, np.int32),
        "position": np.array([position]),
    }


def tell(story: Compilation, count: int) -> list[int]:
    token, tokens = START, []
    with open_session(story, image=build_image(story)) as session:
        for position in range(count):
            (answer,) = session.run_all([step(token, position)])
            token = int(answer["next"].item())
            tokens.append(token)
    return tokens


@pytest.mark.deep
def test_the_model_with_its_cache_and_stack_needs_64_kb_and_begins_the_story(
    story: Compilation,
) -> None:
    assert build_image(story).model_ram_with_stack_bytes <= RAM_MAX
    assert tell(story, 8) == list(TOKENS[:8])


@pytest.mark.deep
def test_200_tokens_are_those_of_the_float_reference(story: Compilation) -> None:
    assert tell(story, POSITIONS) == list(TOKENS)


@pytest.mark.deep
def test_a_token_takes_at_most_a_hundredth_of_a_second_at_120_mhz(
    story: Compilation,
) -> None:
    """Attention's cycles grow linearly: the mean is that of first and last token."""
    cycles = [
        measure_instructions(story, sample=step(START, position)).total.cycles or 0
        for position in (0, POSITIONS - 1)
    ]
    assert sum(cycles) / 2 <= CYCLES_MAX
