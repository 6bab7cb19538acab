"""Kinds of the attributes in module text, by name; the parser checks them.

An attribute that these tables do not name may have any value: extensions have their
own.
"""

import math
from collections.abc import Mapping
from typing import get_args

from firmwright.base.value_kinds import TEXT, TRUTH, Kind
from firmwright.ir.bounded_axis import SIZES_MAX, is_range_of_sizes
from firmwright.ir.core import LINKER_SECTION
from firmwright.ir.settings import Minimize, NumericsProfile

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = {
    "none": (None, None),
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
    "relu_0_to_1": (0.0, 1.0),
}
"""Fused activation -> real range, None where unbounded."""
_INT_MAX = (1 << 63) - 1


AttrKinds = Mapping[str, Kind]


def _is_int(value: object) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) <= _INT_MAX
    )


def _is_section(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return not value or LINKER_SECTION.fullmatch(value) is not None


def _is_pool_access(value: object) -> bool:
    return TEXTS.includes(value) and isinstance(value, tuple) and len(value) >= 2


def _is_axis(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 3:
        return False
    name, least, most = value
    is_typed = TEXT.includes(name) and _is_int(least) and _is_int(most)
    return is_typed and is_range_of_sizes(least, most)


def _is_speed(value: object) -> bool:
    is_number = _is_int(value) or isinstance(value, float)
    return is_number and 0 < float(str(value)) < math.inf


INT = Kind("an integer of 64 bits", _is_int)
COUNT = Kind("a count", lambda value: _is_int(value) and int(str(value)) >= 0)
INT_OR_FLAG = Kind(
    "an integer", lambda value: _is_int(value) or isinstance(value, bool)
)
FLOAT = Kind("a float", lambda value: isinstance(value, float))
NUMBER = Kind("a number", lambda value: _is_int(value) or isinstance(value, float))
SPEED = Kind("a positive number", _is_speed)


def one_of(words: Mapping[str, object] | tuple[str, ...]) -> Kind:
    return Kind(f"one of {', '.join(words)}", lambda value: value in words)


def either(*kinds: Kind) -> Kind:
    names = " or ".join(kind.description for kind in kinds)

    def accepts(value: object) -> bool:
        return any(kind.includes(value) for kind in kinds)

    return Kind(names, accepts)


def list_of(kind: Kind, count: int | None = None) -> Kind:
    """Return the kind of lists, of `count` elements if it is given."""

    def accepts(value: object) -> bool:
        if not isinstance(value, tuple) or count not in (None, len(value)):
            return False
        return all(map(kind.includes, value))

    amount = "a list" if count is None else f"a list of {count} values"
    return Kind(f"{amount}, each {kind.description}", accepts)


def row_of(*kinds: Kind) -> Kind:
    """Return the kind of lists with one value of each of `kinds`."""

    def accepts(value: object) -> bool:
        if not isinstance(value, tuple) or len(value) != len(kinds):
            return False
        pairs = zip(kinds, value, strict=True)
        return all(kind.includes(item) for kind, item in pairs)

    descriptions = ", ".join(kind.description for kind in kinds)
    return Kind(f"a list of {descriptions}", accepts)


INTS, NUMBERS, TEXTS = list_of(INT), list_of(NUMBER), list_of(TEXT)
PAIRS = list_of(list_of(TEXT, 2))


MODULE_ATTRIBUTES: AttrKinds = {
    "numerics": one_of(get_args(NumericsProfile)),
    "optimize": one_of(tuple(Minimize)),
    **dict.fromkeys(("entry", "planner", "board", "stage", "tuning"), TEXT),
    "source_sha256": TEXT,
    "harden": TRUTH,
    "engine_core": either(TEXT, TEXTS),
    **dict.fromkeys(
        ("link_params", "fallback", "recompute", "compress_weights", "no_nan"), TRUTH
    ),
    **dict.fromkeys(
        ("pipeline_runs", "weight_independent", "all_channels", "short_loops"), TRUTH
    ),
    **dict.fromkeys(
        ("ram_bytes", "flash_bytes", "ramfunc_bytes", "compressed_bytes"), COUNT
    ),
    **dict.fromkeys(("pipelined_runs", "subgraph", "program_latency"), COUNT),
    **dict.fromkeys(("program_bandwidth", "flash_stalls"), NUMBER),
    **dict.fromkeys(
        ("devices", "copiers", "partitioned", "backend_checks", "passes"), TEXTS
    ),
    **dict.fromkeys(("offload", "offload_shares", "device_waits"), PAIRS),
    "rejections": list_of(list_of(TEXT, 4)),
    "visible_pools": list_of(Kind("a target, a device and pools", _is_pool_access)),
    "live_channels": list_of(row_of(TEXT, INTS)),
    "axis": Kind(f"a name and the bounds of at most {SIZES_MAX} sizes", _is_axis),
    "backends": Kind("the records of backends", lambda value: isinstance(value, tuple)),
}
POOL_ATTRIBUTES: AttrKinds = {
    **dict.fromkeys(
        ("size_bytes", "read_latency", "write_latency", "cache_line", "start"), COUNT
    ),
    **dict.fromkeys(("read_bandwidth", "write_bandwidth"), SPEED),
    "access": one_of(("rw", "ro")),
    "targets": TEXTS,
    "scope": one_of(("global", "external", "port", "async")),
    "section": Kind("the name of a linker section", _is_section),
    "tightly_coupled": TRUTH,
}
FUNCTION_ATTRIBUTES: AttrKinds = {
    **dict.fromkeys(
        ("target", "symbol", "composite", "op", "schedule", "comment", "code"), TEXT
    ),
    **dict.fromkeys(
        ("aot_main", "keeps", "ramfunc", "disable_scheduling", "keep_block_order"),
        TRUTH,
    ),
    **dict.fromkeys(("macs", "modeled_cycles"), COUNT),
    "constants_pool": TEXT,
    "extern": either(TEXT, TEXTS),
    "pool_assignments": PAIRS,
    "inplace_distances": list_of(INT, 2),
    "overlays": list_of(row_of(TEXT, TEXT, INT)),
}
