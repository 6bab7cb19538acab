"""Cycle timing of cores, from published tables and measurements (core_timing.toml)."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources


@dataclass(frozen=True, slots=True)
class CoreTiming:
    """The timing of a core with memory without wait states; `source` states the origin.

    An instruction takes `cycles` of its kind, by default `other`, and `per_register`
    for each word of a multiple load or store. The next instruction waits `load_tail`
    cycles after a load unless it is an independent load or store, `address_stall` after
    an instruction that computes its address, and `result_stall` after one of that kind
    whose result it uses. A taken branch adds `refill` cycles. Instructions are fetched
    ahead into `fetch_words` words; 0 means that fetches never stall. An unaligned
    access takes `unaligned` cycles more. `silicon` is the range of the ratios of
    published cycles to modeled ones (benchmarks/silicon.csv); zeros without figures.

    With `latency`, results are available that many cycles after issue (by default 1),
    loaded ones `after_load` cycles later for some users; `early` operands and addresses
    are needed before and `late` ones after the issue. A latency of 0 needs the first
    slot and early operands. One of `second` issues with the instruction before unless
    that has an entry in `cycles`, if both have at most `pair_bytes`. Each of the
    `units` executes one instruction at a time, for its `busy` cycles. A branch that
    goes the rarer way is `mispredicted` and takes that many cycles more. Tables are by
    variant or kind of instruction.
    """

    source: str
    other: float = 1.0
    cycles: Mapping[str, float] = field(default_factory=dict)
    per_register: float = 1.0
    load_tail: float = 0.0
    address_stall: float = 0.0
    result_stall: Mapping[str, float] = field(default_factory=dict)
    refill: float = 2.0
    fetch_words: int = 0
    unaligned: float = 1.0
    silicon: tuple[float, float] = (0.0, 0.0)
    latency: Mapping[str, float] = field(default_factory=dict)
    after_load: Mapping[str, float] = field(default_factory=dict)
    early: float = 0.0
    late: Mapping[str, float] = field(default_factory=dict)
    second: tuple[str, ...] = ()
    pair_bytes: int = 4
    units: tuple[tuple[str, ...], ...] = ()
    busy: Mapping[str, float] = field(default_factory=dict)
    mispredicted: float = 0.0


@functools.cache
def core_timings() -> Mapping[str, CoreTiming]:
    """Return the timing by core; a core without an entry has no published timing."""
    file = resources.files("firmwright.targets").joinpath("core_timing.toml")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {core: CoreTiming(**table) for core, table in tables.items()}
