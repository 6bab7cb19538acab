"""Parsers for option values, which raise ArgumentTypeError for invalid text."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from firmwright.base.array_files import read_npy
from firmwright.base.dtypes import Array
from firmwright.base.trust import trusted_value
from firmwright.ir.bounded_axis import (
    DEFAULT_AXIS_NAME,
    SIZES_MAX,
    BoundedAxis,
    is_range_of_sizes,
)
from firmwright.ir.core import POOL_SPEEDS, PoolInfo

CONSTANT_SCOPES = {
    "linked": "global",
    "external": "external",
    "port": "port",
    "async": "async",
}
"""Access modes of constant pools on the command line, with their memory scopes."""


COUNT_MAX: Final = (1 << 31) - 1
SIZE_MAX: Final = (1 << 63) - 1
_SECONDS_MAX: Final = 1_000_000_000
"""About 30 years, which the clocks of all systems can add."""


def input_shape(text: str) -> tuple[str, tuple[int | BoundedAxis, ...]]:
    """Parse NAME=1,3,32,32, where a size may be 1..32 or AXIS:1..32."""
    name, equals, sizes = text.rpartition("=")
    try:
        shape = tuple(map(_size, sizes.split(","))) if sizes else ()
    except ValueError:
        shape = (0,)
    if not equals or not name or any(size == 0 for size in shape):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected NAME=SIZE,SIZE,..., of which one may be a range, "
            f"LEAST..MOST or AXIS:LEAST..MOST, of at most {SIZES_MAX:,} sizes"
        )
    return name, shape


def _size(text: str) -> int | BoundedAxis:
    """Parse one size; 0 is no size."""
    axis, colon, sizes = text.rpartition(":")
    least, dots, most = sizes.partition("..")
    if not dots:
        return 0 if colon else max(0, int(text))
    bounds = int(least), int(most)
    if not is_range_of_sizes(*bounds) or (colon and not axis.isidentifier()):
        return 0
    return BoundedAxis(axis or DEFAULT_AXIS_NAME, *bounds)


def input_values(text: str) -> tuple[str, Array | tuple[float, ...]]:
    """Parse NAME=1,2,3 or NAME=FILE.npy."""
    name, equals, values = text.partition("=")
    if equals and name and values.endswith(".npy"):
        return name, read_npy(values)
    try:
        numbers = tuple(float(value) for value in values.split(",")) if values else ()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUES")
    return name, numbers


def pool(text: str) -> PoolInfo:
    """Parse NAME[=BYTES][,SPEED=N...]."""
    head, *speed_texts = text.split(",")
    name, equals, size = head.partition("=")
    try:
        limit = int(size, 0) if equals else None
    except ValueError:
        limit = -1
    is_name = name.isidentifier() and name.isascii()
    if not is_name or (limit is not None and limit < 1):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME or NAME=BYTES")
    info = PoolInfo(name, limit)
    for speed in speed_texts:
        info = _with_speed(info, speed)
    return info


def _with_speed(info: PoolInfo, text: str) -> PoolInfo:
    """Return the pool with the speeds of `bandwidth=4` or `read_latency=2`."""
    name, _, number = text.partition("=")
    names = [n for n in POOL_SPEEDS if name in (n, n.partition("_")[2])]
    if not names:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a speed of the pool ([read_|write_]bandwidth=N or "
            "latency=N); repeat the option to name another pool"
        )
    try:
        value = int(number) if name.endswith("latency") else float(number)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf") or (value == 0 and "bandwidth" in name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected {name}=N")
    if isinstance(value, int):
        reads = value if "read_latency" in names else info.read_latency
        writes = value if "write_latency" in names else info.write_latency
        return replace(info, read_latency=reads, write_latency=writes)
    read = value if "read_bandwidth" in names else info.read_bandwidth
    write = value if "write_bandwidth" in names else info.write_bandwidth
    return replace(info, read_bandwidth=read, write_bandwidth=write)


def const_pool(text: str) -> PoolInfo:
    """Parse NAME[=BYTES[@ADDRESS]][:MODE]."""
    head, colon, mode = text.partition(":")
    head, at, address = head.partition("@")
    if colon and mode not in CONSTANT_SCOPES:
        modes = ", ".join(CONSTANT_SCOPES)
        what = f"unknown access mode {mode!r} (choose from {modes})"
        raise argparse.ArgumentTypeError(what)
    info = replace(pool(head), access="ro", scope=CONSTANT_SCOPES[mode or "linked"])
    if not at:
        return info
    try:
        start = int(address, 0)
    except ValueError:
        start = -1
    if start < 0 or info.size_bytes is None:
        what = f"{text!r}: expected NAME=BYTES@ADDRESS"
        raise argparse.ArgumentTypeError(what)
    return replace(info, start=start)


def tensor_pair(text: str, form: str) -> tuple[str, str]:
    """Parse TENSOR=POOL or TENSOR=TARGET, as `form` states."""
    tensor, _, value = text.rpartition("=")
    if not tensor or not value:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {form}")
    return tensor, value


def device_assignment(text: str) -> tuple[str, str, str]:
    """Parse TENSOR=DEVICE[:POOL]."""
    tensor, _, target = text.rpartition("=")
    device, _, pool_name = target.partition(":")
    if not tensor or not device:
        what = f"{text!r}: expected TENSOR=DEVICE or TENSOR=DEVICE:POOL"
        raise argparse.ArgumentTypeError(what)
    return tensor, device, pool_name


def names(text: str) -> tuple[str, ...]:
    """Parse NAME,NAME,..."""
    return tuple(text.split(",")) if text else ()


def trusted(text: str) -> str:
    try:
        return trusted_value(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def linker_section(text: str) -> tuple[str, str]:
    """Parse KIND=SECTION, which the compilation checks."""
    kind, _, section = text.partition("=")
    return kind, section


def folder(text: str) -> Path:
    """Return the path of an existing folder."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such folder")
    return path


def positive_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _SECONDS_MAX:
        what = f"expected a number of seconds > 0 and <= {_SECONDS_MAX:,}"
        raise argparse.ArgumentTypeError(f"{text!r}: {what}")
    return value


def integer(
    text: str,
    minimum: int,
    what: str = "an integer",
    base: int = 10,
    maximum: int = COUNT_MAX,
) -> int:
    try:
        value = int(text, base)
    except ValueError:
        value = minimum - 1
    if not minimum <= value <= maximum:
        bounds = f">= {minimum}" if value < minimum else f"<= {maximum:,}"
        raise argparse.ArgumentTypeError(f"{text!r}: expected {what} {bounds}")
    return value
