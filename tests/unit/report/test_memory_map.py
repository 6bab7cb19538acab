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
MAP = MemoryMap("a title", BUFFERS, ("conv2d", "", "softmax"), 96, format_bound(96, 90))


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
    widths = [
        float(whole[text].attrib["width"]) for text in said if text and text[0] in "ai"
    ]
    assert widths[1] == pytest.approx(2 * widths[0] + 2, 0.1)
    assert "workspace 96 bytes (lower bound 90)" in render_svg(MAP)


def test_page_map_has_buffer_numbers_and_time_columns():
    number = {buffer.name: index for index, buffer in enumerate(REPORT.buffers)}
    drawn = render_svg(MAP, MapPage(("sram", "fast"), number))
    ET.fromstring(drawn)
    assert re.findall(r'data-buffer="(\d+)"', drawn) == ["0", "1", "2", "2"]
    assert drawn.count('class="column"') == 3
    assert "var(--pool-0)" in drawn
    assert "var(--kind)" in render_svg(MAP, MapPage(("sram",), number))


def test_every_kind_of_buffer_has_a_label_and_a_color():
    assert KIND_LABELS.keys() == KIND_COLORS.keys()
