"""Applies tuning measurements to the candidates of one layer.

Measured counts replace predicted costs. A measurement applies only to a kernel with the
measured digest; those of other kernels are stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.grouping import group_pairs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import tuning_records
from firmwright.ops.schedule import LoweringCandidate, Schedule, ScheduleConfig
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    ConfiguredSchedule,
    Measurement,
    configured_schedule,
)

_EQUAL_RATIO = 1.002
"""Counts within this ratio are equal, since other code in the firmware affects them."""


@dataclass(frozen=True, slots=True)
class LayerMeasurements:
    """The measurements of one layer in one unit and context, by configured schedule."""

    measured: Mapping[ConfiguredSchedule, Sequence[Measurement]]

    @staticmethod
    def from_measurements(measurements: Sequence[Measurement]) -> LayerMeasurements:
        pairs = [(item.choice, item) for item in measurements]
        return LayerMeasurements(group_pairs(pairs))

    def configs(
        self, schedule: Schedule[ScheduleConfig], call: OpCall
    ) -> tuple[ScheduleConfig, ...]:
        """Return the configurations to build: the schedule's and the best measured."""
        own = tuple(schedule.configs(call))
        best = self._best_choice(schedule.name)
        if best is None:
            return own
        measured: list[ScheduleConfig] = []
        for config in schedule.tunable_configs(call):
            if config not in own and configured_schedule(schedule.name, config) == best:
                measured.append(config)
        return (*own, *measured)

    def _best_choice(self, rule: str) -> ConfiguredSchedule | None:
        """Return the choice of schedule `rule` with the lowest correct measurement."""
        counts: list[tuple[int, ConfiguredSchedule]] = []
        for choice, items in self.measured.items():
            correct = [item.count for item in items if item.status == "ok"]
            if choice.rule == rule and correct:
                counts.append((min(correct), choice))
        return min(counts)[1] if counts else None

    def with_measured_costs(
        self, offered: Sequence[LoweringCandidate]
    ) -> list[LoweringCandidate]:
        """Return the candidates with measured costs, without wrong and failed ones.

        Candidates without a measurement keep their prediction, scaled by the prediction
        error of the best measured one. Counts in other units are scaled so that the
        cost of the best kernel equals its prediction. Nearly equal costs become equal.
        """
        usable: list[LoweringCandidate] = []
        measurements: list[Measurement | None] = []
        counted: list[tuple[int, int, str]] = []
        for item in offered:
            measurement = self._measurement_of(item)
            if measurement is not None and measurement.status != "ok":
                continue
            usable.append(item)
            measurements.append(measurement)
            if measurement is not None:
                counted.append((measurement.count, item.instructions, measurement.unit))
        if not counted:
            return usable
        least, predicted, unit = min(counted)
        scale = 1.0 if unit == "instructions" else predicted / max(least, 1)
        correction = least * scale / max(predicted, 1)
        costs: list[float] = []
        for item, measurement in zip(usable, measurements, strict=True):
            if measurement is None:
                costs.append(item.instructions * correction)
            else:
                costs.append(measurement.count * scale)
        priced: list[LoweringCandidate] = []
        for item, cost in zip(usable, _equalize_similar(costs), strict=True):
            priced.append(item.with_instructions(round(cost)))
        return priced

    def count_stale(
        self,
        offered: Sequence[LoweringCandidate],
        rules: Sequence[Schedule[ScheduleConfig]],
        call: OpCall,
    ) -> int:
        """Count the measurements of kernels that no schedule builds any more."""
        possible: set[ConfiguredSchedule] = {DEFAULT_CHOICE}
        for schedule in rules:
            for config in schedule.tunable_configs(call):
                possible.add(configured_schedule(schedule.name, config))
        built: dict[ConfiguredSchedule, LoweringCandidate] = {}
        for item in offered:
            built[configured_schedule(item.rule, item.config)] = item
        stale = 0
        for choice, measurements in self.measured.items():
            is_changed = choice in built and self._measurement_of(built[choice]) is None
            if choice not in possible or is_changed:
                stale += len(measurements)
        return stale

    def _measurement_of(self, item: LoweringCandidate) -> Measurement | None:
        """Return the measurement of this kernel, preferably one of an error."""
        items = self.measured.get(configured_schedule(item.rule, item.config), ())
        if not items:
            return None
        kernel = tuning_records.kernel_digest(item.function)
        mine = [measurement for measurement in items if measurement.kernel == kernel]

        def rank(measurement: Measurement) -> tuple[bool, int]:
            return measurement.status == "ok", measurement.count

        return min(mine, key=rank, default=None)


def _equalize_similar(prices: Sequence[float]) -> list[float]:
    """Return the prices, those slightly above a lower one lowered to it."""
    levels: dict[float, float] = {}
    least = -1.0
    for price in sorted(prices):
        if price > least * _EQUAL_RATIO:
            least = price
        levels[price] = least
    return [levels[price] for price in prices]
