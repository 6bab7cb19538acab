"""Choice of kernels by size and time of the whole image, in which they share code."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from firmwright.choose import thresholds
from firmwright.choose.flash_budget import (
    CallCandidates,
    CandidatesPerCall,
    CodeKey,
    KeyOf,
    budget_error,
)
from firmwright.ops.schedule import DEFAULT_SCHEDULE, LoweringCandidate

# Kernels with one key share their code, so the cost of a kernel depends on those of
# other calls. A descent changes one call, or all calls that can use one key, as long as
# bytes + weight * time becomes less. The results for different weights are the
# candidates for the image. They begin with the fastest image and go on from each other,
# so that calls with equal keys gather as the weight of the time decreases.

_UNIT = 1 << 20
"""One byte in the units of cost; a weight is the cost of a unit of time."""
_WEIGHTS = [((2 + step % 2) << (step // 2)) // 2 for step in range(8, 60)]
"""16, 24, 32, 48, 64, ...: powers of two from 2 ** 4 to 2 ** 29, and 3/2 of each."""
_BALANCED_TIMES = (64, 32, 16, 8, 4, 2, 1)
"""Weights of the goal `balanced`, in multiples of the bytes per time of an image."""
_ROUNDS_MAX = 8
"""Rounds of a descent over all keys and calls; most reach the end in fewer."""


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """The choice of a candidate for each call, its predicted bytes and its time."""

    picks: tuple[int, ...]
    size_bytes: int
    time: int

    def chosen_of(self, candidates_per_call: CandidatesPerCall) -> CandidatesPerCall:
        """Return each call with its chosen candidate, or without one if it has none."""
        picks = iter(self.picks)
        chosen: list[CallCandidates] = []
        for call, candidates in candidates_per_call:
            chosen.append((call, (candidates[next(picks)],) if candidates else ()))
        return chosen


@dataclass(frozen=True, slots=True)
class _Option:
    """A candidate and its key, whose code is a number, since code is slow to hash."""

    item: LoweringCandidate
    key: CodeKey


@dataclass(frozen=True)
class ImageSearch:
    """Search for small and fast images; kernels with equal keys share their code.

    Only kernels with equal forms can share, and a form takes less time to compute than
    a key: a kernel alone with its form needs no key. In the methods, `picks` has the
    number of the chosen option for each call that has options.
    """

    candidates_per_call: CandidatesPerCall
    key: KeyOf
    form: KeyOf = lambda kernel: CodeKey(0)

    @cached_property
    def _options(self) -> list[list[_Option]]:
        """The options of each call that has candidates."""
        forms: Counter[Hashable] = Counter()
        form_of: dict[int, Hashable] = {}
        for _, candidates in self.candidates_per_call:
            for item in candidates:
                form = self.form(item.function).code
                forms[form] += 1
                form_of[id(item)] = form
        numbers: dict[Hashable, int] = {}
        options: list[list[_Option]] = []
        for _, candidates in self.candidates_per_call:
            if not candidates:
                continue
            own: list[_Option] = []
            for item in candidates:
                key = CodeKey(id(item.function))
                if forms[form_of[id(item)]] > 1:
                    key = self.key(item.function)
                number = numbers.setdefault(key.code, len(numbers))
                own.append(_Option(item, replace(key, code=number)))
            options.append(own)
        return options

    @cached_property
    def _images(self) -> list[ImageChoice]:
        """The results of the descents, the smallest weight of the time first."""
        images = self._descents(list(reversed(_WEIGHTS)))
        images.reverse()
        return images

    def _descents(self, weights: Sequence[int]) -> list[ImageChoice]:
        """Return the results of descents for weights that decrease."""
        picks: tuple[int, ...] = ()
        for own in self._options:
            times = [option.item.time for option in own]
            picks = (*picks, times.index(min(times)))
        images: list[ImageChoice] = []
        for weight in weights:
            picks = self._descend(picks, weight)
            images.append(self._image(picks))
        return images

    def smallest_within(self, time_max: int) -> CandidatesPerCall:
        """Return each call with its candidate for the smallest image, if it has any."""
        within = [image for image in reversed(self._images) if image.time <= time_max]
        fastest = self._images[-1]
        smallest = min(within, key=attrgetter("size_bytes"), default=fastest)
        return smallest.chosen_of(self.candidates_per_call)

    def fastest_within(
        self, bytes_max: int, saved_bytes: int | None = None
    ) -> CandidatesPerCall:
        """Return each call with its candidate for the fastest image, if it has any.

        A local search follows: as long as that takes less time, one call, or all calls
        that can use one key, change to a faster kernel. Raises DoesNotFitError if no
        image of at most `bytes_max` bytes is found. For `saved_bytes` see
        `fit_flash_budget`.
        """
        bytes_max += saved_bytes or 0
        within = [image for image in self._images if image.size_bytes <= bytes_max]
        if not within:
            least = min(image.size_bytes for image in self._images)
            raise budget_error(least, bytes_max, saved_bytes)
        best = min(within, key=attrgetter("time"))
        has_changed = True
        while has_changed:
            time = best.time
            for picks in self._neighbors(best.picks):
                image = self._image(picks)
                # Between two weights, the descents leave bytes of the budget unused.
                if image.size_bytes <= bytes_max and image.time < best.time:
                    best = image
            has_changed = best.time != time
        return best.chosen_of(self.candidates_per_call)

    def image_of(self, chosen: CandidatesPerCall) -> ImageChoice:
        """Return the image of the first candidate of each call in `chosen`.

        The functions of the candidates tell which options they are.
        """
        picks: list[int] = []
        pairs = zip(self.candidates_per_call, chosen, strict=True)
        for (_, candidates), (_, own) in pairs:
            if candidates:
                functions = [id(item.function) for item in candidates]
                picks.append(functions.index(id(own[0].function)))
        return self._image(tuple(picks))

    def balanced_with(self, image: ImageChoice, time_max: int) -> ImageChoice:
        """Return the image with the lowest product of size and time.

        It is not larger than `image`, and takes at most `time_max`. The descents begin
        at the fastest image and end where a percent of bytes counts as much as a
        percent of the time of `image`, which is the result if they find nothing better.
        """
        bytes_per_time = image.size_bytes * _UNIT // max(image.time, 1)
        weights = [times * bytes_per_time for times in _BALANCED_TIMES]
        within = [image]
        for other in self._descents(weights):
            if other.time <= time_max and other.size_bytes <= image.size_bytes:
                within.append(other)
        return min(within, key=lambda other: other.size_bytes * other.time)

    def _picked(self, picks: Sequence[int]) -> list[_Option]:
        """Return the chosen option of each call."""
        return [own[pick] for own, pick in zip(self._options, picks, strict=True)]

    def _neighbors(self, picks: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return choices that differ in a call, or in all calls that can use a key."""
        near: list[tuple[int, ...]] = []
        for index, own in enumerate(self._options):
            time = own[picks[index]].item.time
            for other, option in enumerate(own):
                if option.item.time < time:
                    near.append((*picks[:index], other, *picks[index + 1 :]))
        for code in self._codes:
            near.append(self._moved(picks, code, attrgetter("time")))
        return near

    @cached_property
    def _codes(self) -> list[Hashable]:
        """The codes of all options, each once."""
        codes: dict[Hashable, None] = {}
        for own in self._options:
            for option in own:
                codes[option.key.code] = None
        return list(codes)

    def _descend(self, picks: tuple[int, ...], weight: int) -> tuple[int, ...]:
        """Return a choice of lower bytes + `weight` * time than `picks`."""

        # A Lagrangian: minimizing bytes + weight * time for many weights gives the
        # images on the convex front of both, the small ones for small weights.
        #
        #     bytes |x
        #           | x            each x is the best image for a range of weights,
        #           |   x          which are the slope there
        #           |        x
        #           +----------- time
        def cost(item: LoweringCandidate) -> int:
            return item.flash_bytes * _UNIT + item.time * weight

        def total(picks: Sequence[int]) -> int:
            costs = sum(cost(option.item) for option in self._picked(picks))
            return costs + self._code_bytes(picks) * _UNIT

        for _ in range(_ROUNDS_MAX):
            before = picks
            for code in self._codes:
                # One call alone never leaves a code that others use: its new code would
                # be one more. All calls change together, so that a code is paid once.
                moved = self._moved(picks, code, cost)
                if total(moved) < total(picks):
                    picks = moved
            for index, own in enumerate(self._options):
                # Code that another call uses costs this call nothing.
                users = Counter(option.key.code for option in self._picked(picks))
                users[own[picks[index]].key.code] -= 1
                costs: list[int] = []
                for option in own:
                    is_shared = users[option.key.code] > 0
                    code_bytes = 0 if is_shared else option.item.code_bytes
                    costs.append(cost(option.item) + code_bytes * _UNIT)
                picks = (*picks[:index], costs.index(min(costs)), *picks[index + 1 :])
            if picks == before:
                break
        return picks

    def _moved(
        self,
        picks: tuple[int, ...],
        code: Hashable,
        cost: Callable[[LoweringCandidate], int],
    ) -> tuple[int, ...]:
        """Return `picks` with calls moved to their cheapest kernels with `code`."""
        moved: list[int] = []
        for own, pick in zip(self._options, picks, strict=True):
            best = pick
            best_cost: int | None = None
            for index, option in enumerate(own):
                if option.key.code == code:
                    own_cost = cost(option.item)
                    if best_cost is None or own_cost < best_cost:
                        best, best_cost = index, own_cost
            moved.append(best)
        return tuple(moved)

    def _code_bytes(self, picks: Sequence[int]) -> int:
        """Return the bytes of all codes, each once, at its largest kernel's size."""
        largest: dict[Hashable, int] = {}
        for option in self._picked(picks):
            code = option.key.code
            largest[code] = max(largest.get(code, 0), option.item.code_bytes)
        return sum(largest.values())

    def _image(self, picks: tuple[int, ...]) -> ImageChoice:
        """Return the predicted image of a choice: constants, code, calls, main."""
        chosen = self._picked(picks)
        by_code: dict[Hashable, list[_Option]] = {}
        flash_bytes = time = 0
        for option in chosen:
            by_code.setdefault(option.key.code, []).append(option)
            flash_bytes += option.item.flash_bytes
            time += option.item.time
        code_bytes = self._code_bytes(picks)
        arguments = 0
        for sharers in by_code.values():
            uses = _uses_of_differing_numbers(sharers)
            if _are_slow_when_shared(sharers, uses):
                # The kernels with different numbers become copies of the code.
                sizes: dict[tuple[tuple[Hashable, int], ...], int] = {}
                for option in sharers:
                    sizes[option.key.numbers] = option.item.code_bytes
                code_bytes += sum(sizes.values()) - max(sizes.values())
            elif len(sharers) > 1:
                # The numbers are used in the shared code, and passed by each call, as
                # are the addresses of constants.
                passed = len(uses) + len(sharers[0].item.constants)
                arguments += len(uses) + len(sharers) * passed
        size_bytes = (
            flash_bytes
            + code_bytes * thresholds.CODE_MARGIN_PERCENT // 100
            + arguments * thresholds.ARGUMENT_CODE_BYTES
            + len(chosen) * thresholds.CALL_CODE_BYTES
            + thresholds.MAIN_CODE_BYTES
        )
        return ImageChoice(picks, size_bytes, time)


