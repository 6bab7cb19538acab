"""Compare the documentation with the code: quotations, links, names and figures.

Fences state their contents: `fwir` and `c` of architecture.md are parts of the digits
example's module and C (with "..." for omissions), `bytes FILE OFFSET` are a file's
bytes, `python FILE` and `c FILE` a part of that file, `toml` a whole board.
tests/test_docs_run.py runs the commands.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from firmwright.boards import list_boards, list_chips, load_board
from firmwright.boards.peripherals import (
    CONSOLE_KEYS,
    CONSOLE_KEYS_WITH_GPIO,
    CONSOLES,
)
from firmwright.cli.board_state import describe_validation
from firmwright.cli.main import main
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Options, compile_model, load_module
from firmwright.schedules.registry import SCHEDULES
from tests.emulators import tool_family
from tests.ops.operator_page import render_operator_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    + list((ROOT / "docs").rglob("*.md"))
)
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"NAME|SOC|PORT|FAMILY|OPERATOR|OUT")
IN_FOLDERS = ("", "toolchain/firmwright/", "docs/")
GENERATED = {
    "check_bundle.py",
    "bundle.json",
    "facts.json",
    "metadata.json",
    "SConstruct",
    "board.json",
    "fwr_board.h",
    "board/link.ld",
    "link.ld",
    "board/board.json",
    "firmware/fwr_app.c",
    "model/digits.h",
    "NAME.c",
    "NAME.h",
    "NAME_weights.h",
    "model/NAME.h",
    "runtime/",
    "build/stack.json",
    "my_boards/small-m4/board.toml",
    "firmwright_raise_to/__init__.py",
    "firmwright_raise_to/attributes.py",
    "firmwright_raise_to/importers.py",
    "firmwright_raise_to/operator.py",
    "firmwright_raise_to/schedules.py",
    "firmwright_weigh/__init__.py",
    "firmwright_weigh/bazel.py",
    "firmwright_weigh/help.toml",
    "firmwright_weigh/weigh.py",
    "npu1/__init__.py",
    "npu1/npu1.h",
    "npu1/npu1.c",
    "labels.csv",
    "manifest.json",
    "firmwright.toml",
    "test_firmware.py",
    "firmwright_model.h",
}
"""Files of a project that `compile` writes, and those that guides' readers write."""


@dataclass(frozen=True)
class Fence:
    page: Path
    kind: str
    arguments: tuple[str, ...]
    text: str


