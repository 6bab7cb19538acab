"""Chains of steps on sensors' samples: values in numpy, and the same in the firmware.

The steps are calls of operators in float32 whose order of operations is defined
(docs/reference/operators.md). `SensorChain.compute` evaluates their references on many
streams at once, so that its values equal those of the firmware bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from firmwright.audio.batches import compute_batch
from firmwright.audio.joining import emit_in_type, join_graphs, single_input
from firmwright.audio.settings import require
from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph import TensorType
from firmwright.ir.module import IRModule
from firmwright.sensors.emission import Emission, SensorStep
from firmwright.sensors.steps import StreamWindow, emit_steps

_ITEMS_AT_ONCE = 4096
"""Bounds the memory of the references."""
_DTYPES = ("float32", "int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorChain:
    """Steps from the samples of a run to one or more rows of values in float32.

    With a `StreamWindow` step, the samples of all runs are one stream: filters before
    it keep their state from run to run. Without one, each run has its own window.

    Attributes:
        channels: Values of a sample, such as the three axes of an accelerometer.
        samples: Samples of a run.
        steps: The steps in order.
        rate: Samples per second, for frequencies.
        dtype: The type of the samples: float32, or int16 as from a converter.
    """

    channels: int
    samples: int
    steps: Sequence[SensorStep]
    rate: float = 1.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        what = f"{self.samples} samples of {self.channels} channels"
        counts = self.samples, self.channels
        is_possible = all(isinstance(n, int | np.integer) and n > 0 for n in counts)
        require(is_possible, what, "integers of at least 1.")
        require(bool(np.isfinite(self.rate)) and self.rate > 0, "the rate", "above 0.")
        require(self.dtype in _DTYPES, f"samples of {self.dtype}", "float32 or int16.")
        _graph(self)

    @property
    def is_stream(self) -> bool:
        """Whether a run continues the one before."""
        return any(isinstance(step, StreamWindow) for step in self.steps)

    @property
    def rows(self) -> int:
        """The rows of a run's result."""
        return _result(self).shape[1]

    @property
    def width(self) -> int:
        """The values of a row."""
        return _result(self).shape[2]

    def compute(self, samples: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return the values of each run from a reset on, as the firmware does.

        Args:
            samples: [..., count, channels], a stream or some windows for each index of
                the first axes. Samples after the last whole run are not used. They are
                int16, or any numbers, rounded to float32, as the chain's `dtype` says.

        Returns:
            float32 [..., runs, rows, width].
        """
        array = self._typed(np.asarray(samples))
        runs = array.shape[-2] // self.samples
        shape = (*array.shape[:-2], runs, self.rows, self.width)
        if 0 in shape:
            return np.zeros(shape, np.float32)
        used = array[..., : runs * self.samples, :]
        parts = used.reshape(-1, runs, self.samples, self.channels)
        return _compute(_graph(self), parts).reshape(shape)

    def model(self) -> Model:
        """Return the model of `samples` [1, samples, channels] to [1, rows, width]."""
        return Model(_graph(self))

    def before(self, network: Model) -> Model:
        """Return a model that takes the samples of a run and returns the results.

        The network's single input has as many elements as the chain's result, in
        float32 or quantized. Raise UsageError for others.
        """
        wanted = single_input(network.module)
        if wanted.type.elements != self.rows * self.width:
            what = (
                f"{wanted.name} {list(wanted.type.shape)} does not have the "
                f"{self.rows} x {self.width} values of the chain."
            )
            raise UsageError(what, hint="a network trained on `compute`'s values.")
        front = _graph(self, wanted.type)
        return Model(join_graphs(front, network.module))

    def _typed(self, array: Array) -> Array:
        what = f"samples of {array.dtype.name} {list(array.shape)}"
        if array.ndim < 2 or array.shape[-1] != self.channels:
            hint = f"an array whose last axes are samples and {self.channels} channels."
            raise UsageError(f"{what}.", hint=hint)
        is_given = array.dtype == np.int16
        if self.dtype == "float32":
            is_given = array.dtype.kind in "iuf"
        if not is_given:
            raise UsageError(f"{what}.", hint=f"numbers of {self.dtype}.")
        return array.astype(self.dtype)


def _result(chain: SensorChain) -> TensorType:
    return _graph(chain).entry_graph.results[0].type


@lru_cache(maxsize=64)
def _graph(chain: SensorChain, wanted: TensorType | None = None) -> IRModule:
    """Return the graph of a chain, with the result in the type `wanted` if given."""
    g = GraphBuilder("sensors")
    shape = (1, chain.samples, chain.channels)
    x = g.input("samples", shape, chain.dtype)
    if chain.dtype != "float32":
        x = g.call("cast", x, name="sensors/samples", dtype="float32")
    y = emit_steps(Emission(g, chain.rate, chain.is_stream), x, chain.steps)
    if wanted is not None:
        y = emit_in_type(g, y, wanted, "sensors/rows")
    return g.module(y)


def _compute(module: IRModule, parts: Array) -> Array:
    """Return the results of runs [streams, runs, samples, channels] by `compute`."""
    streams, runs = parts.shape[:2]
    entry = module.entry_graph
    if not entry.state:
        items = parts.reshape(streams * runs, 1, *parts.shape[2:])
        chunks = [
            items[i : i + _ITEMS_AT_ONCE] for i in range(0, len(items), _ITEMS_AT_ONCE)
        ]
        return np.concatenate([_run(module, chunk[:, 0], {}) for chunk in chunks])
    state: dict[str, Array] = {}
    for item in entry.state:
        initial = module.constants[item.initial].array()
        state[item.value.name] = np.repeat(initial, streams, axis=0)
    rows = [_run(module, parts[:, run], state) for run in range(runs)]
    return np.stack(rows, axis=1)


def _run(module: IRModule, samples: Array, state: dict[str, Array]) -> Array:
    """Return the result of a run of all streams, and replace their state."""
    entry = module.entry_graph
    values = {**state, entry.params[0].name: samples}
    for call in entry.body:
        results = compute_batch(
            module, call, len(samples), lambda value: values[value.name]
        )
        for value, result in zip(call.outputs, results, strict=True):
            values[value.name] = result
    for item in entry.state:
        state[item.value.name] = values[item.next.name]
    return values[entry.results[0].name]
