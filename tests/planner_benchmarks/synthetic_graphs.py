"""Seeded synthetic networks as planning problems: graphs of four families, intervals.

A network is a list of tensors in the order of the operators that write them, each with
the tensors that its operator reads. A tensor lives from its operator to its last
reader, both included. A name and a seed identify a problem.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.interference import build_interference

ALIGNMENT = 16
PLAIN_SEEDS = 40
PLAIN_NODES = (12, 80)
LARGE_NODES = (20, 60, 200, 600, 2000)

PlanningProblem: TypeAlias = tuple[
    tuple[BufferInfo, ...], tuple[OffsetConstraint[str], ...], tuple[PoolInfo, ...]
]


class Net:
    """Tensors with their sizes and readers, appended one by one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes: list[int] = []
        self.last_use: list[int] = []

    def add(self, size_bytes: int, *inputs: int) -> int:
        """Add an operator; return the number of the tensor that it writes."""
        number = len(self.sizes)
        self.sizes.append(max(1, size_bytes))
        self.last_use.append(number)
        for tensor in inputs:
            self.last_use[tensor] = number
        return number

    def problem(self, count: int) -> PlanningProblem:
        """Return the first `count` tensors as a problem."""
        return problem_of(
            [
                (size, number, min(last, count - 1) + 1)
                for number, (size, last) in enumerate(
                    zip(self.sizes[:count], self.last_use[:count], strict=True)
                )
            ]
        )


def problem_of(rows: list[tuple[int, int, int]]) -> PlanningProblem:
    """Return buffers of (bytes, start, end) in one unlimited pool."""
    buffers = tuple(
        BufferInfo(
            f"t{number}",
            size,
            ALIGNMENT,
            (LiveRange(first, end),),
            "activation",
            ("sram",),
        )
        for number, (size, first, end) in enumerate(rows)
    )
    return buffers, build_interference(buffers), (PoolInfo("sram"),)


