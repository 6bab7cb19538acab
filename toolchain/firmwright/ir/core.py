"""Frozen classes of both IR levels: spans, targets, devices, pools and constants.

Sizes and offsets are in bytes; shapes are tuples of positive ints.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import DType
from firmwright.base.errors import ModelError

LINKER_SECTION: Final = re.compile(r"[\w.$-]+", re.ASCII)
"""Names of linker sections, which the generated C contains in strings."""
Attr: TypeAlias = "int | float | bool | str | tuple[Attr, ...]"
Attrs: TypeAlias = Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class Span:
    """The place of a node in the user's model, for errors, C comments and profiles."""

    file: str
    subgraph: int = 0
    op_index: int = 0
    tensor: str = ""

    def __str__(self) -> str:
        place = f"{self.file}: subgraph {self.subgraph}, node {self.op_index}"
        return f"{place} ({self.tensor})" if self.tensor else place


@dataclass(frozen=True, slots=True)
class Target:
    """A code generator and its validated attributes: `cortex-m -mcpu=cortex-m4`.

    `attrs` is sorted by name so that equal targets compare and print equal.
    """

    kind: str
    attrs: tuple[tuple[str, int | bool | str], ...] = ()

    def attr(self, name: str, default: int | bool | str = "") -> int | bool | str:
        return dict(self.attrs).get(name, default)

    def __str__(self) -> str:
        words = [self.kind]
        for name, value in self.attrs:
            words.append(f"-{name}" if value is True else f"-{name}={value}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """Device, target and memory scope of a value; empty fields are unconstrained."""

    device_type: str = ""
    device_id: int = -1
    target: str = ""
    memory_scope: str = ""


UNCONSTRAINED = VirtualDevice()


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A memory region in which the planner may place buffers.

    `size_bytes` None means unlimited; empty `targets` means that every target may use
    the pool. Bandwidths are in bytes per cycle, latencies in cycles; None means
    unknown. The `scope` of a read-only pool selects the access to its constants:
    `global` (linked into `section`), `external` (addressable, programmed by the user),
    `port` and `async` (read into RAM by a function). `cache_line` is the line size of
    the pool's data cache; 0 means no cache. Accelerators that are bus masters cannot
    access `tightly_coupled` memory. `start` is the address that the user gives for
    constants in memory of which the board file has no pool.
    """

    name: str
    size_bytes: int | None = None
    access: Literal["rw", "ro"] = "rw"
    targets: tuple[str, ...] = ()
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    scope: str = "global"
    section: str = ""
    cache_line: int = 0
    tightly_coupled: bool = False
    start: int | None = None

    def __post_init__(self) -> None:
        if self.section and not LINKER_SECTION.fullmatch(self.section):
            what = f"pool {self.name} has the linker section {self.section!r}."
            hint = "letters, digits and any of _ . $ - for its name."
            raise ModelError(what, hint=hint)


POOL_SPEEDS = ("read_bandwidth", "write_bandwidth", "read_latency", "write_latency")


@dataclass(frozen=True, slots=True)
class Constant:
    """An immutable tensor of the program: little-endian bytes in C order.

    `pool` names the read-only pool that holds it; "" selects the program image.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: bytes
    pool: str = ""

    @staticmethod
    def from_array(name: str, array: npt.NDArray[np.generic], dtype: DType) -> Constant:
        exact = np.ascontiguousarray(array, dtype=dtype.np)
        shape = tuple(int(n) for n in array.shape)
        return Constant(name, dtype, shape, exact.tobytes())

    def array(self) -> npt.NDArray[np.generic]:
        flat: npt.NDArray[np.generic] = np.frombuffer(self.data, dtype=self.dtype.np)
        return flat.reshape(self.shape)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes; constants with equal bytes may be merged."""
        return hashlib.sha256(self.data).hexdigest()
