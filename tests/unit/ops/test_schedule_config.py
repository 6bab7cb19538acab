"""Configurations of schedules and the settings of them that texts show."""

from dataclasses import dataclass
from typing import Literal

from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.tuning_records import ConfiguredSchedule, configured_schedule


@dataclass(frozen=True, slots=True)
class Blocks(ScheduleConfig):
    pixels: int
    order: Literal["forward", "backward"] = "forward"
    steps: int | None = None
    packed: bool = False


def test_settings_are_the_fields_without_their_default_in_order() -> None:
    assert NO_CONFIG.settings() == {}
    assert list(Blocks(2).settings().items()) == [("pixels", 2)]
    full = Blocks(packed=True, steps=4, order="backward", pixels=0)
    assert list(full.settings().items()) == [
        ("pixels", 0),
        ("order", "backward"),
        ("steps", 4),
        ("packed", 1),
    ]


def test_the_settings_of_a_tuning_log_are_sorted() -> None:
    choice = configured_schedule("rule", Blocks(2, steps=4))
    assert choice == ConfiguredSchedule.from_settings("rule", {"steps": 4, "pixels": 2})
    assert choice.settings == (("pixels", 2), ("steps", 4))