def _uses_of_differing_numbers(sharers: Sequence[_Option]) -> list[tuple[int, ...]]:
    """Return, for each number that differs between kernels of a code, its uses in each.

    Numbers that have the same values in all kernels are one number, with the most uses.
    """
    uses: dict[tuple[Hashable, ...], tuple[int, ...]] = {}
    for column in zip(*(option.key.numbers for option in sharers), strict=True):
        values, runs = zip(*column, strict=True)
        if len(set(values)) > 1:
            uses[values] = max(runs, uses.get(values, runs))
    return list(uses.values())


def _are_slow_when_shared(
    sharers: Sequence[_Option], uses: Sequence[tuple[int, ...]]
) -> bool:
    """Return whether uses of differing numbers take too many instructions."""
    for position, option in enumerate(sharers):
        used = sum(runs[position] for runs in uses)
        if 100 * used > thresholds.SHARED_PERCENT_MAX * option.item.instructions:
            return True
    return False


def without_default_loops(
    candidates_per_call: CandidatesPerCall, chosen: CandidatesPerCall
) -> CandidatesPerCall:
    """Return the candidates with kernels of schedules, and those in `chosen`."""
    scheduled: list[CallCandidates] = []
    pairs = zip(candidates_per_call, chosen, strict=True)
    for (call, candidates), (_, own) in pairs:
        functions = [item.function for item in own]
        kept: list[LoweringCandidate] = []
        for item in candidates:
            is_chosen = any(item.function is function for function in functions)
            if is_chosen or item.rule != DEFAULT_SCHEDULE:
                kept.append(item)
        scheduled.append((call, kept))
    return scheduled


def within_time(
    candidates_per_call: CandidatesPerCall, time_max: int
) -> CandidatesPerCall:
    """Return the candidates with which a program can take at most `time_max`.

    The other calls of that program have their fastest candidates.
    """
    least: list[int] = []
    for _, candidates in candidates_per_call:
        least.append(min((item.time for item in candidates), default=0))
    left = time_max - sum(least)
    within: list[CallCandidates] = []
    for (call, candidates), fastest in zip(candidates_per_call, least, strict=True):
        within.append((call, [c for c in candidates if c.time <= fastest + left]))
    return within
