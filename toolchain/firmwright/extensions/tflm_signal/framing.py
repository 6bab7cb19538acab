"""Operators on sample streams that keep state between runs.

    framer: frames of `frame_size` samples every `frame_step` samples. With `prefill`
        the samples before the first run are zeros; otherwise frames are invalid until
        enough samples have arrived.
    stacker: concatenates the last left + 1 + right frames, every `step` runs. The first
        frame fills the left context; output starts once the right context is complete.
    delay: delays the samples by `delay_length`; the first ones are zeros.
    overlap_add: adds overlapping frames and emits `frame_step` sums for each; int16
        sums saturate.
    circular_buffer: the last slots along axis 1; each run drops the first of them and
        appends x.

framer, delay and overlap_add work along the last axis. Invalid outputs, which TFLM does
not write, hold the samples available so far, then zeros. With attribute `cycles`,
TFLM's circular_buffer ends runs early, which the importer turns into a branch. Without
it, buffers of 5, 13 and 25 slots continue in every run and other sizes in every second
run, as in TFLM. One shape, for which TFLM decides by the number of buffers in the
process, is rejected. Semantics: TFLM and its signal library.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal.attributes import (
    FramerAttrs,
    OverlapAddAttrs,
    StackerAttrs,
)
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum, select
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef


def streams(kind: TensorType) -> tuple[int, int]:
    """Return the number of independent streams and the number of samples in each."""
    if not kind.shape:
        raise NotSupportedError("samples without an axis")
    return kind.elements // kind.shape[-1], kind.shape[-1]


def _only_int16(call: OpCall) -> None:
    for kind in (call.input(0), call.output):
        if kind.dtype != INT16:
            raise NotSupportedError(f"{call.op} of {kind.dtype.name}")


def _copy_loop(
    b: Kernel,
    target: tir.Buffer,
    at: Sequence[ArithExpr | int],
    count: int,
    value: Callable[[ArithExpr], ArithExpr],
) -> None:
    if count > 0:
        with b.for_("k", count) as k:
            b.store(target, [*at, k], value(k))


def _update_history(
    b: Kernel, past: tir.Buffer, x: tir.Buffer, state: tir.Buffer, row: ArithExpr
) -> None:
    """Fill `state` with the last samples of `past` followed by `x`."""
    count, new = state.shape[-1], x.shape[-1]
    older = max(count - new, 0)
    _copy_loop(b, state, [row], older, lambda k: b.load(past, [row, k + new]))
    with b.for_("j", count - older) as j:
        b.store(state, [row, j + older], b.load(x, [row, j + (new - count + older)]))


def _framer_infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(FramerAttrs)
    _only_int16(call)
    frames = streams(call.input(0))[1] // attrs.frame_step
    size = attrs.frame_size
    if call.output.shape != (*call.input(0).shape[:-1], frames, size):
        shape = list(call.output.shape)
        raise NotSupportedError(f"frames of {size} samples in shape {shape}")
    valid = TensorType(call.outputs[1].shape, BOOL)
    if valid.elements != 1:
        raise NotSupportedError(f"a flag of shape {list(valid.shape)}")
    return (TensorType(call.output.shape, INT16), valid, *call.outputs[2:])


def _framer_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(FramerAttrs)
    rows, count = streams(call.input(0))
    size, step = attrs.frame_size, attrs.frame_step
    x = arrays[0].reshape(rows, count)
    past = arrays[1] if len(arrays) > 1 else np.zeros((rows, 0), np.int16)
    sequence = np.concatenate([past, x], axis=1)
    starts = range(0, count // step * step, step)
    frames = np.stack([sequence[:, start : start + size] for start in starts], 1)
    missing = int(arrays[2][0]) if len(arrays) > 2 else 0
    valid = np.full(call.outputs[1].shape, missing == 0)
    new_state: list[Array] = []
    if len(arrays) > 1:
        new_state.append(sequence[:, sequence.shape[1] - past.shape[1] :])
    if len(arrays) > 2:
        countdown = max(missing - count // step, 0)
        new_state.append(np.array([countdown], np.int32))
    return (frames.reshape(call.output.shape), valid, *new_state)


def _framer_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(FramerAttrs)
    rows, count = streams(call.input(0))
    size, step = attrs.frame_size, attrs.frame_step
    frames = count // step
    reach = call.input(1).shape[1] if call.has_input(1) else 0
    x = b.view("samples", b.input(0), 0, (rows, count))
    y = b.view("frames", b.y, 0, (rows, frames, size), access="w")
    valid = b.view("valid", b.outputs[1], 0, (1,), access="w")
    with b.for_("row", rows) as row:
        for frame in range(frames):
            first = frame * step
            older = min(max(reach - first, 0), size)
            if older:
                with b.for_("k", older) as k:
                    b.store(y, [row, frame, k], b.load(b.input(1), [row, k + first]))
            start = first + older - reach
            with b.for_("j", size - older) as j:
                b.store(y, [row, frame, j + older], b.load(x, [row, j + start]))
    if not call.has_input(2):
        b.store(valid, [0], True)
    else:
        missing = b.load(b.input(2), [0])
        b.store(valid, [0], missing.equal(0))
        b.store(b.outputs[3], [0], maximum(missing - frames, 0))
    if reach:
        with b.for_("one", rows) as row:
            _update_history(b, b.input(1), x, b.outputs[2], row)


def _stacker_infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(StackerAttrs)
    _only_int16(call)
    channels = attrs.num_channels
    frames = attrs.left + 1 + attrs.right
    if call.input(0).elements != channels or call.output.elements != channels * frames:
        shape = list(call.input(0).shape)
        raise NotSupportedError(f"{frames} frames of {channels} from {shape}")
    if call.outputs[1].elements != 1:
        raise NotSupportedError(f"a flag of shape {list(call.outputs[1].shape)}")
    flag = TensorType(call.outputs[1].shape, BOOL)
    return (TensorType(call.output.shape, INT16), flag, *call.outputs[2:])


def _stacker_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(StackerAttrs)
    x, state = arrays[0].reshape(-1), int(arrays[1][0])
    past = arrays[2].reshape(-1) if len(arrays) > 2 else np.zeros(0, np.int16)
    if state < 0:
        past, state = np.tile(x, len(past) // len(x)), attrs.right
    stacked = np.concatenate([past, x])
    wait = attrs.step - 1 if state == 0 else state - 1
    new_state: list[Array] = []
    if len(arrays) > 2:
        new_state.append(stacked[len(x) :].reshape(arrays[2].shape))
    flag = np.full(call.outputs[1].shape, state == 0)
    return (
        stacked.reshape(call.output.shape),
        flag,
        np.array([wait], np.int32),
        *new_state,
    )


def _stacker_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(StackerAttrs)
    channels, total = attrs.num_channels, call.output.elements
    older = total - channels
    x = b.view("frame", b.input(0), 0, (channels,))
    y = b.view("stacked", b.y, 0, (total,), access="rw")
    valid = b.view("valid", b.outputs[1], 0, (1,), access="w")
    before = b.let("before", b.load(b.input(1), [0]), INT32)
    wait = b.let("wait", select(before < 0, attrs.right, before), INT32)
    if older:
        with (
            b.if_(before < 0),
            b.for_("copy", older // channels) as copy,
            b.for_("c", channels) as c,
        ):
            b.store(y, [copy * channels + c], b.load(x, [c]))
        with b.else_():
            _copy_loop(b, y, [], older, lambda k: b.load(b.input(2), [0, k]))
    with b.for_("c", channels) as c:
        b.store(y, [c + older], b.load(x, [c]))
    b.store(valid, [0], wait.equal(0))
    b.store(b.outputs[2], [0], select(wait.equal(0), attrs.step, wait) - 1)
    if older:
        _copy_loop(b, b.outputs[3], [0], older, lambda k: b.load(y, [k + channels]))


def _delay_infer(call: OpCall) -> tuple[TensorType, ...]:
    _only_int16(call)
    return (TensorType(call.input(0).shape, INT16), *call.outputs[1:])


def _delay_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    rows, count = streams(call.input(0))
    if len(arrays) == 1:
        return (arrays[0].copy(),)
    sequence = np.concatenate([arrays[1], arrays[0].reshape(rows, count)], axis=1)
    return (sequence[:, :count].reshape(call.output.shape), sequence[:, count:])


def _delay_lower(call: OpCall, b: Kernel) -> None:
    rows, count = streams(call.input(0))
    reach = call.input(1).shape[1] if call.has_input(1) else 0
    x, y = b.views("samples out", (rows, count), b.input(0), b.y)
    with b.for_("row", rows) as r:
        older = min(reach, count)
        _copy_loop(b, y, [r], older, lambda k: b.load(b.input(1), [r, k]))
        with b.for_("j", count - older) as j:
            b.store(y, [r, j + older], b.load(x, [r, j]))
        if reach:
            _update_history(b, b.input(1), x, b.outputs[1], r)


def _overlap_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, step = call.input(0), call.attributes(OverlapAddAttrs).frame_step
    if x.dtype not in (INT16, FLOAT32) or call.output.dtype != x.dtype:
        kinds = f"{x.dtype.name} giving {call.output.dtype.name}"
        raise NotSupportedError(f"overlap_add of {kinds}")
    *rows, frames, _ = x.shape
    shape = call.output.shape
    if shape != (*rows, frames * step):
        what = f"{frames} frames of {step} sums in shape {list(shape)}"
        raise NotSupportedError(what)
    return (TensorType(shape, x.dtype), *call.outputs[1:])


def _overlap_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, step = call.input(0), call.attributes(OverlapAddAttrs).frame_step
    frames, size = x.shape[-2:]
    pieces = arrays[0].reshape(-1, frames, size)
    left = arrays[1] if len(arrays) > 1 else np.zeros((len(pieces), 0), x.dtype.np)
    pieces_of_sums = []
    for frame in range(frames):
        zeros = np.zeros((len(pieces), step), left.dtype)
        padded = np.concatenate([left, zeros], axis=1)
        if x.dtype == INT16:
            total = padded.astype(np.int32) + pieces[:, frame]
            sums = np.clip(total, INT16.min, INT16.max).astype(np.int16)
        else:
            sums = padded + pieces[:, frame]
        pieces_of_sums.append(sums[:, :step])
        left = sums[:, step:]
    result = np.concatenate(pieces_of_sums, axis=1).reshape(call.output.shape)
    return (result, left) if len(arrays) > 1 else (result,)


def _overlap_lower(call: OpCall, b: Kernel) -> None:
    kind, step = call.input(0), call.attributes(OverlapAddAttrs).frame_step
    frames, size = kind.shape[-2:]
    rows, left = kind.elements // (frames * size), size - step
    x = b.view("frames", b.input(0), 0, (rows, frames, size))
    y = b.view("out", b.y, 0, (rows, frames * step), access="w")
    with b.for_("row", rows) as row:
        sums = b.outputs[1] if left else y

        def added(frame: ArithExpr, k: ArithExpr, *, is_left: bool) -> ArithExpr:
            new = b.load(x, [row, frame, k])
            if not is_left:
                return new
            old = b.load(sums, [row, k])
            if kind.dtype == FLOAT32:
                return old + new
            total = old.cast(INT32) + new.cast(INT32)
            return maximum(minimum(total, INT16.max), INT16.min).cast(INT16)

        if left:
            _copy_loop(b, sums, [row], left, lambda k: b.load(b.input(1), [row, k]))
        with b.for_("frame", frames) as frame:
            first = frame * step
            for start, end in ((0, min(step, left)), (min(step, left), step)):
                is_left = start < left and end <= left
                if end > start:
                    with b.for_("k", end - start) as k:
                        value = added(frame, k + start, is_left=is_left)
                        b.store(y, [row, first + start + k], value)
            for start, end in ((step, max(step, left)), (max(step, left), size)):
                if left and end > start:
                    with b.for_("k", end - start) as k:
                        value = added(frame, k + start, is_left=end <= left)
                        b.store(sums, [row, k + (start - step)], value)


def _circular_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype != INT8 or y.dtype != INT8 or call.input(1).shape != y.shape:
        kinds = f"{x.dtype.name} with {y.dtype.name} output"
        raise NotSupportedError(f"a circular buffer of {kinds}")
    if len(y.shape) != 4 or x.shape != (1, 1, *y.shape[2:]):
        raise NotSupportedError(f"slots of {list(x.shape)} in {list(y.shape)}")
    return (TensorType(y.shape, INT8, y.quantization),)


def _circular_lower(call: OpCall, b: Kernel) -> None:
    slot, total = call.input(0).elements, call.output.elements
    x = b.view("slot", b.input(0), 0, (slot,))
    before, y = b.views("before out", (total,), b.input(1), b.y)
    if total > slot:
        with b.for_("i", total - slot) as i:
            b.store(y, [i], b.load(before, [i + slot]))
    with b.for_("k", slot) as k:
        b.store(y, [k + (total - slot)], b.load(x, [k]))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "framer",
        _framer_infer,
        _framer_reference,
        _framer_lower,
        dtypes=("int16",),
        inputs=("x", "past?", "missing?"),
        results=("y", "is valid", "past?", "missing?"),
        numerics="tflm",
        is_audio_front_end=True,
    ),
    OpDef(
        "stacker",
        _stacker_infer,
        _stacker_reference,
        _stacker_lower,
        dtypes=("int16",),
        inputs=("x", "wait", "past?"),
        results=("y", "is valid", "wait", "past?"),
        numerics="tflm",
    ),
    OpDef(
        "delay",
        _delay_infer,
        _delay_reference,
        _delay_lower,
        dtypes=("int16",),
        inputs=("x", "past?"),
        results=("y", "past?"),
        numerics="tflm",
    ),
    OpDef(
        "overlap_add",
        _overlap_infer,
        _overlap_reference,
        _overlap_lower,
        dtypes=("int16", "float32"),
        inputs=("x", "left?"),
        results=("y", "left?"),
        numerics="tflm",
    ),
    OpDef(
        "circular_buffer",
        _circular_infer,
        lambda call, arrays: (np.concatenate([arrays[1][:, 1:], arrays[0]], axis=1),),
        _circular_lower,
        dtypes=("int8",),
        inputs=("x", "before"),
        numerics="tflm",
    ),
)
