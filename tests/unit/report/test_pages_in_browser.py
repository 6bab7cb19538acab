"""The pages in a browser: on a phone, a tablet and a desktop, light and dark.

No script fails, no page scrolls sideways, axe-core finds no serious barrier, and each
control works by keyboard.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.measure.network_graph import build_network
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.report.census_page import CensusEntry, CensusStatus, render_census
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
    render_evaluation,
)
from firmwright.report.html_page import render_page
from firmwright.report.model import (
    BuildReport,
    CheckedOutputs,
    ImageRegionUsage,
    PoolUsage,
    ReportFinding,
)
from firmwright.report.pareto_front import ParetoProgram
from firmwright.targets.run_time import RangeOrigin, RunTime
from tests.browser import DESKTOP, PHONE, TABLET, OpenPage, Pages, Scheme
from tests.unit.report.sample_report import make_report, operator

pytestmark = pytest.mark.browser

LONG = "functional_1_activation_Relu_functional_1_batch_normalization_FusedBatchNormV3"
TRADEOFFS = (
    MemoryTradeoff(1_112_544, 1_480_000_000, ()),
    MemoryTradeoff(1_099_980, 1_690_000_000, ((0, 10), (12, 28), (30, 41))),
)
DIGITS = Path(__file__).resolve().parents[3] / "examples/01_digits/digits.tflite"


@cache
def evaluation() -> Evaluation:
    classes = tuple(f"class {n}" for n in range(10))
    figures = {
        "top1": 0.994,
        "top5": 1.0,
        "auc": 0.9984,
        "same_class": 0.97,
        "output_difference": 5.3e-4,
    }
    runs = (
        RunScores("float model", "LiteRT BUILTIN_REF 2.3.0", figures),
        RunScores("firmware", "mps2-an386", figures),
    )
    confusions = [Confusion(n, n, 30 + n) for n in range(10)] + [Confusion(3, 8, 2)]
    layers = [
        LayerAccuracy(
            f"sequential_1/{LONG}_{n}",
            "depthwise_conv2d",
            8,
            10 + 4 * n,
            0.1,
            2.0,
            30.0,
        )
        for n in range(8)
    ]
    return Evaluation(
        "digits",
        "mps2-an386",
        "examples/01_digits/digits_test.npz",
        360,
        "classification",
        True,
        classes,
        runs,
        0,
        tuple(confusions),
        (ChangedSample("digits_test.npz, sample 117", 3, 3, 8),),
        32,
        tuple(layers),
    )


@cache
def report() -> BuildReport:
    """Return a report of the bundled model with predicted instead of measured counts."""
    compiled = compile_for(load_model(DIGITS), "mps2-an386")
    summary = compiled.summary
    assert summary.plan is not None
    operators = []
    for item in summary.operators:
        facts = operator(item.index, item.kind, item.macs + 500, macs=item.macs)
        operators.append(replace(facts, name=LONG, schedule=item.schedule))
    command = "firmwright compile digits.tflite --board mps2-an386"
    return make_report(
        model="digits",
        board="mps2-an386",
        compiler="gcc -O2 -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -ffunction-sections",
        total=sum(item.count for item in operators),
        workspace_bytes=summary.workspace_bytes,
        lower_bound_bytes=summary.lower_bound_bytes,
        pools=(PoolUsage("sram", summary.workspace_bytes, 65536),),
        buffers=summary.plan.buffers,
        operator_by_time=summary.plan.operator_by_time,
        operators=tuple(operators),
        regions=(ImageRegionUsage("flash", 19_624, 4_194_304),),
        findings=(ReportFinding(f"operator {LONG} is slow.", "use another."),),
        time=RunTime(
            118_000, 110_000, 145_000, 25_000_000, "MPS2 AN386", RangeOrigin.PUBLISHED
        ),
        network=build_network(compiled),
        evaluation=evaluation(),
        front=(
            ParetoProgram("", command, 2112, 13_736, 117_960, is_current=True),
            ParetoProgram("--ram 1800", f"{command} --ram 1800", 1800, 14_100, 130_000),
            ParetoProgram(
                "--optimize size", f"{command} --optimize size", 2112, 11_000, 180_000
            ),
        ),
        verification=CheckedOutputs(
            reference="LiteRT BUILTIN_REF 2.3.0",
            samples=10,
            mismatches=0,
            max_abs_error=0,
            is_float=False,
            data="",
            command="firmwright report digits.tflite --board mps2-an386 --verify -o x.html",
            date="2026-11-29",
        ),
    )


def census() -> str:
    fine = CensusEntry(
        "zoo/keyword_spotting/kws_ref_model_float32.tflite",
        54_000,
        CensusStatus.TOLERANCE,
        operators=13,
        macs=2_656_768,
        workspace_bytes=8576,
        model_flash_bytes=38_424,
        unit="instructions",
        count=2_759_760,
        default_loops=0.031,
        slowest_default="average_pool2d",
        slowest_default_share=0.02,
    )
    reason = f"GridSample at {LONG}.onnx: this operator is not supported (3 places)."
    refused = CensusEntry(f"{LONG}.onnx", 1000, CensusStatus.UNSUPPORTED, reason)
    return render_census([fine, refused], "zoo", "mps2-an386")


PAGES = {
    "report": lambda: render_page(report()),
    "plain report": lambda: render_page(make_report(tradeoffs=TRADEOFFS)),
    "evaluation": lambda: render_evaluation(evaluation()),
    "census": census,
}


def write_page(name: str, folder: Path) -> Path:
    file = folder / "page.html"
    file.write_text(PAGES[name](), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_problem_at_any_width(
    name: str, scheme: Scheme, pages: Pages, tmp_path: Path, deep: bool
):
    """The slow axe-core sees dark pages on the desktop, and light ones on the phone.

    With --deep it sees both at all widths.
    """
    file, last = write_page(name, tmp_path), DESKTOP if scheme == "dark" else PHONE
    with pages.open(file, scheme=scheme) as opened:
        for width in (DESKTOP, 1100, TABLET, PHONE, last):
            opened.page.set_viewport_size({"width": width, "height": 900})
            assert (opened.problems() if deep else opened.overflow()) == []
        assert opened.problems() == []


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("report", DESKTOP),
        ("report", PHONE),
        ("evaluation", PHONE),
        ("census", DESKTOP),
    ],
)
def test_each_control_is_reached_by_the_keyboard(
    name: str, width: int, pages: Pages, tmp_path: Path
):
    with pages.open(write_page(name, tmp_path), width=width) as opened:
        assert opened.unreachable() == []


@pytest.fixture
def opened(pages: Pages, tmp_path: Path):
    with pages.open(write_page("report", tmp_path)) as opened:
        yield opened
        assert opened.errors == []


def test_the_slowest_operator_is_open_and_arrows_lead_to_its_neighbors(
    opened: OpenPage,
):
    page = opened.page
    assert page.evaluate("document.getElementById('graph').scrollTop") == 0
    shown = page.locator(".kernel:not([hidden]) h3")
    assert shown.all_text_contents() == ["conv2d 2"]
    page.locator(".node[aria-pressed=true]").focus()
    page.keyboard.press("ArrowDown")
    following = shown.text_content()
    assert following != "conv2d 2"
    page.keyboard.press("ArrowUp")
    assert shown.text_content() == "conv2d 2"
    page.keyboard.press("End")
    assert shown.text_content() == "digit"
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    )


def test_a_click_opens_an_operator_with_its_c(opened: OpenPage):
    page = opened.page
    page.locator(".node", has_text="conv2d 0").first.click()
    kernel = page.locator(".kernel:not([hidden])")
    assert kernel.locator("h3").text_content() == "conv2d 0"
    kernel.locator("summary").click()
    # The page writes the source when the browser reports the toggle, a moment later.
    kernel.locator("pre", has_text="void digits_conv2d_0(").wait_for()
    assert "conv2d_0.bias" in kernel.locator(".tensors").inner_text()


def test_the_network_is_zoomed_and_dragged(opened: OpenPage):
    page = opened.page
    drawing, graph = page.locator("#network-drawing"), page.locator("#graph")

    def width() -> float:
        return float(drawing.get_attribute("width") or 0)

    before = width()
    page.locator("#zoom-in").click()
    assert width() == pytest.approx(1.25 * before)
    page.locator(".node[aria-pressed=true]").focus()
    page.keyboard.press("-")
    assert width() == pytest.approx(before)
    page.locator("#zoom-in").click()
    page.locator("#zoom-in").click()
    top = graph.evaluate("part => part.scrollTop")
    box = graph.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 200, steps=3)
    page.mouse.up()
    assert graph.evaluate("part => part.scrollTop") == pytest.approx(top + 100, abs=1)
    page.locator("#zoom-fit").click()
    assert drawing.evaluate("part => part.clientHeight") <= box["height"]


def test_two_fingers_zoom_the_network_and_one_does_not(opened: OpenPage):
    page = opened.page
    drawing = page.locator("#network-drawing")
    box = page.locator("#graph").bounding_box()
    assert box is not None
    center, row = box["x"] + box["width"] / 2, box["y"] + 100
    device = page.context.new_cdp_session(page)

    def touch(kind: str, *columns: float) -> None:
        points = [{"x": x, "y": row, "id": n} for n, x in enumerate(columns)]
        device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def width() -> float:
        return float(drawing.get_attribute("width") or 0)

    before = width()
    touch("touchStart", center)
    touch("touchMove", center + 30)
    touch("touchEnd")
    assert width() == before
    touch("touchStart", center - 40, center + 40)
    touch("touchMove", center - 60, center + 60)
    assert width() == pytest.approx(1.5 * before)
    touch("touchMove", center - 50, center + 50)
    touch("touchEnd")
    assert width() == pytest.approx(1.25 * before)


def test_the_slider_shows_what_lives_during_a_call(opened: OpenPage):
    page = opened.page
    slider, title = page.locator("#time"), page.locator("#alive-title")
    slider.focus()
    page.keyboard.press("Home")
    assert title.text_content() == "Call 0, conv2d 0"
    rows = page.locator("#alive-rows tr").count()
    alive = page.locator(".map .buffer.alive").count()
    assert rows == alive == sum(item.lives_at(0) for item in report().buffers)
    page.keyboard.press("ArrowRight")
    assert (title.text_content() or "").startswith("Call 1, ")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("Call 1, ")
    page.locator("#time-before").click()
    assert title.text_content() == "Call 0, conv2d 0"


def test_the_pointer_shows_a_buffer_and_leaves_the_chosen_call(opened: OpenPage):
    page = opened.page
    chosen = page.locator("#alive-title").text_content()
    page.locator('[data-buffer="0"]').first.hover()
    tip = page.locator("#tip")
    assert (tip.text_content() or "").startswith("image\ninput, 64 bytes\npool sram")
    page.locator("h1").hover()
    assert tip.is_hidden()
    assert page.locator("#alive-title").text_content() == chosen


def test_a_program_of_the_front_shows_its_command(opened: OpenPage):
    page = opened.page
    command = page.locator("#program-command")
    assert (command.text_content() or "").endswith("--board mps2-an386")
    page.locator(".program").first.click()
    first = command.text_content()
    page.keyboard.press("ArrowRight")
    assert command.text_content() != first
    page.keyboard.press("Home")
    assert (command.text_content() or "").endswith("--ram 1800")


def test_names_in_the_memory_map_are_within_its_rectangles(opened: OpenPage):
    """The letters of the browser are not wider than those that the layout assumes."""
    outside = opened.page.evaluate(
        """() => {
          const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 &&
            a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
          const boxes = [...document.querySelectorAll(".map .buffer")];
          const names = [...document.querySelectorAll(".map text:has(tspan)")];
          return names.filter((name) => !boxes.some(
            (box) => inside(name.getBoundingClientRect(), box.getBoundingClientRect())))
            .map((name) => name.textContent);
        }"""
    )
    assert outside == []
    assert opened.page.locator(".map text:has(tspan)").count() >= 5
