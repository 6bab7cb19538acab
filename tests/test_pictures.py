"""The pictures of the README and of pages show what the project produces today.

`--update-golden` draws them again. A screenshot contains the hash of the page that it
shows, so that a change of the page is noticed without a browser.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pytest

from firmwright.flows.measure.build_report import build_report
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.output_check import check_generated_samples
from firmwright.report.html_page import render_page
from tests.browser import DESKTOP

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "images"


@dataclass(frozen=True)
class MapPicture:
    """A memory map of the pool sram."""

    model: str
    optimize: str
    title: str


MAPS = {
    "kws_memory": MapPicture(
        "kws_ref_model",
        "balanced",
        "Keyword spotting (kws_ref_model) on a Cortex-M4: the memory plan over a run",
    ),
    "ic_memory": MapPicture(
        "pretrainedResnet_quant",
        "speed",
        "ResNet-8 (pretrainedResnet_quant) on a Cortex-M4: the memory plan over a run",
    ),
}


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def draw_memory_map() -> Callable[..., str]:
    """Return the function of docs/memory_map.py."""
    path = DOCS / "memory_map.py"
    spec = importlib.util.spec_from_file_location("memory_map_script", path)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    draw: Callable[..., str] = script.draw
    return draw


@pytest.mark.models
@pytest.mark.parametrize("name", MAPS)
def test_memory_maps_are_current(
    name: str,
    update: bool,
    model_path: Callable[[str], Path],
    draw_memory_map: Callable[..., str],
) -> None:
    picture, file = MAPS[name], IMAGES / f"{name}.svg"
    drawn = draw_memory_map(
        model_path(f"{picture.model}.tflite"),
        optimize=picture.optimize,
        title=picture.title,
    )
    if update:
        file.write_text(drawn, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == drawn, "--update-golden draws it again"


# ---- the screenshot of a report ------------------------------------------------------

REPORT_HEIGHT = 1188
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"Source"
"""The standard keyword of a PNG for where the picture comes from."""


@pytest.mark.models
@pytest.mark.qemu
def test_screenshot_of_a_report_is_current(
    update: bool,
    model_path: Callable[[str], Path],
    measuring_tools: str,
    recorded_tools: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    if measuring_tools != recorded_tools:
        pytest.skip(f"the figures are of {recorded_tools}, not {measuring_tools}")
    page, file = (
        keyword_report(model_path("kws_ref_model.tflite")),
        IMAGES / "report.png",
    )
    # The kernels' C is not in the picture.
    visible = re.sub(r'<script type="application/json" id="sources">.*', "", page)
    digest = hashlib.sha256(visible.encode()).hexdigest().encode()
    if update:
        source = tmp_path / "report.html"
        source.write_text(page, encoding="utf-8")
        with request.getfixturevalue("pages").open(source) as opened:
            opened.page.set_viewport_size({"width": DESKTOP, "height": REPORT_HEIGHT})
            file.write_bytes(with_text(opened.page.screenshot(), KEYWORD, digest))
    texts = dict(texts_of(file.read_bytes()))
    assert texts[KEYWORD] == digest, "--update-golden makes it again, with a browser"


def keyword_report(model: Path) -> str:
    """Return the page of the README's command, with a fixed date."""
    compiled = compile_for(load_model(model), "mps2-an386")
    command = "firmwright report kws_ref_model.tflite --board mps2-an386 --verify"
    check = check_generated_samples(compiled, command, date(2026, 1, 1))
    report = build_report(compiled, tradeoffs=False)
    return render_page(replace(report, verification=check))


def chunks_of(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the data of each chunk."""
    assert png.startswith(SIGNATURE)
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def texts_of(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    for kind, data in chunks_of(png):
        if kind == b"tEXt":
            keyword, _, text = data.partition(b"\0")
            yield keyword, text


def with_text(png: bytes, keyword: bytes, text: bytes) -> bytes:
    """Return the picture with a text after its head."""
    head, *rest = chunks_of(png)
    chunks = [head, (b"tEXt", keyword + b"\0" + text), *rest]
    parts = [SIGNATURE]
    for kind, data in chunks:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        parts += [struct.pack(">I", len(data)), kind, data, checksum]
    return b"".join(parts)
