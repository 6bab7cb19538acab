"""Places the names of buffers inside their rectangles of a memory map.

A name is where no other rectangle is, if it fits there. Otherwise it is in the column
of the call that writes the buffer first, so that overlapping buffers have their names
in different columns. Buffers too small for a name have their size or nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LETTER = 6.1
"""The approximate width of a character of 11 px text."""
LINE_HEIGHT = 13.0
PADDING = 4.0
_WORD = re.compile(r"[^_ ]+[_ ]*|[_ ]+")


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def overlaps(self, other: "Box") -> bool:
        return (
            self.x < other.right
            and other.x < self.right
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def contains(self, other: "Box") -> bool:
        return (
            self.x <= other.x
            and other.right <= self.right
            and self.y <= other.y
            and other.bottom <= self.bottom
        )


@dataclass(frozen=True, slots=True)
class MapLabel:
    """Lines of text around a center; vertical text is read from below."""

    x: float
    y: float
    lines: tuple[str, ...]
    is_vertical: bool = False


def place_labels(
    boxes: Sequence[Box], names: Sequence[tuple[str, str]], column_width: float
) -> list[MapLabel | None]:
    """Return a label for each box, or None; a name is a text and a size."""
    taken: list[Box] = []
    labels: list[MapLabel | None] = [None] * len(boxes)
    # The smallest boxes have the fewest places.
    order = sorted(range(len(boxes)), key=lambda i: boxes[i].width * boxes[i].height)
    for index in order:
        box = boxes[index]
        others: list[Box] = []
        for other in (*boxes[:index], *boxes[index + 1 :]):
            if other.overlaps(box) and not other.contains(box):
                others.append(other)
        own_column = Box(box.x, box.y, min(box.width, column_width), box.height)
        text, size = names[index]
        found = None
        for words, more in ((text, size), (size, "")):
            found = found or _find_place(box, [*others, *taken], words, more)
            found = found or _find_place(own_column, taken, words, more)
        if found is not None:
            labels[index], area = found
            taken.append(area)
    return labels


def _find_place(
    box: Box, obstacles: Sequence[Box], text: str, size: str
) -> tuple[MapLabel, Box] | None:
    for lines, is_vertical in _forms(text, size, box.width - 2 * PADDING):
        width = LETTER * max(map(len, lines)) + 2 * PADDING
        height = LINE_HEIGHT * len(lines) + 2
        if is_vertical:
            width, height = height, width
        area = _free_area(box, obstacles, width, height)
        if area is not None:
            center_x, center_y = area.x + width / 2, area.y + height / 2
            return MapLabel(center_x, center_y, lines, is_vertical), area
    return None


def _forms(
    text: str, size: str, width: float
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the forms of a label, best first, each with whether it is vertical."""
    if size:
        yield (f"{text}  {size}",), False
        yield (text, size), False
        wrapped = _wrap(text, width)
        if len(wrapped) in (2, 3):
            yield (*wrapped, size), False
        yield (f"{text}  {size}",), True
    yield (text,), False
    yield (text,), True


def _wrap(text: str, width: float) -> tuple[str, ...]:
    """Break a name after underscores and spaces; () if a word is too wide."""
    lines: list[str] = []
    for word in _WORD.findall(text):
        if lines and LETTER * len((lines[-1] + word).rstrip()) <= width:
            lines[-1] += word
        else:
            lines.append(word)
    stripped = tuple(line.rstrip() for line in lines)
    return stripped if all(LETTER * len(line) <= width for line in stripped) else ()


def _free_area(
    box: Box, obstacles: Sequence[Box], width: float, height: float
) -> Box | None:
    """Return a place of that size in the box: the leftmost one in its tallest gap."""
    if box.width < width or box.height < height:
        return None
    near = [item for item in obstacles if item.overlaps(box)]
    starts = {box.x, *(item.right for item in near)}
    for start in sorted(starts):
        if start < box.x or start + width > box.right:
            continue
        column = Box(start, box.y, width, box.height)
        first, last = _tallest_gap(column, near)
        if last - first >= height:
            # A label at the left edge is centered in the space up to the next box.
            free = Box(start, first, box.right - start, last - first)
            right = min(
                (item.x for item in near if item.overlaps(free)), default=box.right
            )
            room = max(0.0, min(right, box.right) - start - width)
            middle = (first + last - height) / 2
            return Box(start + room / 2, middle, width, height)
    return None


def _tallest_gap(column: Box, obstacles: Sequence[Box]) -> tuple[float, float]:
    """Return the tallest interval of y in the column without an obstacle."""
    best, reached = (column.y, column.y), column.y
    crossing = [item for item in obstacles if item.overlaps(column)]
    for item in sorted(crossing, key=lambda item: (item.y, item.bottom)):
        if item.y - reached > best[1] - best[0]:
            best = (reached, item.y)
        reached = max(reached, item.bottom)
    if column.bottom - reached > best[1] - best[0]:
        best = (reached, column.bottom)
    return best
