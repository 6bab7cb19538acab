"""The page is complete, self-contained and escaped."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from firmwright.cli.report import format_summary
from firmwright.compilation_summary import MemoryTradeoff
from firmwright.partitioning.partition_result import (
    PartitionedRegion,
    PartitionResult,
    ProgramCost,
    RegionAlternative,
    RegionCost,
)
from firmwright.report.checked_outputs import CheckedOutputs
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
)
from firmwright.report.html_page import EMBEDDED_JSON, render_page
from firmwright.report.model import BuildReport, ParallelRun, ReportFinding
from firmwright.report.network import (
    Network,
    NetworkEdge,
    NetworkNode,
    NetworkTensor,
    NodeRole,
)
from firmwright.report.pareto_front import ParetoProgram
from firmwright.targets.run_time import RangeOrigin, RunTime
from tests.unit.report.sample_report import make_report, operator

REPORT = make_report(
    findings=(ReportFinding("too much of it.", "less of it."),),
    tradeoffs=(MemoryTradeoff(160, 1000, ()), MemoryTradeoff(120, 1100, ((0, 2),))),
)


TENSOR = NetworkTensor("t", "int8", (1, 8), 8, "scale 1, zero point 0")
FULL_REPORT = replace(
    REPORT,
    network=Network(
        (
            NetworkNode(NodeRole.INPUT, "in", outputs=(TENSOR,)),
            NetworkNode(
                NodeRole.OPERATOR,
                "conv2d 0",
                0,
                (TENSOR,),
                (TENSOR,),
                (TENSOR,),
                (("activation", "relu"),),
                "conv2d_0",
            ),
        ),
        (NetworkEdge(0, 1, TENSOR),),
        {"conv2d_0": "void f(void)\n{\n}\n"},
    ),
    front=(ParetoProgram("--ram 8", "firmwright compile m --ram 8", 8, 9, 10),),
)


class Tags(HTMLParser):
    """Checks that tags close in order; collects the URLs that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.fetched.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("report", [REPORT, FULL_REPORT], ids=["plain", "full"])
def test_page_is_complete_and_fetches_nothing(report: BuildReport):
    text = render_page(report)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.fetched == ["data:,"]
    assert "url(" not in text
    assert text == render_page(report)


def test_page_shows_peak_findings_and_tradeoffs():
    text = render_page(REPORT)
    for words in (
        "Call 1, moved rows: the peak",
        "128 bytes occupied",
        "too much of it.",
        "+10.0 %",
        "0 to 1",
    ):
        assert words in text
    assert r'"b\u003cc"' in text
    assert "b<c" not in text


def test_links_lead_to_the_sections_of_the_page():
    text = render_page(REPORT)
    targets = re.findall(r'<a href="#([\w-]+)">', text)
    assert targets == ["memory", "operators", "flash", "stack"]
    assert all(f'<section class="panel" id="{target}">' in text for target in targets)


def test_time_is_a_range_of_milliseconds_at_a_clock():
    time = RunTime(
        118_000, 110_000, 145_000, 25_000_000, "a <chip>", RangeOrigin.PUBLISHED
    )
    text = render_page(make_report(time=time))
    assert '<p class="figure">4.4 to 5.8 <span>ms</span></p>' in text
    assert "25 MHz a &lt;chip&gt;; the range of the model" in text
    open_ended = render_page(make_report(time=replace(time, most_cycles=None)))
    assert '<p class="figure">at least 4.4 <span>ms</span></p>' in open_ended
    assert "modeled</h2>" not in render_page(make_report())


def test_badge_states_only_what_was_checked():
    assert "<b>Not verified</b>" in render_page(REPORT)
    check = CheckedOutputs(
        "LiteRT", 1, 0, 0, False, "d<ta", "firmwright report m", "2026-11-29"
    )
    text = render_page(make_report(verification=check))
    assert '<div class="badge good" id="verification">' in text
    assert "<b>Bit-exact with LiteRT on 1 sample</b>" in text
    assert "Checked on 2026-11-29 with d&lt;ta by" in text
    differs = replace(check, samples=2, mismatches=3)
    text = render_page(make_report(verification=differs))
    assert '<div class="badge bad" id="verification">' in text
    assert "<b>Differs from LiteRT in 3 values of 2 samples</b>" in text
    floats = replace(check, is_float=True, max_abs_error=1e-6)
    expected = "Within the tolerance of LiteRT on 1 sample, largest error 1e-06"
    assert floats.verdict == expected
    assert replace(floats, max_abs_error=0).verdict.startswith("Bit-exact")
    assert replace(floats, max_abs_error=None).verdict.startswith("Within")


