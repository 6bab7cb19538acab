"""The page is complete, self-contained, escaped, and free of errors in a browser."""

import json
import re
import shutil
import subprocess
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
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
)
from firmwright.report.html_page import EMBEDDED_JSON, render_page
from firmwright.report.model import ReportFinding
from tests.unit.report.sample_report import make_report, operator

REPORT = make_report(
    findings=(ReportFinding("too much of it.", "less of it."),),
    tradeoffs=(MemoryTradeoff(160, 1000, ()), MemoryTradeoff(120, 1100, ((0, 2),))),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

WATCH = """<script>
window.errors = [];
window.addEventListener("error", (event) => window.errors.push(event.message));
console.error = (...words) => window.errors.push(words.join(" "));
</script>"""
HOVER = """<script>
window.addEventListener("load", () => {
  const said = {};
  const over = (name, element) => {
    const box = element.getBoundingClientRect();
    const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
    element.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, ...at }));
    const tip = document.getElementById("tip");
    said[name] = tip.hidden ? null : tip.textContent;
    said[name + " title"] = document.getElementById("alive-title").textContent;
    said[name + " alive"] = document.getElementById("alive-rows").innerText;
  };
  over("buffer", document.querySelector('[data-buffer="0"]'));
  over("part", document.querySelector(".stacked .part"));
  over("nothing", document.querySelector("h1"));
  document.querySelector(".map").dispatchEvent(new MouseEvent("mouseleave"));
  said["left title"] = document.getElementById("alive-title").textContent;
  said.errors = window.errors;
  said.bars = [...document.querySelectorAll(".operators .bar i")].map((bar) => bar.offsetWidth);
  said.columns = document.querySelectorAll("svg .column").length;
  said.struck = [...document.querySelectorAll(".bar u")].filter((tick) =>
    tick.getBoundingClientRect().top < tick.nextElementSibling.getBoundingClientRect().bottom - 3);
  const phone = document.createElement("iframe");
  phone.style.width = "390px";
  phone.srcdoc = document.head.innerHTML + document.querySelector("main").outerHTML;
  phone.onload = () => {
    said.phone = phone.contentDocument.documentElement.scrollWidth;
    const made = document.createElement("pre");
    made.id = "said";
    made.textContent = JSON.stringify(said);
    document.body.append(made);
  };
  document.body.append(phone);
});
</script>"""


class Tags(HTMLParser):
    """Checks that tags close in order; collects the URLs that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        self.fetched += [
            value or "" for name, value in attrs if name in ("src", "href")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_complete_and_fetches_nothing():
    text = render_page(REPORT)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.fetched == ["data:,"]
    assert "url(" not in text
    assert text == render_page(REPORT)


def test_page_shows_peak_findings_and_tradeoffs():
    text = render_page(REPORT)
    for words in (
        "The peak: call 1",
        "128 bytes occupied",
        "too much of it.",
        "+10.0 %",
        "0 to 1",
    ):
        assert words in text
    assert "b&lt;c" in text
    assert "b<c" not in text


def test_page_shows_partition_search_with_alternatives():
    failed = RegionCost("failed", reason="does <not> build")
    others = (
        RegionAlternative("cortex-m", ("a",), (), failed),
        RegionAlternative("npu", ("a",), (), RegionCost("ok", 500, "modeled")),
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
        "does &lt;not&gt; build",
        "no room",
    ):
        assert words in text
    assert "<h2>Targets</h2>" not in render_page(make_report())


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


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the state of the page in a headless browser after pointer movements."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"needs a browser: {', '.join(BROWSERS)}, none found on PATH")
    folder = tmp_path_factory.mktemp("page")
    file = folder / "report.html"
    text = render_page(REPORT).replace("<head>", f"<head>{WATCH}")
    file.write_text(text.replace("</body>", f"{HOVER}</body>"), encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'me'}",
        "--window-size=1280,1400",
        "--virtual-time-budget=2000",
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in done.stderr
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:]
    answer = json.loads(
        found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    assert isinstance(answer, dict)
    return answer


def test_page_renders_in_a_browser_without_errors(observed: dict[str, object]):
    assert observed["errors"] == []
    assert observed["columns"] == 6
    widths = observed["bars"]
    assert isinstance(widths, list)
    assert widths[0] > widths[2] > 0


def test_the_page_fits_a_phone_and_ticks_spare_the_numbers(observed):
    assert observed["struck"] == []
    assert observed["phone"] <= 390


def test_pointer_shows_a_buffer_and_the_live_buffers(observed: dict[str, object]):
    shown = "in\ninput, 64 bytes\npool sram, bytes 0 to 63\nlive during calls 0–0"
    assert observed["buffer"] == shown
    assert observed["buffer title"] == "Call 0, conv2d"
    alive = str(observed["buffer alive"])
    assert [name for name in ("in", "a", "b<c", "s") if f"{name}\t" in alive] == [
        "in",
        "a",
        "b<c",
    ]
    assert observed["part"] == "code: 3,000 bytes, 60.0 %"
    assert observed["nothing"] is None
    assert observed["left title"] == "The peak: call 1, moved rows"


def test_estimates_of_engines_are_named_after_their_source():
    report = make_report(estimates=(("npu0", 87865, "Vela"),))
    assert "as Vela estimates" in render_page(report)
    assert "87,865 cycles, as Vela estimates" in format_summary(report, None)
