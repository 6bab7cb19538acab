"""A board's memory map: regions of addresses, and the planner's pools in them.

In: the tables `[[memory]]`. Out: `MemoryRegion`s that have a size and names of their own and do not
overlap; a board that is no host has flash and RAM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

from firmwright.base.errors import BoardError
from firmwright.boards.toml_table import TomlTable

MemoryKind = Literal["flash", "ram"]
ADDRESSES: Final = 1 << 32
_REGION_KEYS: Final = (
    "name",
    "start",
    "size",
    "kind",
    "pool",
    "bandwidth",
    "latency",
    "const_pool",
    "targets",
)


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Addresses `[start, start + size_bytes)`; `pool` names the planner's pool in it, or is "".

    `bandwidth` is bytes per cycle and `latency` cycles, None where they are not known.
    `const_pool` names the pool of constants in it, or is "". `targets` are the kinds of target
    whose kernels alone may work in the pool: an engine's own memory. () is everybody's.
    """

    name: str
    start: int
    size_bytes: int
    kind: MemoryKind
    pool: str = ""
    bandwidth: float | None = None
    latency: int | None = None
    const_pool: str = ""
    targets: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


def read_memory(table: TomlTable, port: str) -> tuple[MemoryRegion, ...]:
    """The regions of `table`; BoardError for what no map can be."""
    regions: list[MemoryRegion] = []
    for sub in table.subtables("memory"):
        sub.expect_keys(_REGION_KEYS)
        region = MemoryRegion(
            name=_identifier(sub, "name"),
            start=sub.integer("start"),
            size_bytes=sub.integer("size", minimum=1),
            kind=cast(MemoryKind, sub.choice("kind", ("flash", "ram"))),
            pool=_identifier(sub, "pool") if sub.has("pool") else "",
            bandwidth=sub.number("bandwidth") if sub.has("bandwidth") else None,
            latency=sub.integer("latency") if sub.has("latency") else None,
            const_pool=_identifier(sub, "const_pool") if sub.has("const_pool") else "",
            targets=sub.strings("targets", ()),
        )
        _check_region(sub, region, regions)
        regions.append(region)
    for kind in () if port == "host" else ("flash", "ram"):
        if not any(r.kind == kind for r in regions):
            raise BoardError(f"there is no region of kind {kind}.", where=table.where("memory"))
    return tuple(regions)


def _check_region(subtable: TomlTable, region: MemoryRegion, earlier: list[MemoryRegion]) -> None:
    if region.end > ADDRESSES:
        raise BoardError(
            f"it ends at {region.end:#x}, above 32 bits.", where=subtable.where("size")
        )
    if region.pool and region.kind != "ram":
        raise BoardError("only a region of kind ram gives a pool.", where=subtable.where("pool"))
    for other in earlier:
        if region.name == other.name:
            raise BoardError(f"two regions are called {other.name}.", where=subtable.where("name"))
        if region.pool and region.pool == other.pool:
            what = f"{other.name} gives a pool of this name already."
            raise BoardError(what, where=subtable.where("pool"))
        if region.const_pool and region.const_pool == other.const_pool:
            what = f"{other.name} gives a pool of this name already."
            raise BoardError(what, where=subtable.where("const_pool"))
        if region.start < other.end and other.start < region.end:
            what = f"{region.name} overlaps {other.name} at {max(region.start, other.start):#x}."
            raise BoardError(what, where=subtable.where("start"))


def _identifier(table: TomlTable, key: str) -> str:
    value = table.text(key)
    if not value.isidentifier() or not value.isascii():
        raise BoardError(f"{value!r} is not a C identifier.", where=table.where(key))
    return value
