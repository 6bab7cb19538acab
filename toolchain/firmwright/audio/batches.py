"""Rows of features for many clips at once, by the numpy references of the operators.

All frames of all clips are one batch. A call that keeps state between frames is
computed hop by hop, for all clips at once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir.graph import Call, TensorType, Value
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import State
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table

_FRAMES_AT_ONCE = 2048
"""Bounds the memory of the references."""


def frames_of(samples: Array, frame: int, hop: int) -> Array:
    """Return the frames of int16 [clips, samples] as [clips, hops, frame].

    A frame ends with its hop, and zeros precede the first sample, as in the firmware.
    """
    zeros = np.zeros((len(samples), frame - hop), np.int16)
    stream = np.concatenate([zeros, samples], axis=1)
    return np.lib.stride_tricks.sliding_window_view(stream, frame, axis=1)[:, ::hop]


def compute_rows(module: IRModule, framed: str, frames: Array) -> Array:
    """Return the result of the graph for frames [clips, hops, frame].

    They are the value `framed`; the calls before it are not computed. Each value of the
    graph has one frame, on its first axis. The result is [clips, hops, channels].
    """
    entry = module.entry_graph
    clips, hops, size = frames.shape
    batch = _Batch(module, clips, hops)
    batch.values[framed] = frames.reshape(clips * hops, size)
    for call in entry.body[entry.makers[framed] + 1 :]:
        batch.compute(call)
    return batch.values[entry.results[0].name].reshape(clips, hops, -1)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The values of all frames, [clips * hops, ...], by name."""

    module: IRModule
    clips: int
    hops: int
    values: dict[str, Array] = field(default_factory=dict)

    def compute(self, call: Call) -> None:
        used = {value.name for value in call.variables}
        states = [s for s in self.module.entry_graph.state if s.value.name in used]
        count = self.clips * self.hops
        for value in call.outputs:
            shape = (count, *value.shape[1:])
            self.values[value.name] = np.zeros(shape, value.type.dtype.np)
        if states:
            self._compute_hop_by_hop(call, states)
            return
        for start in range(0, count, _FRAMES_AT_ONCE):
            frames = np.arange(start, min(start + _FRAMES_AT_ONCE, count))
            self._compute_frames(call, frames, {})

    def _compute_hop_by_hop(self, call: Call, states: Iterable[State]) -> None:
        memory: dict[str, Array] = {}
        for state in states:
            initial = self.module.constants[state.initial].array()
            memory[state.value.name] = np.repeat(initial, self.clips, axis=0)
        for hop in range(self.hops):
            frames = np.arange(self.clips) * self.hops + hop
            self._compute_frames(call, frames, memory)
            for state in states:
                memory[state.value.name] = self.values[state.next.name][frames]

    def _compute_frames(
        self, call: Call, frames: Array, memory: Mapping[str, Array]
    ) -> None:
        def array(value: Value) -> Array:
            if value.name in memory:
                return memory[value.name]
            return self.values[value.name][frames]

        results = compute_batch(self.module, call, len(frames), array)
        for value, result in zip(call.outputs, results, strict=True):
            self.values[value.name][frames] = result


def compute_batch(
    module: IRModule, call: Call, count: int, variable: Callable[[Value], Array]
) -> tuple[Array, ...]:
    """Return the results of a call on `count` items at once, on the first axis.

    `variable` returns the items of an input that is not constant. In the module, such
    values and the results have one item.
    """

    def array(value: Value) -> Array:
        if value.constant:
            return module.constants[value.constant].array()
        return variable(value)

    def kind(value: Value) -> TensorType:
        if value.constant:
            return value.type
        return replace(value.type, shape=(count, *value.type.shape[1:]))

    inputs = [value for value in call.inputs if value is not None]
    batched = replace(
        make_op_call(call, module),
        inputs=tuple(map(kind, inputs)),
        outputs=tuple(map(kind, call.outputs)),
    )
    return tuple(op_table()[call.op].reference(batched, list(map(array, inputs))))
