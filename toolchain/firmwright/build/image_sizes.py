"""Memory use of a linked image by region, and the error for an image that does not fit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import ImageRegionUsage, ImageSizes, SectionSize
from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.build.elf_reader import is_elf, read_sections_and_symbols

_OVERFLOW = re.compile(r"region [`'](\w+)'(?:: | )overflowed by (\d+) bytes")


@dataclass(frozen=True, slots=True)
class LinkedRegion:
    """A memory region as recorded in `board.json`."""

    name: str
    start: int
    size_bytes: int
    kind: str


def read_sizes(elf: Path, regions: Sequence[LinkedRegion]) -> ImageSizes:
    """Read the sizes of an ELF file; `regions` is empty on the host."""
    if not regions and not is_elf(elf):  # an executable of macOS or Windows
        return ImageSizes((), (), ())
    sections, symbols = read_sections_and_symbols(elf)
    usage = dict.fromkeys((r.name for r in regions), 0)
    for section in sections if regions else ():
        for name in _regions_of(section, regions):
            usage[name] += section.size_bytes
    uses = tuple(ImageRegionUsage(r.name, usage[r.name], r.size_bytes) for r in regions)
    return ImageSizes(sections, symbols, uses)


def _regions_of(section: SectionSize, regions: Sequence[LinkedRegion]) -> tuple[str, ...]:
    """Return the regions that a section occupies; .data and .ramfunc occupy flash and RAM."""
    tail = section.name.rsplit(".", 1)[-1]
    if section.name.startswith((".noinit.", ".rodata.", ".external.")) and any(
        r.name == tail for r in regions
    ):
        return (tail,)
    flash = next(r.name for r in regions if r.kind == "flash")
    if section.name.startswith(".ramfunc."):
        return (flash, tail)
    ram = next(r.name for r in regions if r.kind == "ram")
    match section.kind:
        case "text" | "rodata":
            return (flash,)
        case "data":
            return (flash, ram)
    return (ram,)


def find_overflows(output: str, regions: Sequence[LinkedRegion]) -> tuple[RegionOverflow, ...]:
    sizes = {r.name: r.size_bytes for r in regions}
    over = {name: int(extra) for name, extra in _OVERFLOW.findall(output) if name in sizes}
    return tuple(RegionOverflow(n, sizes[n] + extra, sizes[n]) for n, extra in over.items())


def make_does_not_fit_error(
    overflows: Sequence[RegionOverflow],
    sizes: ImageSizes | None,
    regions: Sequence[LinkedRegion],
    *,
    board: str,
) -> DoesNotFitError:
    """Return the error for an image that is too large, naming the largest contributors if known."""
    peak: list[tuple[str, int]] = []
    parts = []
    for overflow in overflows:
        missing = overflow.need_bytes - overflow.have_bytes
        text = f"{overflow.name} needs {overflow.need_bytes} bytes and has {overflow.have_bytes}"
        largest = _contributors(overflow.name, sizes, regions) if sizes else []
        named = ", ".join(f"{name} {size}" for name, size in largest)
        parts.append(f"{text} ({missing} too few{f'; largest: {named}' if named else ''})")
        peak.extend(largest)
    return DoesNotFitError(
        f"the firmware does not fit: {'; '.join(parts)}.",
        regions=overflows,
        peak=peak,
        where=board,
        hint="a board with more memory, a smaller model, --optimize size or --optimize ram.",
    )


def _contributors(
    region: str, sizes: ImageSizes, regions: Sequence[LinkedRegion]
) -> list[tuple[str, int]]:
    homes = {s.name: _regions_of(s, regions) for s in sizes.sections}
    inside = [s for s in sizes.symbols if region in homes[s.section]]
    largest = sorted(inside, key=lambda s: (-s.size_bytes, s.name))[:5]
    named = [(s.name, s.size_bytes) for s in largest]
    stack = sum(s.size_bytes for s in sizes.sections if s.kind == "stack")
    if stack and any(s.kind == "stack" and region in homes[s.name] for s in sizes.sections):
        named.append(("the stack", stack))
    return named
