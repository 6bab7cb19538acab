"""Firing schedule and row-buffer depths of a row-streamed segment (decision 0021).

* A step reads one row of the segment's source. A stage computes one band of rows at a time, often a
  single row. With `period` m it fires at the end of each step i with (i + 1) mod m = 0 and computes
  band i // m - lag; bands below 0 or past the tensor's height are padding.
* A stage that reads rows of x has the period m(x) * stride / band(x) and the least lag at which the
  last row it needs is available: stride * lag >= band(x) * lag(x) + window - before - stride, where
  window, before and stride are the height, upper padding and stride of a band's input window.
* The row buffer of x holds its last rows in order, the newest last; each stage reads its window at
  a fixed position.

Stages with slack fire late or early, whichever needs fewer bytes of row buffers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from firmwright.ops.opdef import RowWindow


@dataclass(frozen=True, slots=True)
class RowStage:
    """A stage that computes `height` bands of rows of `result` from rows of `sources`.

    `rows` defines the input rows of a band. For a row reduction, `result` is "" and `height` counts
    the bands read.
    """

    sources: tuple[str, ...]
    result: str
    rows: RowWindow
    height: int


@dataclass(frozen=True, slots=True)
class StreamedTensor:
    """A tensor of `height` rows that arrive `band` at a time.

    A tensor from `outside` the segment is in memory as a whole.
    """

    height: int
    row_bytes: int
    outside: bool = False
    band: int = 1


@dataclass(frozen=True, slots=True)
class StageTiming:
    """A stage fires at the end of every `period`-th step and computes band step // period - `lag`.

    For each source, `starts` has the first row of its window in the row buffer, or None for a
    window in the whole tensor.
    """

    period: int
    lag: int
    starts: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RowBuffer:
    """The buffered last rows of a tensor; rows outside the tensor have the value `fill`.

    Rows arrive `band` at a time. After the last band come `padding_bands` bands of padding; the
    stage spends one firing on each.
    """

    rows: int
    fill: float | None
    band: int
    padding_bands: int

    @property
    def is_transient(self) -> bool:
        """Return whether no row outlives the step in which it is computed."""
        return self.rows == self.band


@dataclass(frozen=True, slots=True)
class RowStreamingPlan:
    """Timing of the stages in order, and the row buffers.

    `fed` means that the source's rows are copied to a row buffer.
    """

    steps: int
    firings: tuple[StageTiming, ...]
    row_buffers: Mapping[str, RowBuffer]
    source: str
    fed: bool


def plan_row_streaming(
    source: str,
    stages: Sequence[RowStage],
    tensors: Mapping[str, StreamedTensor],
    *,
    feed: bool = False,
) -> RowStreamingPlan | None:
    """Return the plan, or None if the rows of the stages are incompatible.

    With `feed` the source is not in memory as a whole.
    """
    makers = {stage.result: index for index, stage in enumerate(stages) if stage.result}
    planner = _RowStreamingPlanner(source, stages, tensors, feed, makers)
    is_possible = all(planner.periods) and all(map(planner.is_sound, stages))
    return planner.plan() if is_possible else None


@dataclass
class _RowStreamingPlanner:
    source: str
    stages: Sequence[RowStage]
    tensors: Mapping[str, StreamedTensor]
    only_fed: bool
    makers: Mapping[str, int]
    lags: list[int] = field(default_factory=list)

    @cached_property
    def periods(self) -> list[int]:
        """Return the number of steps per band of each stage; 0 if its sources disagree."""
        of_tensor = {self.source: 1}
        periods: list[int] = []
        for stage in self.stages:
            ratios = {
                Fraction(of_tensor[name] * stage.rows.stride, self.tensors[name].band)
                for name in stage.sources
                if name in of_tensor
            }
            period = ratios.pop() if len(ratios) == 1 else Fraction(0)
            periods.append(int(period) if period.denominator == 1 else 0)
            of_tensor[stage.result] = periods[-1]
        return periods

    def is_sound(self, stage: RowStage) -> bool:
        """Return whether padding has one value, and side inputs can be read as whole tensors."""
        padded = [name for name in stage.sources if self._is_padded(stage, name)]
        if padded and stage.rows.pad_value is None:
            return False
        if any(len(self._fills(name)) > 1 for name in padded):
            return False
        others = (n for n in stage.sources if n not in self.makers and n != self.source)
        return all(self._reads_whole(stage, name) for name in others)

    def _is_padded(self, stage: RowStage, name: str) -> bool:
        rows = stage.rows
        last = (stage.height - 1) * rows.stride - rows.pad_before + rows.window_height
        return rows.pad_before > 0 or last > self.tensors[name].height

    def _reads_whole(self, stage: RowStage, name: str) -> bool:
        """Return whether rows can be read from the whole tensor: no padding, aligned rows."""
        tensor = self.tensors[name]
        return tensor.outside and not self._is_padded(stage, name) and tensor.row_bytes % 4 == 0

    def _fills(self, name: str) -> set[float | None]:
        users = [stage for stage in self.stages if name in stage.sources]
        return {stage.rows.pad_value for stage in users if self._is_padded(stage, name)}

    # ---- lags --------------------------------------------------------------------------------

    def plan(self) -> RowStreamingPlan:
        for stage in self.stages:
            self.lags.append(self._least_lag(stage))
        self._use_slack()
        timed = list(zip(self.stages, self.periods, self.lags, strict=True))
        firings = tuple(StageTiming(m, lag, self._starts(stage, lag)) for stage, m, lag in timed)
        steps = max(period * (stage.height + lag) for stage, period, lag in timed)
        names = dict.fromkeys(name for stage in self.stages for name in stage.sources)
        row_buffers = {name: self._row_buffer(name) for name in names if self._users(name)}
        fed = self.source in row_buffers
        return RowStreamingPlan(steps, firings, row_buffers, self.source, fed)

    def _delay(self, name: str) -> int:
        """Return the number of rows by which the tensor lags its source rows."""
        if name not in self.makers:
            return 0
        return self.lags[self.makers[name]] * self.tensors[name].band

    def _least_lag(self, stage: RowStage) -> int:
        rows = stage.rows
        ahead = rows.window_height - rows.pad_before - rows.stride
        timed = [name for name in stage.sources if name == self.source or name in self.makers]
        return max(-(-(self._delay(name) + ahead) // rows.stride) for name in timed)

    def _most_lag(self, index: int) -> int:
        """Return the greatest lag at which the stage's rows are ready for all readers."""
        result = self.stages[index].result
        users = [(self.stages[user].rows, self.lags[user]) for user in self._users(result)]
        if not users:
            return self.lags[index]
        behind = min(r.stride * (lag + 1) - r.window_height + r.pad_before for r, lag in users)
        return behind // self.tensors[result].band

    def _use_slack(self) -> None:
        changed = True
        while changed:
            changed = False
            for index in reversed(range(len(self.stages) - 1)):
                before = self.lags[index]
                lags = range(self._least_lag(self.stages[index]), self._most_lag(index) + 1)
                self.lags[index] = min(lags, key=lambda lag: self._bytes_at(index, lag))
                if self._bytes_at(index, before) <= self._bytes_at(index, self.lags[index]):
                    self.lags[index] = before
                changed = changed or self.lags[index] != before

    def _bytes_at(self, index: int, lag: int) -> int:
        previous, self.lags[index] = self.lags[index], lag
        stage = self.stages[index]
        names = [name for name in {*stage.sources, stage.result} if self._users(name)]
        total = sum(self._depth_of(name) * self.tensors[name].row_bytes for name in names)
        self.lags[index] = previous
        return total

    # ---- row buffers -------------------------------------------------------------------------

    def _reads_row_buffer(self, stage: RowStage, name: str) -> bool:
        if name != self.source:
            return name in self.makers
        return self.only_fed or not self._reads_whole(stage, name)

    def _depth(self, stage: RowStage, lag: int, name: str) -> int:
        return stage.rows.stride * (1 + lag) - self._delay(name) + stage.rows.pad_before

    def _depth_of(self, name: str) -> int:
        return max(self._depth(self.stages[i], self.lags[i], name) for i in self._users(name))

    def _users(self, name: str) -> list[int]:
        return [
            index
            for index, stage in enumerate(self.stages)
            if name in stage.sources and self._reads_row_buffer(stage, name)
        ]

    def _starts(self, stage: RowStage, lag: int) -> tuple[int | None, ...]:
        return tuple(
            self._depth_of(name) - self._depth(stage, lag, name)
            if self._reads_row_buffer(stage, name)
            else None
            for name in stage.sources
        )

    def _row_buffer(self, name: str) -> RowBuffer:
        fills = self._fills(name)
        newest = max(
            self.stages[index].rows.stride * (self.stages[index].height + self.lags[index]) - 1
            for index in self._users(name)
        )
        tensor, depth = self.tensors[name], self._depth_of(name)
        missing = max(0, newest - self._delay(name) - tensor.height + 1)
        bands = -(-missing // tensor.band) if depth > tensor.band else 0
        return RowBuffer(depth, fills.pop() if fills else None, tensor.band, bands)
