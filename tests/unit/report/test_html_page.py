"""The page: whole, self-contained, escaped; in a browser it renders, hovers and says no error."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from sample_report import made, operator

from firmwright.report.html_page import EMBEDDED_JSON, render_page
from firmwright.report.model import (
    PartitionDecision,
    PartitionSearch,
    ProgramOption,
    ReportFinding,
    TargetOption,
    WorkspaceTradeoff,
)

REPORT = made(
    findings=(ReportFinding("too much of it.", "less of it."),),
    tradeoffs=(WorkspaceTradeoff(160, 1000, ()), WorkspaceTradeoff(120, 1100, ((0, 2),))),
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
  const made = document.createElement("pre");
  made.id = "said";
  made.textContent = JSON.stringify(said);
  document.body.append(made);
});
</script>"""


class Tags(HTMLParser):
    """Every tag that must be closed is, in order; collects what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing():
    text = render_page(REPORT)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.fetched == ["data:,"]
    assert "url(" not in text
    assert text == render_page(REPORT)


def test_the_page_says_peak_findings_and_what_less_memory_costs():
    text = render_page(REPORT)
    for words in ("The peak: call 1", "128 bytes occupied", "too much of it.", "+10.0 %", "0 to 1"):
        assert words in text
    assert "b&lt;c" in text
    assert "b<c" not in text


def test_a_search_for_targets_is_told_with_what_it_did_not_take():
    taken = TargetOption("conv2d relu", "vanilla", 600)
    other = TargetOption("", "cortex-m", None, "does <not> build")
    programs = (
        ProgramOption("collage", 1000, 160, 5000, taken=True),
        ProgramOption("eager", None, 0, None, taken=False, note="no room"),
    )
    search = PartitionSearch(
        "instructions", "measured in QEMU", (PartitionDecision(taken, (other,)),), programs
    )
    text = render_page(made(search=search))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    for words in ("Who runs what", "<b>collage</b>, taken", "does &lt;not&gt; build", "no room"):
        assert words in text
    assert "Who runs what" not in render_page(made())


def test_a_later_report_reads_the_facts_of_the_page_and_shows_changes():
    found = EMBEDDED_JSON.search(render_page(REPORT))
    assert found is not None
    facts = json.loads(found[1])
    assert facts["workspace_bytes"] == 160
    assert facts["occupied_bytes"] == [96, 128, 16]
    faster = (operator(0, "conv2d", 550), operator(3, "relu", 400))
    text = render_page(made(workspace_bytes=170, total=950, operators=faster), facts)
    assert re.search(r'class="change worse">\+10 against', text)
    assert re.search(r'class="change better">-50 against', text)
    assert re.search(r'class="r better">-50<', text)
    assert '">new</td>' in text


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a headless browser says of the page after the pointer went over it."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"needs a browser: {', '.join(BROWSERS)}, none found on PATH")
    folder = tmp_path_factory.mktemp("page")
    file = folder / "report.html"
    text = render_page(REPORT).replace("<head>", f"<head>{WATCH}")
    file.write_text(text.replace("</body>", f"{HOVER}</body>"), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'me'}",
        "--window-size=1280,1400", "--virtual-time-budget=2000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:]
    answer = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert isinstance(answer, dict)
    return answer


def test_in_a_browser_it_renders_without_errors(said: dict[str, object]):
    assert said["errors"] == []
    assert said["columns"] == 6
    widths = said["bars"]
    assert isinstance(widths, list)
    assert widths[0] > widths[2] > 0


def test_the_pointer_shows_a_buffer_and_who_lives_then(said: dict[str, object]):
    shown = "in\ninput, 64 bytes\npool sram, bytes 0 to 63\nlives during calls 0–0"
    assert said["buffer"] == shown
    assert said["buffer title"] == "Call 0, conv2d"
    alive = str(said["buffer alive"])
    assert [name for name in ("in", "a", "b<c", "s") if f"{name}\t" in alive] == ["in", "a", "b<c"]
    assert said["part"] == "code: 3,000 bytes, 60.0 %"
    assert said["nothing"] is None
    assert said["left title"] == "The peak: call 1, rows moved on"
