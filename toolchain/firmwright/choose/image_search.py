"""Choice of kernels by the size and the time of the whole image, in which kernels share code."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from firmwright.base.grouping import group_pairs
from firmwright.choose import thresholds
from firmwright.choose.flash_budget import CandidatesPerCall, CodeKey, KeyOf, budget_error
from firmwright.ops.schedule import LoweringCandidate

# Kernels with one key share their code, so the cost of a kernel depends on those of other calls. A
# descent changes one call, or all calls that can use one key, as long as bytes + weight * time
# becomes less. The results for different weights are the candidates for the image.

_UNIT = 1 << 20
"""One byte in the units of cost; a weight is the cost of a unit of time."""
_WEIGHTS = [(2 + step % 2 << step // 2) // 2 for step in range(8, 60)]
_ROUNDS_MAX = 8


@dataclass(frozen=True, slots=True)
class _Image:
    """The choice of a candidate for each call, its predicted bytes and its time."""

    picks: tuple[int, ...]
    size_bytes: int
    time: int


@dataclass(frozen=True)
class ImageSearch:
    """Search for small and fast images; kernels with equal keys share their code."""

    candidates_per_call: CandidatesPerCall
    key: KeyOf

    @cached_property
    def _options(self) -> list[list[tuple[LoweringCandidate, CodeKey]]]:
        numbers: dict[Hashable, int] = {}  # hashing a key takes time

        def option(item: LoweringCandidate) -> tuple[LoweringCandidate, CodeKey]:
            key = self.key(item.function)
            return item, replace(key, code=numbers.setdefault(key.code, len(numbers)))

        return [list(map(option, own)) for _, own in self.candidates_per_call if own]

    @cached_property
    def _images(self) -> list[_Image]:
        """The results of the descents, the smallest weight of the time first."""
        return [self._image(self._descend(weight)) for weight in _WEIGHTS]

    def smallest_within(self, time_max: int) -> CandidatesPerCall:
        """Return each call with its one candidate, or without one, for the smallest image."""
        within = [image for image in self._images[::-1] if image.time <= time_max]
        return self._chosen(min(within, key=attrgetter("size_bytes"), default=self._images[-1]))

    def fastest_within(self, bytes_max: int, saved_bytes: int | None = None) -> CandidatesPerCall:
        """Return each call with its one candidate, or without one, for the fastest image.

        Raises DoesNotFitError if no image of at most `bytes_max` bytes is found. For `saved_bytes`
        see `fit_flash_budget`.
        """
        bytes_max += saved_bytes or 0
        within = [image for image in self._images if image.size_bytes <= bytes_max]
        if not within:
            least = min(image.size_bytes for image in self._images)
            raise budget_error(least, bytes_max, saved_bytes)
        best, time = min(within, key=attrgetter("time")), 0
        while best.time != time:
            time = best.time
            near = [best, *map(self._image, self._neighbors(best.picks))]
            fitting = (image for image in near if image.size_bytes <= bytes_max)
            best = min(fitting, key=attrgetter("time"))
        return self._chosen(best)

    def _picked(self, picks: Sequence[int]) -> list[tuple[LoweringCandidate, CodeKey]]:
        return [own[pick] for own, pick in zip(self._options, picks, strict=True)]

    def _chosen(self, image: _Image) -> CandidatesPerCall:
        chosen = iter([item for item, _ in self._picked(image.picks)])
        return [
            (call, (next(chosen),) if candidates else ())
            for call, candidates in self.candidates_per_call
        ]

    def _neighbors(self, picks: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return choices that differ in a call, or in all calls that can use one key."""
        near = [
            (*picks[:index], other, *picks[index + 1 :])
            for index, own in enumerate(self._options)
            for other in range(len(own))
            if own[other][0].time < own[picks[index]][0].time
        ]
        return near + [self._moved(picks, key, lambda item: item.time) for key in self._keys]

    @cached_property
    def _keys(self) -> list[CodeKey]:
        return list({key.code: key for own in self._options for _, key in own}.values())

    def _descend(self, weight: int) -> tuple[int, ...]:
        def cost(item: LoweringCandidate) -> int:
            return item.flash_bytes * _UNIT + item.time * weight

        def total(picks: Sequence[int]) -> int:
            costs = sum(cost(item) for item, _ in self._picked(picks))
            return costs + self._code_bytes(picks) * _UNIT

        picks = tuple(
            min(range(len(own)), key=lambda i, own=own: own[i][0].time)  # type: ignore[misc]
            for own in self._options
        )
        for _ in range(_ROUNDS_MAX):
            before = picks
            for key in self._keys:
                moved = self._moved(picks, key, cost)
                picks = moved if total(moved) < total(picks) else picks
            for index, own in enumerate(self._options):
                sharers = Counter(key.code for _, key in self._picked(picks))
                sharers[own[picks[index]][1].code] -= 1
                costs = [
                    cost(item) + (0 if sharers[key.code] else item.code_bytes * _UNIT)
                    for item, key in own
                ]
                picks = (*picks[:index], costs.index(min(costs)), *picks[index + 1 :])
            if picks == before:
                break
        return picks

    def _moved(
        self, picks: tuple[int, ...], key: CodeKey, cost: Callable[[LoweringCandidate], int]
    ) -> tuple[int, ...]:
        """Return `picks` with all calls moved to their cheapest kernels of `key`."""
        moved = []
        for own, pick in zip(self._options, picks, strict=True):
            alike = [index for index, (_, other) in enumerate(own) if other.code == key.code]
            moved.append(min(alike, key=lambda i, own=own: cost(own[i][0]), default=pick))  # type: ignore[misc]
        return tuple(moved)

    def _code_bytes(self, picks: Sequence[int]) -> int:
        sizes = group_pairs((key.code, item.code_bytes) for item, key in self._picked(picks))
        return sum(map(max, sizes.values()))

    def _image(self, picks: tuple[int, ...]) -> _Image:
        chosen, arguments, copies = self._picked(picks), 0, 0
        for code in {key.code for _, key in chosen}:
            shared = [(item, key.numbers) for item, key in chosen if key.code == code]
            uses: dict[tuple[Hashable, ...], tuple[int, ...]] = {}  # of each differing number
            for column in zip(*(numbers for _, numbers in shared), strict=True):
                values, runs = zip(*column, strict=True)
                if len(set(values)) > 1:
                    uses[values] = max(runs, uses.get(values, runs))
            times = [sum(runs[at] for runs in uses.values()) for at in range(len(shared))]
            limits = (thresholds.SHARED_PERCENT_MAX * item.instructions for item, _ in shared)
            if any(100 * time > limit for time, limit in zip(times, limits, strict=True)):
                sizes = {numbers: item.code_bytes for item, numbers in shared}.values()
                copies += sum(sizes) - max(sizes)
            elif len(shared) > 1:  # passed, and used in shared code
                arguments += len(uses) + len(shared) * (len(uses) + len(shared[0][0].constants))
        size_bytes = (
            sum(item.flash_bytes for item, _ in chosen)
            + (self._code_bytes(picks) + copies) * thresholds.CODE_MARGIN_PERCENT // 100
            + arguments * thresholds.ARGUMENT_CODE_BYTES
            + len(chosen) * thresholds.CALL_CODE_BYTES
            + thresholds.MAIN_CODE_BYTES
        )
        return _Image(picks, size_bytes, sum(item.time for item, _ in chosen))
