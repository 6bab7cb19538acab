"""Errors of memory advise options that help the model, and only those."""

from typing import Any

import pytest

from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.flows.model import memory_advice
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import load_module_bytes

EVERYTHING = "--stream-input-rows --optimize ram --recompute"


def advice(model: Any, options: dict[str, Any]) -> str:
    with pytest.raises(DoesNotFitError) as caught:
        memory_advice.compile_or_advise(model, options)
    return caught.value.hint


@pytest.mark.parametrize(
    ("by_rows", "recomputed", "hint"),
    [
        (800, 900, "--stream-input-rows, with which it fits; or --ram 2000."),
        (None, 900, "--optimize ram --recompute, with which it fits; or --ram 2000."),
        (1500, 1800, f"{EVERYTHING}, which needs 1,500 bytes; or --ram 2000."),
        (
            None,
            1800,
            "--optimize ram --recompute, which needs 1,800 bytes; or --ram 2000.",
        ),
        (None, 2000, "--ram 2000."),
    ],
)
def test_options_that_help_the_model_are_advised(
    by_rows: int | None, recomputed: int, hint: str, monkeypatch: pytest.MonkeyPatch
):
    def compile_for(
        model: None, *, ram_bytes: int, stream_input_rows: bool = False, **more: Any
    ):
        needs = recomputed if "recompute" in more else 2000
        if stream_input_rows:
            if by_rows is None:
                raise UsageError("this model has no rows.")
            needs = min(needs, by_rows)
        if needs > ram_bytes:
            raise DoesNotFitError("", lowest_bytes=needs, hint="more RAM.")

    monkeypatch.setattr(memory_advice, "compile_for", compile_for)
    assert advice(None, {"ram_bytes": 1000}) == hint


def test_a_program_that_no_option_makes_small_enough_is_compiled_twice(
    monkeypatch: pytest.MonkeyPatch,
):
    compiled: list[dict[str, Any]] = []

    def compile_for(
        model: None, watch: None = None, stopwatch: None = None, **options: Any
    ):
        compiled.append(options)
        raise DoesNotFitError("", lowest_bytes=2000 - len(options), hint="more RAM.")

    monkeypatch.setattr(memory_advice, "compile_for", compile_for)
    assert advice(None, {}) == f"{EVERYTHING}, which needs 1,997 bytes; or more RAM."
    assert [len(options) for options in compiled] == [0, 3]


@pytest.mark.deep
def test_other_memories_of_the_board_are_advised(digits_path):
    pools = (PoolInfo("sram", 100),)
    options = {"board": "nucleo-h743zi", "pools": pools, "planner": "greedy_by_size"}
    module = load_module_bytes(digits_path.read_bytes(), "digits.tflite")
    found = advice(memory_advice.Model(module), options)
    assert found.startswith("--pool axi, with which it fits; or a board with more RAM")
