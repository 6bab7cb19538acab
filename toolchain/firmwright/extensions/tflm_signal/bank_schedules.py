"""Filter banks whose channels follow each other, and square roots by divisions.

The bins of all channels are one run of the spectrum. Each bin has a pair of weights: of
its own channel and of the next one. Bins without weights at either end of a channel are
left out, and those between two channels have weights of 0.

The square root of a 64-bit number x, scaled to use all bits, is that of its high word,
s, of 16 bits, and 16 more bits: the rest of the high word divided by 2 s (Zimmermann,
Karatsuba Square Root, 1999). The quotient is at most one too large.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import UINT16, UINT32, UINT64, Array
from firmwright.base.text_sections import insert_sections, read_sections
from firmwright.extensions.tflm_signal.filter_bank import bank_tables, lower_roots
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.ops.intrinsics import rounded_square_root
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_C = read_sections(__file__)


@dataclass(frozen=True, slots=True)
class BankRun:
    """The run of bins of a filter bank.

    `first` is its first bin, `widths` [channels + 1] are the bins of the channels, and
    `weights` [bin, 2] those of the channel and of the next one.
    """

    first: int
    widths: Array
    weights: Array

    @property
    def has_short_sums(self) -> bool:
        """Whether a channel's sum of products of 16 bits with weights has 32 bits."""
        ends = np.cumsum(self.widths)
        sums = [part.sum(axis=0).max() for part in np.split(self.weights, ends[:-1])]
        return max(sums, default=0) * UINT16.max <= UINT32.max


def find_run(call: OpCall) -> BankRun | None:
    """Return the run of a bank, or None if a weight is negative or bins repeat."""
    weights, unweights, bins, starts, widths = bank_tables(call)
    stored = min(len(weights), len(unweights))
    both = np.stack([weights[:stored], unweights[:stored]], axis=1).astype(np.int64)
    first = end = -1
    sizes: list[int] = []
    rows: list[Array] = []
    for bin_, start, width in zip(bins, starts, widths, strict=True):
        part = both[start : start + width] if width > 0 else both[:0]
        used = np.flatnonzero(part.any(axis=1))
        if not len(used):
            sizes.append(0)
            continue
        begin = int(bin_) + int(used[0])
        first, end = (begin, begin) if end < 0 else (first, end)
        if begin < end:
            return None
        gap = np.zeros((begin - end, 2), np.int64)
        rows += [gap, part[used[0] : used[-1] + 1]]
        sizes.append(len(gap) + len(rows[-1]))
        end += sizes[-1]
    if not rows:
        return None
    table = np.concatenate(rows)
    return BankRun(first, np.array(sizes), table) if table.min() >= 0 else None


def _bank_sums(y: Array, energy: Array, weights: Array, widths: Array, _: int) -> Array:
    lanes = energy.reshape(len(energy), -1).astype(object)
    pairs = weights.reshape(len(weights), -1)[:, 0].reshape(-1, 2, 1).astype(object)
    sums, place = [], 0
    carried = np.zeros(lanes.shape[1], object)
    for width in widths.reshape(len(widths), -1)[:, 0].tolist():
        part = slice(place, place + width)
        products = lanes[part, None] * pairs[part]
        rising, falling = products.sum(axis=0) if width else (0 * carried, 0 * carried)
        sums.append(carried + rising)
        carried, place = falling, place + width
    return (np.array(sums[1:]) % (1 << 64)).astype(np.uint64).reshape(y.shape)


def _bank_intrinsic(
    name: str, instructions: int, portable: str = "", requires: str = ""
) -> Intrinsic:
    """Return sums of a bank, with the instructions for a bin.

    They are of vectors, which are required, if the section `portable` has the portable
    text.
    """
    return Intrinsic(
        name,
        (
            *pointers(UINT64, "w", y=1),
            *pointers(UINT32, energy=1),
            *pointers(UINT16, weights=2, widths=2),
            *immediates("channels"),
        ),
        _bank_sums,
        _C[portable or name],
        "The sums of the channels of a filter bank.",
        requires=requires,
        text={"gnu": _C[name]} if portable else {},
        count=lambda args: args[1] * instructions + args[4] * 12,
    )


BANK_SUMS = _bank_intrinsic("bank_sums", 8)
BANK_SUMS_OF_HALVES = _bank_intrinsic("bank_sums_of_halves", 18)
BANK_SUMS_OF_VECTORS = _bank_intrinsic(
    "bank_sums_of_vectors", 6, BANK_SUMS_OF_HALVES.name, "rvv"
)
BANK_SUMS_OF_HELIUM = _bank_intrinsic("bank_sums_of_helium", 4, BANK_SUMS.name, "mve")


def _root_text(kind: str) -> str:
    return insert_sections(_C, "root_by_division", f"_of_{kind}")


ROOT_BY_DIVISION = Intrinsic(
    "root_by_division",
    inputs(UINT64, "x"),
    rounded_square_root,
    _root_text("integers"),
    "The rounded square root of x, limited to 16 bits if x has 32.",
    result=UINT32,
    requires="fpu",
    text={"gnu": _root_text("floats")},
    instructions=60,
    calls=("bit_length",),
)
INTRINSICS = (
    BANK_SUMS,
    BANK_SUMS_OF_HALVES,
    BANK_SUMS_OF_VECTORS,
    BANK_SUMS_OF_HELIUM,
    ROOT_BY_DIVISION,
)


def _run_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    run = find_run(call)
    return () if run is None else (NO_CONFIG,)


def _halves_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    run = find_run(call)
    return (NO_CONFIG,) if run is not None and run.has_short_sums else ()


def _build_bank(
    sums: Intrinsic, call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    run = find_run(call)
    assert run is not None
    weights = b.constant("weights", run.weights, UINT16, 4)
    widths = b.constant("widths", run.widths, UINT16)
    channels, bins = call.output.elements, len(run.weights)
    operands = [
        b.pointer(b.y, 0, channels, "w"),
        b.pointer(b.input(0), run.first, bins),
        b.pointer(weights, 0, 2 * bins),
        b.pointer(widths, 0, channels + 1),
    ]
    b.evaluate(sums.name, [*operands, channels])


def _build_roots(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    lower_roots(call, b, ROOT_BY_DIVISION.name)


def _bank_schedule(
    name: str,
    feature: str,
    configs: Callable[[OpCall], Sequence[ScheduleConfig]],
    sums: Intrinsic,
) -> Schedule[ScheduleConfig]:
    build = partial(_build_bank, sums)
    return Schedule(name, "filter_bank", frozenset({feature}), configs, build)


SCHEDULES = (
    _bank_schedule("scalar.filter_bank.run", "offsets", _run_configs, BANK_SUMS),
    _bank_schedule("rvv.filter_bank.run", "rvv", _halves_configs, BANK_SUMS_OF_VECTORS),
    _bank_schedule("helium.filter_bank.run", "mve", _run_configs, BANK_SUMS_OF_HELIUM),
    _bank_schedule(
        "thumb1.filter_bank.run", "thumb1", _halves_configs, BANK_SUMS_OF_HALVES
    ),
    Schedule(
        "scalar.filter_bank_square_root.divisions",
        "filter_bank_square_root",
        frozenset(),
        lambda call: (NO_CONFIG,),
        _build_roots,
    ),
)
