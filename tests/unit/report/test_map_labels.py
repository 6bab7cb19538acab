"""Names of buffers are inside their rectangles and never on one another."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from firmwright.report.map_labels import (
    LETTER,
    LINE_HEIGHT,
    Box,
    MapLabel,
    place_labels,
)

COLUMN = 80.0


def area(label: MapLabel) -> Box:
    width = LETTER * max(map(len, label.lines))
    height = LINE_HEIGHT * len(label.lines)
    if label.is_vertical:
        width, height = height, width
    return Box(label.x - width / 2, label.y - height / 2, width, height)


def test_a_name_is_where_no_other_buffer_is():
    boxes = [Box(0, 0, 240, 100), Box(160, 0, 160, 100)]
    first, second = place_labels(boxes, [("conv2d 0", "64"), ("add 1", "64")], COLUMN)
    assert first is not None
    assert second is not None
    assert area(first).right <= 160
    assert area(second).x >= 240
    assert first.lines == ("conv2d 0  64",)


def test_buffers_that_overlap_everywhere_have_names_in_their_first_columns():
    """The two buffers of a call in place: the output begins where the input ends."""
    boxes = [Box(COLUMN * n, 10 * (n % 2), 2 * COLUMN, 200) for n in range(6)]
    names = [(f"depthwise_conv2d {n}", "8,000") for n in range(6)]
    labels = place_labels(boxes, names, COLUMN)
    for number, label in enumerate(labels):
        assert label is not None
        inside = area(label)
        if 0 < number < 5:
            assert COLUMN * number <= inside.x
            assert inside.right <= COLUMN * (number + 1)
        assert " ".join(label.lines).count("8,000") == 1


def test_a_long_name_is_broken_or_vertical_and_a_small_buffer_has_none():
    narrow, tiny = Box(0, 0, 60, 300), Box(100, 0, 60, 4)
    labels = place_labels([narrow, tiny], [("depthwise_conv2d 1", "8")] * 2, 60)
    assert labels[1] is None
    assert labels[0] is not None
    assert labels[0].is_vertical
    (broken,) = place_labels([Box(0, 0, 90, 60)], [("depthwise_conv2d 1", "8")], 90)
    assert broken is not None
    assert broken.lines == ("depthwise_", "conv2d 1", "8")


BOX = st.builds(
    Box,
    st.integers(0, 10).map(lambda n: 40.0 * n),
    st.integers(0, 20).map(lambda n: 15.0 * n),
    st.integers(1, 6).map(lambda n: 40.0 * n),
    st.integers(1, 12).map(lambda n: 9.0 * n),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(BOX, max_size=12))
def test_labels_are_within_their_boxes_and_apart(boxes: list[Box]):
    names = [(f"conv2d {n}", "1,024") for n in range(len(boxes))]
    labels = place_labels(boxes, names, 40.0)
    placed = []
    for box, label in zip(boxes, labels, strict=True):
        if label is not None:
            assert box.contains(area(label))
            placed.append(area(label))
    assert not any(a.overlaps(b) for a, b in combinations(placed, 2))