def inception(rng: random.Random, count: int) -> PlanningProblem:
    """Generate modules of parallel branches that a concatenation joins."""
    net = Net(rng)
    side, joined = rng.choice([24, 32, 48]), 0
    net.add(side * side * 3)
    while len(net.sizes) < count:
        ends = []
        for length in rng.sample([1, 1, 2, 2, 3, 4], 4):
            tensor = joined
            for _ in range(length):
                tensor = net.add(side * side * 8 * rng.randrange(1, 9), tensor)
            ends.append(tensor)
        joined = net.add(sum(net.sizes[tensor] for tensor in ends), *ends)
        if side > 6 and rng.random() < 0.35:
            side //= 2
            joined = net.add(net.sizes[joined] // 4, joined)
    return net.problem(count)


def nasnet(rng: random.Random, count: int) -> PlanningProblem:
    """Generate cells of five sums of two tensors; a cell reads the two cells before."""
    net = Net(rng)
    side, channels = 32, 16
    before = net.add(side * side * channels)
    last = net.add(side * side * channels, before)
    while len(net.sizes) < count:
        states = [before, last]
        for _ in range(5):
            left, right = rng.choice(states), rng.choice(states)
            area = side * side * channels
            states.append(net.add(area, net.add(area, left), net.add(area, right)))
        before, last = (
            last,
            net.add(side * side * channels * rng.choice([3, 5]), *states[2:]),
        )
        if side > 4 and rng.random() < 0.3:
            side, channels = side // 2, channels * 3 // 2
    return net.problem(count)


def randwired(rng: random.Random, count: int) -> PlanningProblem:
    """Generate operators that read one to three of the latest dozen tensors."""
    net = Net(rng)
    net.add(32 * 32 * 8)
    while len(net.sizes) < count:
        latest = len(net.sizes)
        window = min(latest, 12)
        inputs = {
            latest - 1 - min(rng.randrange(window), rng.randrange(window))
            for _ in range(rng.randrange(1, 4))
        }
        net.add(
            rng.choice([256, 512, 1024, 3136, 4096]) * rng.randrange(1, 8),
            *sorted(inputs),
        )
    return net.problem(count)


def unet(rng: random.Random, count: int) -> PlanningProblem:
    """Generate repeated encoders and decoders with a shortcut at each level."""
    net = Net(rng)
    levels = rng.randrange(2, 6)
    tensor = net.add(64 * 64 * 3)
    while len(net.sizes) < count:
        side, channels, remaining = 64, 8, []
        for _ in range(levels):
            for _ in range(rng.randrange(1, 4)):
                tensor = net.add(side * side * channels, tensor)
            remaining.append((tensor, side * side * channels))
            side, channels = side // 2, channels * 2
            tensor = net.add(side * side * channels, tensor)
        for shortcut, area in reversed(remaining):
            tensor = net.add(area, tensor)
            tensor = net.add(2 * area, tensor, shortcut)
            tensor = net.add(area, tensor)
    return net.problem(count)


def intervals(rng: random.Random, count: int) -> PlanningProblem:
    """Generate live ranges of random start and length, on average ten at a time."""
    rows = []
    for _ in range(count):
        first = rng.randrange(count)
        length = 1 + int(rng.expovariate(1 / 10))
        size = rng.choice([64, 160, 512, 1024, 2560]) * rng.randrange(1, 10)
        rows.append((size, first, min(first + length, count)))
    return problem_of(rows)


def log_uniform(rng: random.Random, count: int) -> PlanningProblem:
    """Generate lives and sizes of log-uniform length, from 1 to 400 KiB."""
    rows = []
    for _ in range(count):
        length = 1 + int((count / 6) ** rng.random())
        first = rng.randrange(count - length)
        rows.append((1024 * int(math.exp(rng.uniform(0, 6))), first, first + length))
    return problem_of(rows)


def crowded(rng: random.Random, count: int) -> PlanningProblem:
    """Generate mostly small buffers of which up to a third are alive at once."""
    rows = []
    for _ in range(count):
        length = 1 + int(count / 4 * rng.random() ** 3)
        first = rng.randrange(count // 2 - length)
        rows.append((1024 * (1 + int(400 * rng.random() ** 4)), first, first + length))
    return problem_of(rows)


def cut_rectangle(rng: random.Random, count: int) -> tuple[PlanningProblem, int]:
    """Return about `count` buffers cut from a rectangle, and the rectangle's height.

    Pieces are cut in two, or in five around a center, which no straight cut separates.
    """
    pieces = [(0, 4 * count, 0, 64 * count)]
    height = pieces[0][3] * ALIGNMENT
    while len(pieces) < count:
        areas = [(end - first) * (top - bottom) for first, end, bottom, top in pieces]
        first, end, bottom, top = pieces.pop(rng.choices(range(len(areas)), areas)[0])
        left, right = sorted(rng.randint(first, end) for _ in range(2))
        low, high = sorted(rng.randint(bottom, top) for _ in range(2))
        match rng.randrange(5):
            case 0 | 1:
                cut = [(first, left, bottom, top), (left, end, bottom, top)]
            case 2 | 3:
                cut = [(first, end, bottom, low), (first, end, low, top)]
            case _:
                cut = [
                    (first, right, bottom, low),
                    (right, end, bottom, high),
                    (left, end, high, top),
                    (first, left, low, top),
                    (left, right, low, high),
                ]
        pieces += [p for p in cut if p[0] < p[1] and p[2] < p[3]]
    rng.shuffle(pieces)
    rows = [
        ((top - bottom) * ALIGNMENT, first, end) for first, end, bottom, top in pieces
    ]
    return problem_of(rows), height


FAMILIES: Mapping[str, Callable[[random.Random, int], PlanningProblem]] = (
    MappingProxyType(
        {"inception": inception, "nasnet": nasnet, "randwired": randwired, "unet": unet}
    )
)


def small_graph(family: str, seed: int) -> PlanningProblem:
    """Return one of the forty graphs of a family, with 12 to 80 tensors."""
    rng = random.Random(f"{family} {seed}")
    return FAMILIES[family](rng, rng.randint(*PLAIN_NODES))


def small_graphs() -> Iterator[tuple[str, PlanningProblem]]:
    """Yield all 160 small graphs with names."""
    for family in FAMILIES:
        for seed in range(PLAIN_SEEDS):
            yield f"{family} {seed}", small_graph(family, seed)


def large_graphs(
    sizes: tuple[int, ...] = LARGE_NODES,
) -> Iterator[tuple[str, PlanningProblem]]:
    """Yield every family and the intervals at each of `sizes`: 25 problems."""
    for count in sizes:
        for family, make in {**FAMILIES, "intervals": intervals}.items():
            name = f"{family} of {count}"
            yield name, make(random.Random(name), count)
