"""Memory use of a linked image by region, and the error for one that does not fit."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import ImageRegionUsage, ImageSizes, SectionSize
from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.build.elf_reader import is_elf, read_sections_and_symbols

_OVERFLOW = re.compile(r"region [`'](\w+)'(?:: | )overflowed by (\d+) bytes")
"""The message of the GNU and LLVM linkers."""
_LARGEST = 5
"""Number of symbols that an error names."""


@dataclass(frozen=True, slots=True)
class LinkedRegion:
    """A memory region as recorded in `board.json`."""

    name: str
    start: int
    size_bytes: int
    kind: str


def read_sizes(elf: Path, regions: Sequence[LinkedRegion]) -> ImageSizes:
    """Read the sizes of an ELF file; `regions` is empty on the host."""
    if not regions and not is_elf(elf):
        # The host's executables of macOS and Windows are not read.
        return ImageSizes((), (), ())
    sections, symbols = read_sections_and_symbols(elf)
    usage: Counter[str] = Counter()
    if regions:
        for section in sections:
            for name in _regions_of(section, regions):
                usage[name] += section.size_bytes
    uses = tuple(ImageRegionUsage(r.name, usage[r.name], r.size_bytes) for r in regions)
    return ImageSizes(sections, symbols, uses)


def _regions_of(
    section: SectionSize, regions: Sequence[LinkedRegion]
) -> tuple[str, ...]:
    """Return the regions of a section; .data and .ramfunc are in flash and RAM."""
    tail = section.name.rsplit(".", 1)[-1]
    is_for_region = section.name.startswith((".noinit.", ".rodata.", ".external."))
    if is_for_region and any(region.name == tail for region in regions):
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


def find_overflows(
    output: str, regions: Sequence[LinkedRegion]
) -> tuple[RegionOverflow, ...]:
    """Return the regions that the linker reports as too small, as reported last."""
    sizes = {region.name: region.size_bytes for region in regions}
    overflows: dict[str, RegionOverflow] = {}
    for name, extra in _OVERFLOW.findall(output):
        if name in sizes:
            have = sizes[name]
            overflows[name] = RegionOverflow(name, have + int(extra), have)
    return tuple(overflows.values())


def make_does_not_fit_error(
    overflows: Sequence[RegionOverflow],
    sizes: ImageSizes | None,
    regions: Sequence[LinkedRegion],
    *,
    board: str,
) -> DoesNotFitError:
    """Return the error for an image that is too large, with its largest parts."""
    peak: list[tuple[str, int]] = []
    parts = []
    for overflow in overflows:
        missing = overflow.need_bytes - overflow.have_bytes
        needs = f"{overflow.name} needs {overflow.need_bytes} bytes"
        text = f"{needs} and has {overflow.have_bytes}"
        largest = _contributors(overflow.name, sizes, regions) if sizes else []
        detail = f"{missing} too few"
        if largest:
            named = ", ".join(f"{name} {size}" for name, size in largest)
            detail += f"; largest: {named}"
        parts.append(f"{text} ({detail})")
        peak.extend(largest)
    return DoesNotFitError(
        f"the firmware does not fit: {'; '.join(parts)}.",
        regions=overflows,
        peak=peak,
        where=board,
        hint=(
            "a board with more memory, a smaller model, --optimize size or --optimize "
            "ram."
        ),
    )


def _contributors(
    region: str, sizes: ImageSizes, regions: Sequence[LinkedRegion]
) -> list[tuple[str, int]]:
    """Return the largest symbols of a region and its stack, with their bytes."""
    homes = {section.name: _regions_of(section, regions) for section in sizes.sections}
    inside = [symbol for symbol in sizes.symbols if region in homes[symbol.section]]
    inside.sort(key=lambda symbol: (-symbol.size_bytes, symbol.name))
    named = [(symbol.name, symbol.size_bytes) for symbol in inside[:_LARGEST]]
    stacks = [section for section in sizes.sections if section.kind == "stack"]
    stack_bytes = sum(section.size_bytes for section in stacks)
    if stack_bytes and any(region in homes[section.name] for section in stacks):
        named.append(("the stack", stack_bytes))
    return named
