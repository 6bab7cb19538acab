"""The documentation as a site: it builds without a warning, alone, and complete."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from firmwright.boards.peripherals import CONSOLES
from firmwright.cli.main import verbs
from tests.browser import PHONE, Pages

ROOT = Path(__file__).resolve().parent.parent
BUILDING = ROOT / "docs/building"
LOADED = re.compile(
    r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](https?:|//)[^>]*>"""
)

GUIDE = {
    "start": "Start",
    "models": "From Keras, PyTorch, scikit-learn, ONNX",
    "fit": "Fit a board",
    "firmware": "Into your firmware",
    "smaller-faster": "Make it smaller or faster",
    "accuracy": "Accuracy",
    "audio": "Audio and streaming",
    "debug": "Debug",
    "ship": "Ship",
    "boards": "Boards",
    "accelerators": "Accelerators",
    "reference/README": "Reference",
}
"""The pages that lead a user and their titles, in order."""


@pytest.fixture(scope="module")
def sphinx(pytestconfig: pytest.Config) -> None:
    missing = [
        name
        for name in ("sphinx", "myst_parser", "furo")
        if not importlib.util.find_spec(name)
    ]
    if missing:
        reason = f"needs {', '.join(missing)}: pip install '.[docs]'"
        if pytestconfig.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def python(
    *words: str | Path, seed: str = "0", path: Path = ROOT / "toolchain"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(sphinx: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `pages` and `site`."""
    folder = tmp_path_factory.mktemp("docs")
    done = python(BUILDING / "make.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [page.relative_to(docs) for page in docs.rglob("*.md")]
    inside = [page for page in pages if page.parts[0] != "skills"]  # for agents
    missing = [
        page
        for page in inside
        if not (site / "site" / page.with_suffix(".html")).is_file()
    ]
    assert not missing
    assert "<h1>Firmwright" in (site / "site/index.html").read_text(encoding="utf-8")


def test_the_sidebar_leads_through_twelve_pages(site: Path) -> None:
    index = (site / "site/index.html").read_text(encoding="utf-8")
    entry = r'<li class="toctree-l1[^"]*"><a [^>]*href="([^"]*)\.html">(.*?)</a>'
    assert dict(re.findall(entry, index)) == GUIDE


@pytest.mark.parametrize("page", [*GUIDE, "safety"])
def test_a_page_that_leads_begins_with_what_is_tested(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    title, status, goal = text.split("\n\n")[:3]
    assert title == f"# {GUIDE.get(page, 'Safety evidence')}"
    assert status.startswith("> **Status.** ")
    assert page == "reference/README" or goal.startswith("After this page ")


def test_the_search_leaves_decisions_out(site: Path) -> None:
    text = (site / "site/searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    decisions = {
        number
        for number, name in enumerate(index["docnames"])
        if re.match(r"decisions/\d", name)
    }
    found = [index["terms"], index["titleterms"]]
    pages = {
        page
        for terms in found
        for places in terms.values()
        for page in ([places] if isinstance(places, int) else places)
    }
    titled = {place[0] for places in index["alltitles"].values() for place in places}
    assert decisions
    assert not decisions & (pages | titled)
    assert set(range(len(index["docnames"]))) - decisions <= pages


QUERIES = {
    "how much RAM": "fit.html#how-much-ram",
    "stack size": "fit.html#stack-size",
    "does it fit": "fit.html#does-it-fit",
    "how fast": "fit.html#how-fast-is-it",
    "Keras": "models.html#keras",
    "PyTorch": "models.html#pytorch",
    "scikit-learn": "models.html#scikit-learn",
    "ONNX": "models.html#onnx",
    "CMake": "firmware.html#cmake",
    "Zephyr": "firmware.html#zephyr",
    "FreeRTOS": "firmware.html#freertos",
    "stack overflow": "debug.html#stack-overflow",
    "crash": "debug.html#crashes",
    "bill of materials": "ship.html#bill-of-materials-sbom",
    "safety": "safety.html",
    "IEC 61508": "safety.html",
}
"""What users look for, and what the search must find first."""


@pytest.mark.browser
def test_the_search_finds_what_users_look_for(site: Path, pages: Pages) -> None:
    first = {}
    with pages.open(site / "site/search.html") as opened:
        for query in QUERIES:
            opened.page.goto(f"{opened.page.url.partition('?')[0]}?q={quote(query)}")
            link = opened.page.locator("#search-results li a").first
            first[query] = (link.get_attribute("href") or "").partition("?")[0]
    assert first == QUERIES


@pytest.mark.browser
@pytest.mark.parametrize("width", [PHONE, 1100])
def test_no_page_that_leads_scrolls_sideways(
    width: int, site: Path, pages: Pages
) -> None:
    with pages.open(site / "site/index.html", width=width) as opened:
        found = []
        for page in ("index", *GUIDE, "safety"):
            opened.page.goto((site / f"site/{page}.html").as_uri())
            found += [f"{page}: {problem}" for problem in opened.overflow()]
    assert not found + opened.errors


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    files = [*(site / "site").rglob("*.html"), *(site / "site/_static").rglob("*.css")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    pages = {name: text for name, text in texts.items() if LOADED.search(text)}
    styles = {
        name
        for name, text in texts.items()
        if re.search(r"(@import|url\()\W*https?:", text)
    }
    assert not pages
    assert not styles


def test_references_are_complete(site: Path) -> None:
    def page(name: str) -> str:
        return (site / "pages/reference" / name).read_text(encoding="utf-8")

    assert re.findall(r"^## ([a-z]+)$", page("cli.md"), re.MULTILINE) == sorted(verbs())
    assert "`--pareto`" in page("cli.md")
    import firmwright

    public = re.findall(r"^### firmwright\.(\w+)$", page("python.md"), re.MULTILINE)
    assert public == [name for name in firmwright.__all__ if not name.startswith("_")]
    assert "void fwr_server_feed(uint8_t byte);" in page("c.md")
    assert "int32_t digits_run(" in page("c.md")
    drivers = {driver for names in CONSOLES.values() for driver in names}
    assert drivers <= set(re.findall(r"`(\w+)`", page("board-keys.md")))


def test_every_benchmark_figure_is_on_its_page_and_in_a_drawing(site: Path) -> None:
    page = (site / "pages/benchmarks.md").read_text(encoding="utf-8")
    drawn = {
        name: "".join(
            ElementTree.parse(site / f"pages/images/bench_{name}.svg")
            .getroot()
            .itertext()
        )
        for name in ("time", "memory", "flash", "plan")
    }
    with (ROOT / "benchmarks/budgets.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        workspace, balanced = int(row["workspace_bytes"]), row["mode"] == "balanced"
        assert f"{workspace:,}" in page
        assert f"{workspace:,}" in drawn["memory"]
        assert not balanced or f"{int(row['instructions']):,}" in drawn["time"]
    with (ROOT / "benchmarks/peers.csv").open(encoding="utf-8") as file:
        peers = list(csv.DictReader(file))
    assert all(row["obtained"].split(";")[0] in page for row in peers)


def test_the_same_tree_gives_the_same_pages(site: Path, tmp_path: Path) -> None:
    assert python(BUILDING / "stage.py", tmp_path, seed="1").returncode == 0
    first, second = contents(site / "pages"), contents(tmp_path)
    assert first == second


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_broken_link_ends_the_build(sphinx: None, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# A\n\n[x](absent.md) [y](#no-such-heading)\n")
    (pages / "lonely.md").write_text("# B\n\n[z](index.md#nothing)\n")
    code = "import make, sys, pathlib; make.render(*map(pathlib.Path, sys.argv[1:]))"
    done = python("-c", code, pages, tmp_path / "site", path=BUILDING)
    assert done.returncode == 1
    for said in ("absent.md", "no-such-heading", "nothing", "lonely.md"):
        assert said in done.stderr
