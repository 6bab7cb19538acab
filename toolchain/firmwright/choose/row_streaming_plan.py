"""Firing schedule and row-buffer depths of a row-streamed segment (decision 0021).

* A step reads one row of the segment's source. A stage computes one band of rows at a
  time, often a single row. With `period` m it fires at the end of each step i with (i +
  1) mod m = 0 and computes band i // m - lag; bands below 0 or past the tensor's height
  are padding.
* A stage that reads rows of x has the period m(x) * stride / band(x) and the least lag
  at which the last row it needs is available: stride * lag >= band(x) * lag(x) + window
  - before - stride, where window, before and stride are the height, upper padding and
  stride of a band's input window.
* The row buffer of x holds its last rows in order, the newest last; each stage reads
  its window at a fixed position.

Stages with slack fire late or early, whichever needs fewer bytes of row buffers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from firmwright.base.rounding import divide_up
from firmwright.ops.opdef import RowWindow


@dataclass(frozen=True, slots=True)
class RowStage:
    """A stage that computes `height` bands of rows of `result` from rows of `sources`.

    `rows` defines the input rows of a band. For a row reduction, `result` is "" and
    `height` counts the bands read.
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
    """A stage that fires after each `period` steps, for band step // period - `lag`.

    For each source, `starts` has the first row of its window in the row buffer, or None
    for a window in the whole tensor.
    """

    period: int
    lag: int
    starts: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RowBuffer:
    """The buffered last rows of a tensor; rows outside of it have the value `fill`.

    Rows arrive `band` at a time. After the last band come `padding_bands` bands of
    padding; the stage spends one firing on each.
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
    makers: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.result:
            makers[stage.result] = index
    planner = _RowStreamingPlanner(source, stages, tensors, feed, makers)
    if not all(planner.periods) or not all(map(planner.is_sound, stages)):
        return None
    return planner.plan()


@dataclass
class _RowStreamingPlanner:
    """Computes the plan; `makers` has the stage of each result, `lags` all lags.

    With `only_fed` the source is not in memory as a whole.
    """

    source: str
    stages: Sequence[RowStage]
    tensors: Mapping[str, StreamedTensor]
    only_fed: bool
    makers: Mapping[str, int]
    lags: list[int] = field(default_factory=list)

    @cached_property
    def periods(self) -> list[int]:
        """Return the steps per band of each stage; 0 if its sources disagree."""
        period_of_tensor = {self.source: 1}
        periods: list[int] = []
        for stage in self.stages:
            ratios: set[Fraction] = set()
            for name in stage.sources:
                if name in period_of_tensor:
                    steps = period_of_tensor[name] * stage.rows.stride
                    # A stage that reads two tensors needs their rows in step: a sum of
                    # a branch with stride 2 and one with stride 1 has no period.
                    ratios.add(Fraction(steps, self.tensors[name].band))
            period = 0
            if len(ratios) == 1:
                ratio = ratios.pop()
                period = int(ratio) if ratio.denominator == 1 else 0
            periods.append(period)
            period_of_tensor[stage.result] = period
        return periods

    def is_sound(self, stage: RowStage) -> bool:
        """Return whether padding has one value, and side inputs are readable whole."""
        padded = [name for name in stage.sources if self._is_padded(stage, name)]
        if padded and stage.rows.pad_value is None:
            return False
        if any(len(self._fills(name)) > 1 for name in padded):
            return False
        for name in stage.sources:
            is_side_input = name not in self.makers and name != self.source
            if is_side_input and not self._reads_whole(stage, name):
                return False
        return True

    def _is_padded(self, stage: RowStage, name: str) -> bool:
        """Return whether a window begins above the tensor or ends below it."""
        rows = stage.rows
        last = (stage.height - 1) * rows.stride - rows.pad_before + rows.window_height
        return rows.pad_before > 0 or last > self.tensors[name].height

    def _reads_whole(self, stage: RowStage, name: str) -> bool:
        """Return whether rows can be read from the whole tensor, without padding."""
        tensor = self.tensors[name]
        if not tensor.outside or tensor.row_bytes % 4:
            return False
        return not self._is_padded(stage, name)

    def _fills(self, name: str) -> set[float | None]:
        """Return the values of padding that the readers of a tensor need."""
        fills: set[float | None] = set()
        for stage in self.stages:
            if name in stage.sources and self._is_padded(stage, name):
                fills.add(stage.rows.pad_value)
        return fills

    # ---- lags ------------------------------------------------------------------------

    def plan(self) -> RowStreamingPlan:
        """Return the plan, with the least lags changed where that takes fewer bytes."""
        for stage in self.stages:
            self.lags.append(self._least_lag(stage))
        self._use_slack()
        steps = 0
        firings: list[StageTiming] = []
        row_buffers: dict[str, RowBuffer] = {}
        rows = zip(self.stages, self.periods, self.lags, strict=True)
        for stage, period, lag in rows:
            steps = max(steps, period * (stage.height + lag))
            firings.append(StageTiming(period, lag, self._starts(stage, lag)))
            for name in stage.sources:
                if name not in row_buffers and self._users(name):
                    row_buffers[name] = self._row_buffer(name)
        return RowStreamingPlan(
            steps=steps,
            firings=tuple(firings),
            row_buffers=row_buffers,
            source=self.source,
            fed=self.source in row_buffers,
        )

    def _delay(self, name: str) -> int:
        """Return the number of rows by which the tensor lags its source rows."""
        if name not in self.makers:
            return 0
        return self.lags[self.makers[name]] * self.tensors[name].band

    def _least_lag(self, stage: RowStage) -> int:
        """Return the least lag at which the last row of a window is available."""
        rows = stage.rows
        # With the rows counted in `_depth`: the last row of the window, stride * b -
        # pad_before + window_height - 1, must not be after the newest one.
        ahead = rows.window_height - rows.pad_before - rows.stride
        lags: list[int] = []
        for name in stage.sources:
            if name == self.source or name in self.makers:
                lags.append(divide_up(self._delay(name) + ahead, rows.stride))
        return max(lags)

    def _most_lag(self, index: int) -> int:
        """Return the greatest lag at which the rows are ready for all readers."""
        result = self.stages[index].result
        delays: list[int] = []
        for user in self._users(result):
            rows = self.stages[user].rows
            # The same inequality as in `_least_lag`, solved for the delay of the rows
            # that are read.
            begin = rows.stride * (self.lags[user] + 1) + rows.pad_before
            delays.append(begin - rows.window_height)
        if not delays:
            return self.lags[index]
        return min(delays) // self.tensors[result].band

    def _use_slack(self) -> None:
        """Change one lag after the other, the last first, until no change saves bytes.

        The last stage has no reader, so it keeps the least lag.
        """
        changed = True
        while changed:
            changed = False
            # A later stage first: its change leaves room for those before it. Each
            # change saves bytes, so the loop ends.
            for index in reversed(range(len(self.stages) - 1)):
                best = self.lags[index]
                best_bytes = self._bytes_at(index, best)
                least = self._least_lag(self.stages[index])
                for lag in range(least, self._most_lag(index) + 1):
                    lag_bytes = self._bytes_at(index, lag)
                    if lag_bytes < best_bytes:
                        best, best_bytes = lag, lag_bytes
                changed = changed or self.lags[index] != best
                self.lags[index] = best

    def _bytes_at(self, index: int, lag: int) -> int:
        """Return the bytes of the row buffers next to a stage if it had this lag."""
        previous = self.lags[index]
        self.lags[index] = lag
        stage = self.stages[index]
        total = 0
        for name in {*stage.sources, stage.result}:
            if self._users(name):
                total += self._depth_of(name) * self.tensors[name].row_bytes
        self.lags[index] = previous
        return total

    # ---- row buffers -----------------------------------------------------------------

    def _reads_row_buffer(self, stage: RowStage, name: str) -> bool:
        """Return whether a stage reads a tensor from a row buffer, not as a whole."""
        if name != self.source:
            return name in self.makers
        return self.only_fed or not self._reads_whole(stage, name)

    def _depth(self, stage: RowStage, lag: int, name: str) -> int:
        """Return the rows of a tensor from a stage's window start to the newest one.

        `lag` is the stage's; the rows are counted when it fires.
        """
        # When the stage computes band b, the buffer ends with the newest row of the
        # tensor:
        #
        #     rows of x   ... |--- window of band b ---| not yet needed |
        #                     |----------------- depth -----------------|
        #     first row       b * stride - pad_before
        #     after the last  (b + 1 + lag) * stride - delay
        return stage.rows.stride * (1 + lag) - self._delay(name) + stage.rows.pad_before

    def _depth_of(self, name: str) -> int:
        """Return the number of rows that a buffer needs for its earliest window."""
        depths: list[int] = []
        for user in self._users(name):
            stage, lag = self.stages[user], self.lags[user]
            depths.append(self._depth(stage, lag, name))
        return max(depths)

    def _users(self, name: str) -> list[int]:
        """Return the stages that read a tensor from a row buffer."""
        users: list[int] = []
        for index, stage in enumerate(self.stages):
            if name in stage.sources and self._reads_row_buffer(stage, name):
                users.append(index)
        return users

    def _starts(self, stage: RowStage, lag: int) -> tuple[int | None, ...]:
        """Return the row at which each source's window begins in a buffer, or None."""
        starts: list[int | None] = []
        for name in stage.sources:
            start = None
            if self._reads_row_buffer(stage, name):
                start = self._depth_of(name) - self._depth(stage, lag, name)
            starts.append(start)
        return tuple(starts)

    def _row_buffer(self, name: str) -> RowBuffer:
        """Return the row buffer of a tensor with readers.

        The last firing of a reader needs rows up to `newest`, of which those below the
        tensor are padding. Without rows that outlive a step, a transient buffer needs
        no bands of it.
        """
        newest_rows: list[int] = []
        for index in self._users(name):
            stage, lag = self.stages[index], self.lags[index]
            newest_rows.append(stage.rows.stride * (stage.height + lag) - 1)
        newest = max(newest_rows)
        tensor, depth = self.tensors[name], self._depth_of(name)
        padding_bands = 0
        # Rows below the tensor are needed by windows that end there, but only in a
        # buffer that holds older rows as well.
        if depth > tensor.band:
            missing = max(0, newest - self._delay(name) - tensor.height + 1)
            padding_bands = divide_up(missing, tensor.band)
        fills = self._fills(name)
        return RowBuffer(
            rows=depth,
            fill=fills.pop() if fills else None,
            band=tensor.band,
            padding_bands=padding_bands,
        )
