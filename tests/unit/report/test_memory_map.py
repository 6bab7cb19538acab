"""The drawing: a rectangle per life of each buffer, to scale, for paper and page."""

import re
import xml.etree.ElementTree as ET

import pytest

from firmwright.report.memory_map import (
    KIND_COLORS,
    KIND_LABELS,
    MapPage,
    MemoryMap,
    format_bound,
    render_svg,
)
from tests.unit.report.sample_report import make_report

REPORT = make_report()
BUFFERS = tuple(buffer for buffer in REPORT.buffers if buffer.pool == "sram")
MAP = MemoryMap(
    "a title", BUFFERS, ("conv2d 0", "", "softmax 2"), 96, format_bound(96, 90)
)


def test_each_live_range_is_a_rectangle_to_scale():
    root = ET.fromstring(render_svg(MAP))
    rectangles = [
        (rect, title.text)
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        for title in rect
    ]
    said = [text for _, text in rectangles]
    assert said.count("b<c: 16 bytes at 0") == 2
    whole = {text: rect for rect, text in rectangles}
    assert float(whole["in: 64 bytes at 0"].attrib["height"]) == pytest.approx(
        330 * 64 / 96, 0.1
    )
    once, twice = (
        float(whole[text].attrib["width"])
        for text in ("in: 64 bytes at 0", "a: 64 bytes at 32")
    )
    assert twice == pytest.approx(2 * once + 2, 0.1)
    assert "workspace 96 bytes (lower bound 90)" in render_svg(MAP)


def test_page_map_has_buffer_numbers_and_time_columns():
    number = {buffer.name: index for index, buffer in enumerate(REPORT.buffers)}
    drawn = render_svg(MAP, MapPage(("sram", "fast"), number))
    ET.fromstring(drawn)
    assert re.findall(r'data-buffer="(\d+)"', drawn) == ["1", "0", "2", "2"]
    assert drawn.count('class="column"') == 3
    assert 'class="buffer kind-input pool-0"' in drawn
    assert 'class="buffer kind-input"' in render_svg(MAP, MapPage(("sram",), number))


def test_small_buffers_are_drawn_on_large_ones():
    areas = []
    for rect in ET.fromstring(render_svg(MAP)).iter("{http://www.w3.org/2000/svg}rect"):
        if len(rect):  # a buffer has a title
            areas.append(float(rect.attrib["width"]) * float(rect.attrib["height"]))
    assert areas == sorted(areas, reverse=True)


def test_buffers_are_named_after_the_call_that_writes_them():
    texts = [
        "".join(text.itertext()).replace("  ", " ")
        for text in ET.fromstring(render_svg(MAP)).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    ]
    assert "in 64" in texts
    assert "conv2d 0 64" in texts


def test_every_kind_of_buffer_has_a_label_and_a_color():
    assert KIND_LABELS.keys() == KIND_COLORS.keys()
