"""Moves of runs on Helium: whole vectors, and the last one."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.mve.moves import COPY, FILL, GATHER, VectorMove
from firmwright.schedules.registry import INTRINSICS

LANES = 16
MOVES = {"copy": COPY, "fill": FILL}


@pytest.mark.parametrize("name", MOVES)
def test_whole_vectors_are_moved(name: str) -> None:
    x = np.arange(3 * LANES, dtype=np.int8).reshape(-1, 1)
    filled = tuple(np.array([lane - 8], np.int8) for lane in range(LANES))
    memory = {"x": x, "y": np.zeros_like(x)}
    state = run_program(MOVES[name].program(2), evaluate, memory, {"filled": filled})
    whole = x if name == "copy" else np.concatenate([filled] * 3).reshape(-1, 1)
    expected = np.where(np.arange(3 * LANES)[:, None] < 2 * LANES, whole, 0)
    np.testing.assert_array_equal(state.memory["y"], expected)
    assert set(state.positions.values()) == {2 * LANES}


@pytest.mark.parametrize("last", [1, 5, 16])
@pytest.mark.parametrize("name", MOVES)
def test_the_last_vector_has_some_elements(name: str, last: int) -> None:
    x = np.arange(LANES, dtype=np.int8).reshape(-1, 1)
    filled = tuple(np.array([3], np.int8) for _ in range(LANES))
    state = run_program(
        MOVES[name].last().chosen({"last": last}),
        evaluate,
        {"x": x, "y": np.full_like(x, -1)},
        {"filled": filled, "last": (np.array([last], np.int32),)},
    )
    whole = x[:, 0] if name == "copy" else np.full(LANES, 3)
    moved = np.concatenate(state.memory["y"]).reshape(-1)
    expected = np.where(np.arange(LANES) < last, whole, -1)
    np.testing.assert_array_equal(moved, expected)


@pytest.mark.parametrize(
    ("move", "steps"),
    [(COPY, 2), (FILL, 1), (GATHER, 3)],
    ids=["copy", "fill", "gather"],
)
def test_vectors_take_equal_steps(move: VectorMove, steps: int) -> None:
    assert len(move.program(3).body) == 3 * steps


def test_gathers_name_the_vector_of_offsets() -> None:
    text = INTRINSICS["mve_gather_2"].text["gnu"]
    assert '"vldrb.s16 q1, [%[x], q0]' in text