def fences(kind: str, arguments: int | None = None) -> list[Fence]:
    found = []
    for page in PAGES:
        for words, text in FENCE.findall(page.read_text(encoding="utf-8")):
            first, *rest = words.split() or [""]
            if first == kind and (arguments is None or len(rest) == arguments):
                found.append(Fence(page, first, tuple(rest), text))
    return found


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def after_marker(page: Path, marker: str) -> str:
    """Return the block after `<!-- marker -->`."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- {marker} -->\n")
    assert rest, f"{page.name} has no marker {marker}"
    return rest.split("\n\n")[0]


def pieces(text: str) -> Iterator[str]:
    """The parts of a quotation between lines of `...`."""
    for piece in re.split(r"^\.\.\.\n", text, flags=re.MULTILINE):
        if piece.strip():
            yield piece


# ---- links and names -----------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_is_valid(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    missing = []
    for target in (item for item in targets if not item.startswith("http")):
        file, _, anchor = target.partition("#")
        linked = page.parent / file if file else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            missing.append(target)
    assert not missing


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_named_exists(page: Path) -> None:
    """Words in code font that look like paths: `ir/tir/verify.py`, `boards/`."""
    words = re.findall(r"`([A-Za-z0-9_./-]+)`", prose(page))
    paths = [
        w for w in words if re.search(r"\w\.(py|md|toml|h|c|csv|json|ld|fwir)$|\w/$", w)
    ]
    nearby = (
        *IN_FOLDERS,
        f"{page.parent.relative_to(ROOT)}/",
        *SIBLINGS.get(page.name, ()),
    )
    missing = [
        path
        for path in paths
        if path not in GENERATED
        and not PLACEHOLDER.search(path)
        and not any((ROOT / folder / path).exists() for folder in nearby)
    ]
    assert not missing


SIBLINGS = {
    "architecture.md": (
        "toolchain/firmwright/frontends/tflite/",
        "toolchain/firmwright/usmp/",
        "runtime_c/",
        "toolchain/firmwright/ir/tir/",
        "toolchain/firmwright/schedules/",
    ),
    "boards.md": ("runtime_c/",),
    "0003-flatbuffer-reader.md": ("toolchain/firmwright/frontends/tflite/",),
    "0004-tir-interpreter.md": ("toolchain/firmwright/ir/tir/",),
    "CHANGELOG.md": ("runtime_c/",),
    "ethos-u.md": ("toolchain/firmwright/extensions/ethos_u/c/",),
    "README.md": ("runtime_c/",),
}
"""Folders that a page has named before it names a file in them alone."""


# ---- quotations ----------------------------------------------------------------------


@cache
def digits_everywhere() -> str:
    """The digits example's module after every pass, and generated files, in one text.

    Twice: with its constants linked, and with constants that are read by a function.
    """
    model = load_module(ROOT / "examples/01_digits/digits.tflite")
    seen = [print_module(model)]

    def watch(_: str, module: IRModule) -> None:
        seen.append(print_module(module))

    for pools in ((), (PoolInfo("psram", access="ro", scope="port"),)):
        options = Options(board="mps2-an386", const_pools=pools)
        files = compile_model(model, options, watch=watch).tree.files
        seen += [text for text in files.values() if isinstance(text, str)]
    return "\n".join(seen)


@pytest.mark.parametrize(
    "piece",
    [
        piece
        for fence in (*fences("fwir"), *fences("c"))
        if fence.page.name == "architecture.md"
        for piece in pieces(fence.text)
    ],
)
def test_quoted_modules_and_c_are_what_the_compiler_writes(piece: str) -> None:
    assert piece in digits_everywhere()


@pytest.mark.parametrize("fence", fences("bytes"), ids=lambda fence: fence.arguments[0])
def test_quoted_bytes_are_those_of_the_file(fence: Fence) -> None:
    file, offset = fence.arguments
    quoted = bytes.fromhex(fence.text)
    assert (ROOT / file).read_bytes()[int(offset) :].startswith(quoted)


@pytest.mark.parametrize(
    "fence", [*fences("python", 1), *fences("c", 1)], ids=lambda fence: fence.text[:30]
)
def test_quoted_code_is_in_its_file(fence: Fence) -> None:
    (file,) = fence.arguments
    assert fence.text in (ROOT / file).read_text(encoding="utf-8")


def test_the_import_contract_is_quoted_in_full() -> None:
    (fence,) = fences("imports")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    assert [_names(line) for line in fence.text.splitlines()] == [
        _names(line) for line in layers
    ]


def _names(layer: str) -> list[str]:
    return sorted(re.findall(r"\w+", layer))


def test_every_package_is_described() -> None:
    text = (ROOT / "docs/developing/architecture.md").read_text(encoding="utf-8")
    folder = ROOT / "toolchain/firmwright"
    packages = {p.parent.name for p in folder.glob("*/__init__.py")}
    described = {
        name
        for row in re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert packages <= described


# ---- examples ------------------------------------------------------------------------


def test_the_board_of_the_guide_is_a_board(tmp_path: Path) -> None:
    (fence,) = (fence for fence in fences("toml") if fence.text.startswith("name"))
    name = tomllib.loads(fence.text)["name"]
    (tmp_path / name).mkdir()
    (tmp_path / name / "board.toml").write_text(fence.text)
    board = load_board(name, (tmp_path,))
    assert [pool.size_bytes for pool in board.pools()] == [20480 - 2048 - 1024]


@pytest.mark.host_c
def test_the_c_example_compiles(tmp_path: Path) -> None:
    """That of docs/firmware.md."""
    (fence,) = (f for f in fences("c") if f.text.startswith('#include "digits.h"'))
    compiled = compile_model(
        load_module(ROOT / "examples/01_digits/digits.tflite"), Options()
    )
    compiled.tree.write(tmp_path)
    (tmp_path / "example.c").write_text(fence.text)
    flags = "-std=c99 -Wall -Wextra -Wconversion -Wshadow -Wdouble-promotion -Werror -c -Imodel"
    done = subprocess.run(
        ["gcc", *flags.split(), "example.c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.qemu
def test_the_python_example_runs(tmp_path: Path) -> None:
    """That of docs/start.md, the first one there."""
    fence = next(f for f in fences("python", 0) if f.page.name == "start.md")
    script = tmp_path / "example.py"
    script.write_text(fence.text.replace('"out"', repr(str(tmp_path / "out"))))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "toolchain")}
    done = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# ---- lists and figures ---------------------------------------------------------------


def test_operator_page_is_current(request: pytest.FixtureRequest) -> None:
    page, current = (
        ROOT / "docs" / "reference" / "operators.md",
        render_operator_page(op_table(), SCHEDULES),
    )
    if request.config.getoption("--update-golden"):
        page.write_text(current, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == current, (
        "--update-golden rewrites the page"
    )


def test_the_page_of_boards_lists_every_board() -> None:
    page = ROOT / "docs/boards.md"
    boards = re.findall(
        r"^- `([\w-]+)`", after_marker(page, "list: boards"), re.MULTILINE
    )
    assert boards == sorted(board.name for board in list_boards())


def test_the_page_of_boards_lists_the_keys_of_each_console() -> None:
    rows = after_marker(ROOT / "boards" / "README.md", "list: console keys")
    found: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`.*?) \|(.*)\|$", rows, re.MULTILINE):
        for driver in re.findall(r"`(\w+)`", row[0]):
            found[driver] = set(re.findall(r"`(\w+)`", row[1]))
    drivers = {driver for names in CONSOLES.values() for driver in names}
    expected = {driver: set(CONSOLE_KEYS.get(driver, ())) for driver in drivers}
    for driver, keys in CONSOLE_KEYS_WITH_GPIO.items():
        expected[driver] |= {"gpio", *keys}
    assert found == expected


def chip_table() -> str:
    lines = [
        "| chip | | flash KiB | RAM KiB | starts at | UART driver | state |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for chip in list_chips():
        driver = chip.console.driver.replace("none", "–")
        cells = [
            f"`{chip.name}`",
            chip.description,
            f"{(chip.flash_bytes or 0) // 1024:,}",
            f"{(chip.ram_bytes or 0) // 1024:,}",
            "–" if chip.export_only else f"{chip.run_hz / 1e6:.4g}",
            driver if driver == "–" else f"`{driver}`",
            describe_validation(chip),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_of_boards_lists_every_chip(request: pytest.FixtureRequest) -> None:
    page, mark = ROOT / "boards" / "README.md", "<!-- list: chips -->\n"
    head, _, _ = page.read_text(encoding="utf-8").partition(mark)
    current = head + mark + chip_table()
    if request.config.getoption("--update-golden"):
        page.write_text(current, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == current, (
        "--update-golden rewrites the table"
    )


@pytest.mark.qemu
def test_the_session_equals_the_output_of_demo(
    deep: bool, measuring_tools: str, recorded_tools: str
) -> None:
    """Word for word; with --deep also the figures, if recorded with these tools."""
    exact = deep and measuring_tools == recorded_tools
    with contextlib.redirect_stdout(io.StringIO()) as spoken:
        assert main(["demo"]) == 0
    said = spoken.getvalue()
    assert "all 3,600 outputs bit for bit equal to LiteRT BUILTIN_REF" in said
    assert "358 of 360 test images classified correctly on the board: 99.4 %" in said
    assert all(len(line) <= 100 for line in said.splitlines())
    told = next(f.text for f in fences("text") if f.text.startswith("$ ./fw demo\n"))
    assert _form(told.partition("\n")[2], exact) == _form(said, exact)


def _form(text: str, exact: bool) -> list[list[str]]:
    """Words by line; unless `exact`, without figures and what is drawn from them."""
    lines = [line.split() for line in text.strip().splitlines()]
    if exact:
        return lines
    plain = [[w for w in words if not re.search(r"[\d█▓▒░▄▀─]", w)] for words in lines]
    return [words for words in plain if words]


def _table(marker: str, page: str = "README.md") -> list[list[str]]:
    rows = after_marker(ROOT / page, marker).splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _figure(cell: str) -> int:
    return int(cell.replace(",", ""))


def figures_script() -> Any:
    spec = importlib.util.spec_from_file_location(
        "figures", ROOT / "docs" / "readme_figures.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.models
def test_figures_of_pages_equal_their_commands(
    model_path: Callable[[str], Path],
) -> None:
    script, count = figures_script(), 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if marks := script.FIGURE.findall(text):
            folder = model_path(re.findall(r"\S+\.tflite", marks[0][0])[0]).parent
            assert script.with_figures(text, folder) == text
            count += len(marks)
    assert count


def test_readme_figures_equal_the_budgets() -> None:
    """Which tests/test_bars.py measures."""
    with (ROOT / "benchmarks/budgets.csv").open(encoding="utf-8") as file:
        budgets = {
            row["model"]: row
            for row in csv.DictReader(file)
            if row["mode"] == "balanced"
        }
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for row in _table("figures: mps2-an386"):
        (name,) = re.findall(r"`(\w+)`", row[0])
        ours = budgets[f"{name}.tflite"]
        assert f"here with {ours['measured_with']} (other versions" in text
        columns = {"instructions": 1, "workspace_bytes": 4, "flash_bytes": 6}
        assert {key: int(ours[key]) for key in columns} == {
            key: _figure(row[place]) for key, place in columns.items()
        }


def test_the_session_of_fit_equals_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of docs/fit.md."""
    (told,) = (f.text for f in fences("text") if f.text.startswith("$ firmwright fit"))
    command, _, output = told.partition("\n")
    monkeypatch.chdir(ROOT / "examples/01_digits")
    assert main(command.split()[2:]) == 0
    assert capsys.readouterr().out == output


