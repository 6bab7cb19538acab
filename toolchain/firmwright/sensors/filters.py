"""Steps that filter samples along time: IIR, FIR and decimation."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firmwright.audio.settings import require
from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.graph import TensorType, Value
from firmwright.sensors.emission import Emission, finite_numbers


class Start(enum.Enum):
    """The state of a filter before the first sample of a window."""

    REST = "rest"
    """As if all samples before had been 0."""
    SETTLED = "settled"
    """As if all samples before had been equal to the first one."""


@dataclass(frozen=True, slots=True)
class Biquads:
    """A cascade of second-order filters (IIR), such as scipy.signal designs.

    Before a `StreamWindow`, the filters keep their state from run to run. After it, and
    in a chain without one, they begin anew in each window, as `start` says.

    Attributes:
        sections: Rows of b0, b1, b2, a0, a1, a2 ("sos" of scipy.signal), rounded to
            float32 after division by a0.
        start: How a filter begins in a window.
    """

    sections: npt.ArrayLike
    start: Start = Start.REST

    def __post_init__(self) -> None:
        rows: list[tuple[float, ...]] = []
        for row in np.atleast_1d(np.asarray(self.sections, object)):
            numbers = finite_numbers(row, "the coefficients of a section")
            what = f"a section of {len(numbers)} coefficients with a0 0"
            is_whole = len(numbers) == 6 and numbers[3] != 0
            require(
                is_whole, what, "b0, b1, b2, a0, a1, a2, as `output='sos'` of scipy."
            )
            rows.append(numbers)
        require(bool(rows), "a filter without sections", "at least one.")
        object.__setattr__(self, "sections", tuple(rows))
        is_finite = bool(np.isfinite(self.coefficients()).all())
        hint = "finite coefficients after division by a0."
        require(is_finite, "a section beyond float32", hint)
        a1, a2 = self.coefficients()[:, 3:].T.astype(np.float64)
        is_stable = bool(np.all((np.abs(a2) <= 1) & (np.abs(a1) <= 1 + a2)))
        what = "a section whose results grow without limit"
        require(is_stable, what, "poles within the unit circle, in float32, too.")

    def coefficients(self) -> Array:
        """Return b0, b1, b2, a1, a2 of each section, float32 [sections, 5]."""
        sos = np.array(self.sections, np.float64)
        with np.errstate(over="ignore"):
            scaled = np.delete(sos, 3, axis=1) / sos[:, 3:4]
            return np.ascontiguousarray(scaled, np.float32)

    def settled_state(self) -> Array:
        """Return the state after many ones, float32 [2 * sections]."""
        state: list[float] = []
        u = 1.0
        for b0, b1, b2, a1, a2 in self.coefficients().astype(np.float64):
            sums = 1 + a1 + a2
            require(sums != 0, "a settled integrator", "`Start.REST`.")
            y = (b0 + b1 + b2) / sums * u
            state += [y - b0 * u, b2 * u - a2 * y]
            u = y
        return np.array(state, np.float32)

    def emit(self, e: Emission, x: Value) -> Value:
        return self.emit_decimated(e, x, 1)

    def emit_decimated(self, e: Emission, x: Value, step: int) -> Value:
        """Add the filter, of which one of `step` results is kept."""
        g, (_, count, channels) = e.g, x.type.shape
        require(count % step == 0, f"one of {step} of {count} samples", "a divisor.")
        sections = self.coefficients()
        constant = g.constant(sections, name=e.name("sections"))
        state = self._state(e, x)
        names = [e.name("filtered")]
        types = [TensorType((1, count // step, channels), FLOAT32)]
        if e.is_stream:
            names.append(e.name("state/next"))
            types.append(state.type)
        results = g.calls(
            "biquads", x, constant, state, results=names, types=types, step=step
        )
        if e.is_stream:
            g.set_next_state(state, results[1])
        return results[0]

    def _state(self, e: Emission, x: Value) -> Value:
        _, count, channels = x.type.shape
        shape = (1, 2 * len(self.coefficients()), channels)
        if e.is_stream:
            hint = "`Start.REST`, or the filter after the window."
            is_possible = self.start == Start.REST
            require(is_possible, "a settled filter of a stream", hint)
            return e.g.state(e.name("state"), np.zeros(shape, np.float32))
        if self.start == Start.REST:
            zeros = np.zeros(shape, np.float32)
            return e.g.constant(zeros, name=e.name("state"))
        first = x
        if count > 1:
            first, _ = e.split(x, (1, count - 1), axis=1)
        gains = self.settled_state().reshape(1, -1, 1)
        return e.g.call(
            "mul",
            e.g.constant(gains, name=e.name("gains")),
            first,
            name=e.name("state"),
            shape=shape,
            activation="none",
        )


@dataclass(frozen=True, slots=True)
class Fir:
    """A filter with a finite response: sums of the last samples times `taps`.

    Before a `StreamWindow`, zeros precede the stream. After it, and in a chain without
    one, the results are those of whole overlaps: `len(taps) - 1` fewer than samples.
    """

    taps: npt.ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "taps", finite_numbers(self.taps, "taps"))

    def emit(self, e: Emission, x: Value) -> Value:
        return self.emit_decimated(e, x, 1)

    def emit_decimated(self, e: Emission, x: Value, step: int) -> Value:
        """Add the filter, of which one of `step` results is kept."""
        count, taps = x.type.shape[1], np.array(self.taps, np.float32)
        if e.is_stream:
            require(
                count % step == 0, f"one of {step} of {count} samples", "a divisor."
            )
            x = e.history(x, len(taps) - 1)
        what = f"{len(taps)} taps on {count} samples"
        require(len(taps) <= x.type.shape[1], what, "fewer taps or longer windows.")
        constant = e.g.constant(taps, name=e.name("taps"))
        return e.g.call("fir", x, constant, name=e.name("filtered"), step=step)


@dataclass(frozen=True, slots=True)
class Decimate:
    """One of `factor` samples, the first. A filter before it limits the frequencies.

    A `Biquads` or `Fir` directly before it computes only the samples that are kept.
    """

    factor: int

    def __post_init__(self) -> None:
        require(self.factor > 0, f"a factor of {self.factor}", "at least 1.")

    def emit(self, e: Emission, x: Value) -> Value:
        """Add the step, without a filter before it."""
        return Fir((1.0,)).emit_decimated(e, x, self.factor)
