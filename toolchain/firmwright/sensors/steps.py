"""Steps on the values of a window: its choice, differences, magnitudes and scales."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt

from firmwright.audio.settings import require
from firmwright.ir.graph import Value
from firmwright.sensors.emission import Emission, SensorStep, finite_numbers
from firmwright.sensors.filters import Biquads, Decimate, Fir

_CHANNELS_MAX = len(string.ascii_lowercase)
"""Inputs of a formula."""


@dataclass(frozen=True, slots=True)
class StreamWindow:
    """The last `length` rows of a stream; zeros precede the first one.

    The steps before it see a stream, those after it a window of its own in each run.
    """

    length: int

    def emit(self, e: Emission, x: Value) -> Value:
        require(e.is_stream, "a second window of the stream", "one window.")
        count = x.type.shape[1]
        what = f"a window of {self.length} rows of {count} in each run"
        require(self.length >= count, what, f"a window of at least {count}.")
        return e.history(x, self.length - count)


@dataclass(frozen=True, slots=True)
class Center:
    """Samples less the mean of their channel in the window."""

    def emit(self, e: Emission, x: Value) -> Value:
        mean = e.g.call(
            "window_statistics",
            x,
            name=e.name("mean"),
            shape=(1, 1, x.type.shape[2]),
            statistics=("mean",),
        )
        return e.g.call("sub", x, mean, name=e.name("centered"), activation="none")


@dataclass(frozen=True, slots=True)
class Magnitude:
    """The length of the vector of all channels, as one channel."""

    def emit(self, e: Emission, x: Value) -> Value:
        channels = x.type.shape[2]
        hint = f"at most {_CHANNELS_MAX}."
        require(channels <= _CHANNELS_MAX, f"a vector of {channels} channels", hint)
        parts = (x,) if channels == 1 else e.split(x, (1,) * channels, axis=2)
        letters = string.ascii_lowercase[:channels]
        squares = " + ".join(f"{letter} * {letter}" for letter in letters)
        formula = f"sqrt({squares})"
        name, shape = e.name("magnitude"), parts[0].type.shape
        return e.g.call("expression", *parts, name=name, shape=shape, formula=formula)


@dataclass(frozen=True, slots=True)
class Normalize:
    """(x - mean) * scale, with one number for all channels or one for each.

    To divide by a standard deviation, scale by its reciprocal.
    """

    mean: npt.ArrayLike = (0.0,)
    scale: npt.ArrayLike = (1.0,)

    def __post_init__(self) -> None:
        for name in ("mean", "scale"):
            value = getattr(self, name)
            line = (value,) if isinstance(value, int | float) else value
            object.__setattr__(self, name, finite_numbers(line, f"numbers of {name}"))

    def emit(self, e: Emission, x: Value) -> Value:
        mean = finite_numbers(self.mean, "means")
        if any(mean):
            x = e.per_channel("sub", x, mean)
        return e.per_channel("mul", x, finite_numbers(self.scale, "scales"))


@dataclass(frozen=True, slots=True)
class Join:
    """The results of several steps on the same samples, one after the other.

    A branch is a step, or several in a tuple. All results have as many rows.
    """

    branches: Sequence[SensorStep | Sequence[SensorStep]]

    def __post_init__(self) -> None:
        branches = tuple(
            tuple(branch) if isinstance(branch, tuple | list) else (branch,)
            for branch in self.branches
        )
        require(bool(branches) and all(branches), "a join of nothing", "two steps.")
        for branch in branches:
            has_window = any(isinstance(step, StreamWindow) for step in branch)
            require(not has_window, "a window in a join", "the window before it.")
        object.__setattr__(self, "branches", branches)

    def emit(self, e: Emission, x: Value) -> Value:
        results, rate = [], e.rate
        for branch in self.branches:
            e.rate = rate
            steps = branch if isinstance(branch, Sequence) else (branch,)
            results.append(emit_steps(e, x, steps))
        rows = {result.type.shape[1] for result in results}
        what = f"a join of {', '.join(map(str, sorted(rows)))} rows"
        require(len(rows) == 1, what, "branches with as many rows.")
        return e.joined(results, axis=2) if len(results) > 1 else results[0]


def emit_steps(e: Emission, x: Value, steps: Sequence[SensorStep]) -> Value:
    """Add the calls of steps in order; a filter before `Decimate` is joined with it."""
    remaining = list(steps)
    while remaining:
        step = remaining.pop(0)
        if isinstance(step, Biquads | Fir) and remaining:
            following = remaining[0]
            if isinstance(following, Decimate):
                remaining.pop(0)
                x = step.emit_decimated(e, x, following.factor)
                e.rate /= following.factor
                continue
        require(hasattr(step, "emit"), f"{step!r} as a step", "a step of this module.")
        x = step.emit(e, x)
        if isinstance(step, Decimate):
            e.rate /= step.factor
        if isinstance(step, StreamWindow):
            e.is_stream = False
    return x