@pytest.mark.models
def test_milliseconds_of_the_readme_are_those_of_fit(
    deep: bool, model_path: Callable[[str], Path]
) -> None:
    script, rows = figures_script(), _table("figures: milliseconds")
    if not deep:  # the first model only
        script.MODELS = dict([next(iter(script.MODELS.items()))])
    folder = model_path("kws_ref_model.tflite").parent
    current = script.milliseconds(folder).splitlines()[2:]
    assert current == [f"| {' | '.join(row)} |" for row in rows[: len(current)]]
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    _, modeled, published = rows[0]
    assert f"one inference takes {modeled} ms by a model of the chip" in said
    assert f"of others on that chip is {published} ms" in said


def test_figures_of_less_memory_equal_the_budgets() -> None:
    with (ROOT / "benchmarks/budgets.csv").open(encoding="utf-8") as file:
        budgets = {
            (row["model"], row["mode"]): [row["workspace_bytes"], row["instructions"]]
            for row in csv.DictReader(file)
        }
    for name, _, *cells in _table("figures: memory", "docs/smaller-faster.md"):
        figures = [cell.replace(",", "") for cell in cells]
        for place, mode in enumerate(("balanced", "ram", "ram+rows")):
            key = (f"{name.strip('`')}.tflite", mode)
            told = figures[2 * place : 2 * place + 2]
            assert told == budgets.get(key, ["–", "–"])


