"""The front of programs: none beats another, and each command gives its program."""

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.predict import program_front
from firmwright.flows.predict.program_front import find_program_front
from firmwright.pipeline import Compilation, compile_model
from firmwright.report.pareto_front import (
    ParetoProgram,
    nice_step,
    pareto_front,
    plot_front,
)


@pytest.fixture(scope="module")
def digits() -> Compilation:
    root = Path(__file__).resolve().parents[3]
    return compile_for(
        load_model(root / "examples/01_digits/digits.tflite"), "mps2-an386"
    )


@pytest.mark.deep
def test_each_command_of_the_front_gives_its_program(
    digits: Compilation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program_front, "OBJECTIVES", ("size",))
    limits = (MemoryTradeoff(1600, 0, ()), MemoryTradeoff(8, 0, ()))
    front = find_program_front(digits, "folder/digits.tflite", limits)
    assert [item.is_current for item in front].count(True) == 1
    assert not any(a.beats(b) for a in front for b in front if not b.is_current)
    (small,) = (item for item in front if "--ram" in item.options)
    expected = "compile digits.tflite --board mps2-an386 --optimize size --ram 1600"
    assert small.command == f"firmwright {expected}"
    options = replace(digits.options, optimize="size", ram_bytes=1600)
    again = compile_model(digits.imported, options)
    assert again.summary.workspace_bytes == small.workspace_bytes <= 1600


def test_a_lowered_module_has_no_front(digits: Compilation):
    lowered = compile_model(digits.module, digits.options)
    assert find_program_front(lowered, "m.fwir", ()) == ()


def program(ram: int, flash: int, time: int, current: bool = False) -> ParetoProgram:
    return ParetoProgram(f"{ram}", "", ram, flash, time, is_current=current)


def test_beaten_and_equal_programs_are_left_out_but_not_the_current_one():
    current = program(10, 10, 10, current=True)
    better, small, worse = program(9, 10, 10), program(5, 20, 20), program(11, 10, 10)
    front = pareto_front([worse, current, better, better, small])
    assert front == (better, current, small)


@pytest.mark.parametrize("programs", [[(8, 8, 8)], [(100, 5, 7), (40, 9, 7)]])
def test_points_are_within_the_plot_and_larger_with_more_flash(programs):
    front = [program(*costs) for costs in programs]
    plot = plot_front(front)
    for point in plot.points:
        assert plot.x_ticks[0].at <= point.x <= plot.x_ticks[-1].at
        assert plot.y_ticks[-1].at <= point.y <= plot.y_ticks[0].at
    radii = {point.program.flash_bytes: point.radius for point in plot.points}
    assert sorted(radii, key=lambda flash: radii[flash]) == sorted(radii)


def test_time_is_cycles_where_they_are_modeled():
    few, many = program(8, 8, 50), program(8, 8, 40)
    slow = replace(many, cycles=90)
    assert (few.duration, slow.duration) == (50, 90)
    assert pareto_front([replace(few, cycles=60), slow]) == (replace(few, cycles=60),)
    assert plot_front([few]).unit == "instructions"
    assert plot_front([slow]).unit == "modeled cycles"


def test_steps_of_axes_are_round():
    assert [nice_step(span, 5) for span in (1, 5, 6, 26, 50, 51)] == [
        1,
        1,
        2,
        10,
        10,
        20,
    ]
