"""biquads: a cascade of second-order filters (IIR) along axis 1, in float32.

Inputs: x [N, T, C]; sections [S, 5], the constants b0, b1, b2, a1, a2 of each; state
[N, 2 S, C], or with one N for all. The results are the filtered samples 0, `step`,
2 `step`, ... and, if the call has two results, the state after the last sample.

A section computes, from its input u and its state (p, q), and rounds each operation:

    y = b0 u + p;  p = (b1 u - a1 y) + q;  q = b2 u - a2 y

This is the transposed direct form 2. Semantics: scipy.signal.sosfilt of float32 (scipy
1.17, without multiply-adds of one rounding), whose values it equals bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.sensors import DecimatingAttrs
from firmwright.ir.tir.builder import ArithExpr, Register
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

_SECTIONS_MAX = 256
"""Filters of more sections would be more code than any controller has."""
_SECTIONS_AT_ONCE = 3
"""Sections in one loop: their state and coefficients fit the registers of an FPU."""


def check_samples(call: OpCall) -> tuple[int, int, int]:
    """Return the shape [N, T, C] of the samples; NotSupportedError for another."""
    x = call.input(0)
    if x.dtype != FLOAT32 or len(x.shape) != 3 or not x.elements:
        raise NotSupportedError(f"samples of {x.dtype.name} {list(x.shape)}")
    items, count, channels = x.shape
    return items, count, channels


def check_step(call: OpCall, count: int) -> int:
    """Return the step; NotSupportedError unless it divides the `count` of samples."""
    step = call.attributes(DecimatingAttrs).step
    if step < 1 or count % step:
        raise NotSupportedError(f"every {step}-th of {count} samples")
    return step


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    items, count, channels = check_samples(call)
    step, sections, state = check_step(call, count), call.input(1), call.input(2)
    if call.constant(1) is None or sections.dtype != FLOAT32:
        raise NotSupportedError("sections that are not constants of float32")
    rows = sections.shape[0] if len(sections.shape) == 2 else 0
    if not 0 < rows <= _SECTIONS_MAX or sections.shape[1] != 5:
        raise NotSupportedError(f"sections of shape {list(sections.shape)}")
    shape = (items, 2 * sections.shape[0], channels)
    is_shared = call.constant(2) is not None and state.shape[:1] == (1,)
    own = (1 if is_shared else items, *shape[1:])
    if state.dtype != FLOAT32 or state.shape != own:
        raise NotSupportedError(f"a state of shape {list(state.shape)}")
    y = TensorType((items, count // step, channels), FLOAT32)
    return (y, TensorType(shape, FLOAT32))[: len(call.outputs)]


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, sections, initial = arrays
    items, count, channels = x.shape
    shape = (len(sections), 2, items, channels)
    state = np.empty(shape, np.float32)
    state[...] = np.moveaxis(initial, 1, 0).reshape(len(sections), 2, -1, channels)
    y = np.empty((count, items, channels), np.float32)
    with np.errstate(all="ignore"):
        for t, value in enumerate(np.moveaxis(x, 1, 0)):
            for (b0, b1, b2, a1, a2), (p, q) in zip(sections, state, strict=True):
                result = b0 * value + p
                p[...] = (b1 * value - a1 * result) + q
                q[...] = b2 * value - a2 * result
                value = result
            y[t] = value
    step = call.attributes(DecimatingAttrs).step
    kept = np.ascontiguousarray(np.moveaxis(y[::step], 0, 1))
    following = state.reshape(-1, items, channels)
    return (kept, np.ascontiguousarray(np.moveaxis(following, 0, 1)))[
        : len(call.outputs)
    ]


@dataclass(frozen=True, slots=True)
class _Section:
    """A section in a kernel: its coefficients, and its state in registers."""

    coefficients: Sequence[float]
    first: Register
    second: Register

    def apply(self, b: Kernel, u: ArithExpr) -> ArithExpr:
        b0, b1, b2, a1, a2 = self.coefficients
        y = b.let("y", u * b0 + self.first.value)
        self.first.set((u * b1 - y * a1) + self.second.value)
        self.second.set(u * b2 - y * a2)
        return y


def _groups(sections: Array) -> Iterator[tuple[int, Array]]:
    """Yield sections for one loop with the index of their first one."""
    for first in range(0, len(sections), _SECTIONS_AT_ONCE):
        yield first, sections[first : first + _SECTIONS_AT_ONCE]


def _lower(call: OpCall, b: Kernel) -> None:
    items, count, channels = call.input(0).shape
    step = call.attributes(DecimatingAttrs).step
    constant = call.constant(1)
    assert constant is not None
    groups = list(_groups(constant.array()))
    line = b.allocate("line", FLOAT32, (count,)) if len(groups) > 1 else None
    with b.loops("n c", (items, channels)) as (n, c):
        for first, group in groups:
            sections = _load_sections(b, first, group, (n, c))
            source = line if first > 0 else None
            load = partial(_load_value, b, source, (n, c))
            if line is not None and first + len(group) < len(constant.array()):
                with b.for_("t", count) as t:
                    b.store(line, [t], _filter(b, sections, load(t)))
            else:
                _store_kept(b, sections, load, (n, c), step)
            if len(b.outputs) > 1:
                _store_state(b, sections, first, (n, c))


def _load_sections(
    b: Kernel, first: int, group: Array, place: tuple[ArithExpr, ArithExpr]
) -> list[_Section]:
    """Return the sections of a group, of which the first one has the index `first`."""
    n, c = place
    item: ArithExpr | int = 0 if b.input(2).shape[0] == 1 else n
    sections: list[_Section] = []
    for index, coefficients in enumerate(group, first):
        registers: list[Register] = []
        for number in (2 * index, 2 * index + 1):
            start = b.load(b.input(2), [item, number, c])
            registers.append(b.register(f"s{number}", FLOAT32, start))
        sections.append(_Section(coefficients.tolist(), *registers))
    return sections


def _load_value(
    b: Kernel,
    line: tir.Buffer | None,
    place: tuple[ArithExpr, ArithExpr],
    t: ArithExpr,
) -> ArithExpr:
    """Load a sample of a channel, or of the line between two groups of sections."""
    n, c = place
    return b.load(b.input(0), [n, t, c]) if line is None else b.load(line, [t])


def _store_state(
    b: Kernel,
    sections: Sequence[_Section],
    first: int,
    place: tuple[ArithExpr, ArithExpr],
) -> None:
    n, c = place
    for index, section in enumerate(sections, first):
        b.store(b.outputs[1], [n, 2 * index, c], section.first.value)
        b.store(b.outputs[1], [n, 2 * index + 1, c], section.second.value)


def _filter(b: Kernel, sections: Sequence[_Section], value: ArithExpr) -> ArithExpr:
    value = b.let("u", value)
    for section in sections:
        value = section.apply(b, value)
    return value


def _store_kept(
    b: Kernel,
    sections: Sequence[_Section],
    load: Callable[[ArithExpr], ArithExpr],
    place: tuple[ArithExpr, ArithExpr],
    step: int,
) -> None:
    """Filter all samples of a channel; store the first of each `step`."""
    n, c = place
    with b.for_("k", b.y.shape[1]) as k:
        b.store(b.y, [n, k, c], _filter(b, sections, load(k * step)))
        if step > 1:
            with b.for_("rest", step - 1) as rest:
                _filter(b, sections, load(k * step + 1 + rest))


def _macs(call: OpCall) -> int:
    return call.input(0).elements * call.input(1).elements


OPDEF = OpDef("biquads", _infer, _reference, _lower, macs=_macs)