def test_the_first_figures_of_the_readme_are_those_of_the_table() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.findall(r"^\| [^|]*\| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    kws = _table("figures: mps2-an386")[0]
    assert first == [(kws[4], kws[5]), (kws[6], kws[7]), (kws[1], kws[2])]


def test_readme_peer_figures_equal_the_table() -> None:
    with (ROOT / "benchmarks/peers.csv").open(encoding="utf-8") as file:
        peers = {
            (row["core"], row["model"], row["metric"]): int(float(row["value"]))
            for row in csv.DictReader(file)
            if row["peer"] == "TFLM + CMSIS-NN"
        }
    for row in _table("figures: mps2-an386"):
        (name,) = re.findall(r"`(\w+)`", row[0])
        key = ("cortex-m4", f"{name}.tflite")
        assert _figure(row[2]) == peers[*key, "instructions"]
        assert _figure(row[5]) == peers[*key, "workspace_bytes"]
        code, model = peers[*key, "code_flash_bytes"], peers[*key, "model_flash_bytes"]
        assert _figure(row[7]) == code + model
        assert row[3] == f"{100 * _figure(row[1]) / _figure(row[2]):.0f} %"
    text = (ROOT / "docs/boards.md").read_text(encoding="utf-8")
    (on_m55,) = re.findall(
        r"takes ([\d,]+) instructions on that core", text.replace("\n", " ")
    )
    assert (
        _figure(on_m55) == peers["cortex-m55", "kws_ref_model.tflite", "instructions"]
    )


def _counts() -> list[Any]:
    """Return model, board and instructions of the tables of models and of boards."""
    found = [
        (re.findall(r"`(\w+)`", row[0])[0], "mps2-an386", row[1])
        for row in _table("figures: mps2-an386")
    ]
    found += [
        ("kws_ref_model", row[0], row[2])
        for row in _table("figures: kws_ref_model", "docs/boards.md")
    ]
    return [
        pytest.param(
            *row,
            marks=[
                pytest.mark.qemu(tool_family(load_board(row[1]))),
                *([pytest.mark.zig] if row[1].endswith("-v") else []),
            ],
        )
        for row in dict.fromkeys(found)
    ]


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.parametrize(("name", "board", "told"), _counts())
def test_the_instructions_in_the_tables_are_measured(
    name: str,
    board: str,
    told: str,
    model_path: Callable[[str], Path],
    measuring_tools: str,
    recorded_tools: str,
    figure_slack: float,
) -> None:
    from firmwright.flows.measure.profiling import profile
    from firmwright.flows.model.compilation import compile_for
    from firmwright.flows.model.model import load_model

    model = load_model(str(model_path(f"{name}.tflite")))
    total = profile(compile_for(model, board=board)).total
    assert total <= _figure(told) * figure_slack
    assert total == _figure(told) or measuring_tools != recorded_tools


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu
def test_figures_of_flash_are_measured(
    model_path: Callable[[str], Path], measuring_tools: str, recorded_tools: str
) -> None:
    if measuring_tools != recorded_tools:
        pytest.skip(f"the figures are those of {recorded_tools}")
    folder = model_path("kws_ref_model.tflite").parent
    script = [sys.executable, ROOT / "docs/flash_table.py", folder]
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    page = (ROOT / "docs/smaller-faster.md").read_text(encoding="utf-8")
    assert done.stdout in page