def test_page_shows_partition_search_with_alternatives():
    failed = RegionCost("failed", reason="does <not> build")
    others = (
        RegionAlternative("cortex-m", ("a",), (), failed),
        RegionAlternative("npu", ("a",), (), RegionCost("ok", 500, "modeled")),
        RegionAlternative("npu", ("a", "b"), (), RegionCost("ok", 900), "1 more"),
    )
    part = PartitionedRegion(
        "vanilla", ("a",), ("conv2d", "relu"), (), RegionCost("ok", 600), others
    )
    totals = {
        "collage": ProgramCost(1000, {"sram": 160}, 5000),
        "eager": ProgramCost(None, reason="no room"),
    }
    search = PartitionResult(
        "m",
        "b",
        "vanilla, cortex-m",
        "speed",
        "exact",
        "instructions",
        "collage",
        (part,),
        totals,
    ).as_json()
    text = render_page(make_report(search=search))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    for words in (
        "<h2>Targets</h2>",
        "<b>collage</b>, chosen",
        '<td class="r">1,000</td><td class="r">160</td><td class="r">5,000</td>',
        '<td>conv2d relu</td><td><code>vanilla</code></td><td class="r">600</td>',
        "<code>npu</code> 500 (modeled)",
        "<code>npu</code> for 2 operators 900: 1 more",
        "does &lt;not&gt; build",
        "no room",
    ):
        assert words in text
    assert "<h2>Targets</h2>" not in render_page(make_report())


def test_page_has_the_time_of_a_run_on_several_devices() -> None:
    run = ParallelRun(88_907, 100_000, 0, "cycles")
    text = render_page(make_report(parallel=run, clock_hz=32_000_000))
    assert "2.78 ms at 32 MHz, modeled, 0.89 of the sum" in text
    assert "time of a run, modeled" not in text
    assert make_report(parallel=run, clock_hz=0).parallel_note == str(run)


def test_page_shows_the_accuracy_on_a_data_set():
    runs = (RunScores("model", "LiteRT", {"top1": 0.5, "auc": None}),)
    confusions = (Confusion(0, 1, 1), Confusion(1, 1, 1))
    evaluation = Evaluation(
        "m",
        "b",
        "d<ta",
        2,
        "classification",
        True,
        ("no", "yes"),
        runs,
        0,
        confusions,
        (ChangedSample("s<1", 0, 0, 1),),
        1,
        (LayerAccuracy("conv", "conv2d", 8, 30.5, 1, 2, 3),),
    )
    text = render_page(make_report(evaluation=evaluation))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    for words in ("50.00 %", "Confusion matrix", "30.5 dB", "d&lt;ta", "s&lt;1"):
        assert words in text
    assert 'id="accuracy"' not in render_page(make_report())


def test_report_shows_changes_from_the_page_of_a_baseline():
    found = EMBEDDED_JSON.search(render_page(REPORT))
    assert found is not None
    facts = json.loads(found[1])
    assert facts["workspace_bytes"] == 160
    assert facts["occupied_bytes"] == [96, 128, 16]
    faster = (operator(0, "conv2d", 550), operator(3, "relu", 400))
    text = render_page(
        make_report(workspace_bytes=170, total=950, operators=faster), facts
    )
    assert re.search(r'class="change worse">\+10 compared', text)
    assert re.search(r'class="change better">-50 compared', text)
    assert re.search(r'class="r better">-50<', text)
    assert '">new</td>' in text


def test_estimates_of_engines_are_named_after_their_source():
    report = make_report(estimates=(("npu0", 87865, "Vela"),))
    assert "as Vela estimates" in render_page(report)
    assert "87,865 cycles, as Vela estimates" in format_summary(report, None)
