"""What a tuning log changes about the alternatives of one call: which there are, what they cost.

In: the measurements of the call's layer, and alternatives as built. Out: the same alternatives with
counts instead of predictions as price. Without measurements nothing changes. A measurement counts
for a kernel of the same form only, so one of an earlier version of a rule is stale, not wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import DEFAULT_SCHEDULE, Config, LoweringCandidate, Schedule
from firmwright.ir.tuning_records import (
    ConfiguredSchedule,
    Measurement,
    configured_schedule,
    kernel_digest,
)

_EQUAL_RATIO = 1.002
"""A kernel's count may differ by that much with what else is in the firmware."""


@dataclass(frozen=True, slots=True)
class LayerMeasurements:
    """The measurements of one layer, all counted in one way, by rule and configuration."""

    measured: Mapping[ConfiguredSchedule, tuple[Measurement, ...]]

    @staticmethod
    def of(measurements: Sequence[Measurement]) -> LayerMeasurements:
        found: dict[ConfiguredSchedule, tuple[Measurement, ...]] = {}
        for item in measurements:
            found[item.choice] = (*found.get(item.choice, ()), item)
        return LayerMeasurements(found)

    def configs(self, rule: Schedule, call: OpCall) -> tuple[Config, ...]:
        """The configurations of `rule` to offer: its own, and the best one that was measured."""
        own = tuple(rule.configs(call))
        counts = [
            (min(item.count for item in found if item.status == "ok"), choice)
            for choice, found in self.measured.items()
            if choice[0] == rule.name and any(item.status == "ok" for item in found)
        ]
        if not counts:
            return own
        best = min(counts)[1]
        more = (
            c
            for c in rule.tunable_configs(call)
            if configured_schedule(rule.name, c) == best and c not in own
        )
        return own + tuple(more)

    def priced(self, offered: Sequence[LoweringCandidate]) -> list[LoweringCandidate]:
        """`offered` at the prices that were measured, without those that are wrong or failed.

        What nobody measured costs its prediction, corrected by how wrong that of the best measured
        one is. Counts that are not instructions are scaled such that the best kernel costs what is
        predicted for it, so that the prices of all layers are of one kind. Prices that hardly
        differ are equal, so that the order of the offer stands where a measurement has no opinion.
        """
        known = [(item, self._of(item)) for item in offered]
        kept = [(item, found) for item, found in known if found is None or found.status == "ok"]
        counted = [(found.count, item.instructions, found.unit) for item, found in kept if found]
        if not counted:
            return [item for item, _ in kept]
        least, predicted, unit = min(counted)
        scale = 1.0 if unit == "instructions" else predicted / max(least, 1)
        correction = least * scale / max(predicted, 1)
        prices = _equalize_similar(
            [f.count * scale if f else item.instructions * correction for item, f in kept]
        )
        return [item.priced(round(price)) for (item, _), price in zip(kept, prices, strict=True)]

    def stale(
        self, offered: Sequence[LoweringCandidate], rules: Sequence[Schedule], call: OpCall
    ) -> int:
        """How many measurements are of kernels that are not made any more."""
        built = {configured_schedule(item.rule, item.config): item for item in offered}
        possible = {
            configured_schedule(rule.name, c) for rule in rules for c in rule.tunable_configs(call)
        }
        possible.add((DEFAULT_SCHEDULE, ()))
        return sum(
            len(found)
            for choice, found in self.measured.items()
            if (choice in built and self._of(built[choice]) is None) or choice not in possible
        )

    def _of(self, item: LoweringCandidate) -> Measurement | None:
        """The measurement that counts for this kernel; one that says it is bad comes first."""
        found = self.measured.get(configured_schedule(item.rule, item.config), ())
        if not found:
            return None
        kernel = kernel_digest(item.function)
        mine = [measurement for measurement in found if measurement.kernel == kernel]
        return min(mine, key=lambda m: (m.status == "ok", m.count), default=None)


def _equalize_similar(prices: Sequence[float]) -> list[float]:
    """`prices`, those that are alike as low as the lowest of them."""
    levels: dict[float, float] = {}
    least = -1.0
    for price in sorted(prices):
        if price > least * _EQUAL_RATIO:
            least = price
        levels[price] = least
    return [levels[price] for price in prices]
