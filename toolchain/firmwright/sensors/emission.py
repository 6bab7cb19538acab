"""The graph of a chain while its steps emit their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.audio.settings import require
from firmwright.base.errors import UsageError
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph import TensorType, Value


def finite_numbers(values: object, what: str) -> tuple[float, ...]:
    """Return a line of numbers as float; UsageError for anything else."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} are not numbers.", hint="a list.") from error
    what = f"{what} of shape {list(array.shape)} or without a finite value"
    require(array.ndim == 1 and array.size > 0, what, "a list of numbers.")
    with np.errstate(over="ignore"):
        is_finite = bool(np.isfinite(array.astype(np.float32)).all())
    require(is_finite, what, "finite float32.")
    return tuple(array.tolist())


class SensorStep(Protocol):
    """A step of a chain: a record of settings that emits its calls."""

    def emit(self, e: Emission, x: Value) -> Value:
        """Add the calls on `x` float32 [1, samples, channels]; return their result."""


@dataclass(slots=True)
class Emission:
    """A graph under construction, and the place of the next step in it.

    With `is_stream`, the samples continue those of the run before, so that filters
    keep state; `rate` is the number of samples per second.
    """

    g: GraphBuilder
    rate: float
    is_stream: bool
    calls: int = 0

    def name(self, what: str) -> str:
        """Return a name that no other value of the graph has."""
        self.calls += 1
        return f"sensors/{self.calls}/{what}"

    def history(self, x: Value, count: int) -> Value:
        """Return `x` after the last `count` samples before it, which are state.

        They are zeros before the first run.
        """
        if count == 0:
            return x
        _, samples, channels = x.type.shape
        name = self.name("past")
        past = self.g.state(name, np.zeros((1, count, channels), np.float32))
        joined = self.joined((past, x), axis=1)
        _, following = self.split(joined, (samples, count), axis=1)
        self.g.set_next_state(past, following)
        return joined

    def joined(self, parts: Sequence[Value], axis: int) -> Value:
        shape = list(parts[0].type.shape)
        shape[axis] = sum(part.type.shape[axis] for part in parts)
        name = self.name("joined")
        return self.g.call("concatenation", *parts, name=name, shape=shape, axis=axis)

    def split(self, x: Value, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
        types: list[TensorType] = []
        for size in sizes:
            shape = (*x.type.shape[:axis], size, *x.type.shape[axis + 1 :])
            types.append(TensorType(shape, x.type.dtype))
        results = [self.name("part") for _ in sizes]
        sizes = tuple(sizes)
        return self.g.calls(
            "split", x, results=results, types=types, axis=axis, sizes=sizes
        )

    def per_channel(self, op: str, x: Value, numbers: Sequence[float]) -> Value:
        """Return `x` less or times a number for each channel, or for all."""
        channels = x.type.shape[2]
        what = f"{len(numbers)} numbers for {channels} channels"
        require(len(numbers) in (1, channels), what, f"1 or {channels}.")
        line = np.array(numbers, np.float32).reshape(1, 1, -1)
        constant = self.g.constant(line, name=self.name("numbers"))
        return self.g.call(op, x, constant, name=self.name(op), activation="none")
