"""Applies tuning measurements to the candidates of one layer.

Measured counts replace predicted costs. A measurement applies only to a kernel with the measured
digest; those of other kernels are stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.grouping import group_pairs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import tuning_records
from firmwright.ops.schedule import DEFAULT_SCHEDULE, Config, LoweringCandidate, Schedule
from firmwright.ops.tuning_records import ConfiguredSchedule, Measurement, configured_schedule

_EQUAL_RATIO = 1.002
"""Counts within this ratio are considered equal, since other code in the firmware affects them."""


@dataclass(frozen=True, slots=True)
class LayerMeasurements:
    """The measurements of one layer in one unit and context, by configured schedule."""

    measured: Mapping[ConfiguredSchedule, Sequence[Measurement]]

    @staticmethod
    def from_measurements(measurements: Sequence[Measurement]) -> LayerMeasurements:
        return LayerMeasurements(group_pairs((item.choice, item) for item in measurements))

    def configs(self, schedule: Schedule, call: OpCall) -> tuple[Config, ...]:
        own = tuple(schedule.configs(call))
        counts = [
            (min(item.count for item in items if item.status == "ok"), choice)
            for choice, items in self.measured.items()
            if choice[0] == schedule.name and any(item.status == "ok" for item in items)
        ]
        if not counts:
            return own
        best = min(counts)[1]
        others = (c for c in schedule.tunable_configs(call) if c not in own)
        return own + tuple(c for c in others if configured_schedule(schedule.name, c) == best)

    def with_measured_costs(self, offered: Sequence[LoweringCandidate]) -> list[LoweringCandidate]:
        """Return the candidates with measured costs, without those measured as wrong or failed.

        Candidates without a measurement keep their prediction, scaled by the prediction error of
        the best measured one. Counts in other units are scaled so that the cost of the best kernel
        equals its prediction. Nearly equal costs become equal.
        """
        measured = [(item, self._measurement_of(item)) for item in offered]
        usable = [(item, m) for item, m in measured if m is None or m.status == "ok"]
        counted = [(m.count, item.instructions, m.unit) for item, m in usable if m]
        if not counted:
            return [item for item, _ in usable]
        least, predicted, unit = min(counted)
        scale = 1.0 if unit == "instructions" else predicted / max(least, 1)
        correction = least * scale / max(predicted, 1)
        costs = _equalize_similar(
            [m.count * scale if m else item.instructions * correction for item, m in usable]
        )
        pairs = zip(usable, costs, strict=True)
        return [item.with_instructions(round(cost)) for (item, _), cost in pairs]

    def count_stale(
        self, offered: Sequence[LoweringCandidate], rules: Sequence[Schedule], call: OpCall
    ) -> int:
        """Count the measurements of kernels that no schedule builds any more."""
        built = {configured_schedule(item.rule, item.config): item for item in offered}
        possible = {configured_schedule(s.name, c) for s in rules for c in s.tunable_configs(call)}
        possible.add((DEFAULT_SCHEDULE, ()))
        stale = self.measured.keys() - possible
        stale |= {choice for choice, item in built.items() if self._measurement_of(item) is None}
        return sum(len(self.measured.get(choice, ())) for choice in stale)

    def _measurement_of(self, item: LoweringCandidate) -> Measurement | None:
        """Return the measurement of this kernel, preferring one with an error status."""
        items = self.measured.get(configured_schedule(item.rule, item.config), ())
        if not items:
            return None
        kernel = tuning_records.kernel_digest(item.function)
        mine = [measurement for measurement in items if measurement.kernel == kernel]
        return min(mine, key=lambda m: (m.status == "ok", m.count), default=None)


def _equalize_similar(prices: Sequence[float]) -> list[float]:
    levels: dict[float, float] = {}
    least = -1.0
    for price in sorted(prices):
        if price > least * _EQUAL_RATIO:
            least = price
        levels[price] = least
    return [levels[price] for price in prices]
