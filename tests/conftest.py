"""Shared fixtures: required tools, golden texts and reference models.

Rings: unit tests run everywhere; `host_c`, `qemu` and `board` need tools and skip with
the reason where those are absent. With --require-tools (CI) a missing tool fails
instead. Tests marked `models` skip where the models are absent, `spike` ones without
the simulator, `deep` ones unless --deep is given.
"""

from __future__ import annotations

import csv
import gc
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from tests.browser import BROWSERS, Pages, find_browser, open_browser

ROOT = Path(__file__).resolve().parent.parent
GOLDEN_LINES_MAX = 150  # longer texts are not read in review: assert properties instead

OWN_SLACK = 1.02
"""The factor that a figure may grow by without a new record."""
OTHER_SLACK = 1.05
"""The same for other versions of the tools; gcc 14.2 differs by 0.5 % from 12.2."""

HOST_COMPILERS = ("gcc", "clang", "cc")
QEMU_TOOLS = {
    "arm": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "riscv32": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
    "xtensa": (
        "xtensa-lx106-elf-gcc",
        "qemu-system-xtensa",
        "/usr/lib/xtensa-lx106-elf/include/stdint.h",
    ),
}
SPIKE_COMPILER = QEMU_TOOLS["riscv32"][0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("firmwright")
    group.addoption(
        "--update-golden", action="store_true", help="rewrite the golden texts"
    )
    group.addoption("--deep", action="store_true", help="run the larger grids too")
    group.addoption(
        "--require-tools", action="store_true", help="a missing tool fails, not skips"
    )
    group.addoption(
        "--board", default=None, help="run the tests of physical board NAME"
    )


def pytest_configure(config: pytest.Config) -> None:
    """With FIRMWRIGHT_TOOLCHAIN=zig, compile the tests' own C with zig as well."""
    if os.environ.get("FIRMWRIGHT_TOOLCHAIN") != "zig" or os.name != "posix":
        return
    folder = tempfile.TemporaryDirectory(prefix="firmwright-cc-")
    config.add_cleanup(folder.cleanup)
    program = Path(folder.name) / "cc"
    command = f"{shlex.quote(sys.executable)} -m ziglang cc -mcpu=baseline"
    program.write_text(
        f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8", newline="\n"
    )
    program.chmod(0o755)
    os.environ["PATH"] = f"{folder.name}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out larger grids unless asked for: skipping each test takes seconds."""
    if config.getoption("--deep"):
        return
    kept = sampled([item for item in items if not item.get_closest_marker("deep")])
    if kept:  # a deep test that is run by itself says why it is skipped
        chosen = set(kept)
        config.hook.pytest_deselected(
            items=[item for item in items if item not in chosen]
        )
        items[:] = kept


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items without variants that `sampled(every)` leaves to --deep.

    Of the variants of a function, in their order, those with a multiple of `every` as
    number stay.
    """
    kept = []
    variants: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is None:
            kept.append(item)
            continue
        function, _, _ = item.nodeid.partition("[")
        if variants[function] % marker.args[0] == 0:
            kept.append(item)
        variants[function] += 1
    return kept


def pytest_collection_finish() -> None:
    """Keep modules and ten thousand tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("deep") and not item.config.getoption("--deep"):
        pytest.skip("part of the larger grid; --deep runs it")
    if item.get_closest_marker("board") and not item.config.getoption("--board"):
        pytest.skip("needs a physical board; --board NAME runs it")
    if item.get_closest_marker("models") and not models_folder().is_dir():
        pytest.skip(no_models_reason())
    if item.get_closest_marker("spike") and "FIRMWRIGHT_SPIKE" not in os.environ:
        pytest.skip("needs an old Spike with packed SIMD; FIRMWRIGHT_SPIKE names it")
    if item.get_closest_marker("lx6") and "FIRMWRIGHT_LX6_GCC" not in os.environ:
        pytest.skip("needs a gcc for the ESP32 without windows; FIRMWRIGHT_LX6_GCC")
    missing = missing_tools(item)
    if missing:
        reason = f"needs {', '.join(missing)}, not found"
        if item.config.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def missing_tools(item: pytest.Item) -> list[str]:
    """The tools that a test's ring markers name and this machine lacks."""
    missing = []
    if item.get_closest_marker("host_c") and not any(map(shutil.which, HOST_COMPILERS)):
        missing.append("a C compiler")
    if item.get_closest_marker("gcc") and shutil.which("gcc") is None:
        missing.append("gcc")
    if item.get_closest_marker("zig") and importlib.util.find_spec("ziglang") is None:
        missing.append("the Python package ziglang")
    if item.get_closest_marker("browser"):
        missing += missing_for_pages()
    if item.get_closest_marker("spike") and not shutil.which(SPIKE_COMPILER):
        missing.append(SPIKE_COMPILER)
    for marker in item.iter_markers("qemu"):
        for family in marker.args or ("arm",):
            missing += [tool for tool in QEMU_TOOLS[family] if not has_tool(tool)]
    return missing


def has_tool(tool: str) -> bool:
    """Return whether a program is on PATH; a path with folders is that of a file."""
    return Path(tool).exists() if "/" in tool else shutil.which(tool) is not None


def missing_for_pages() -> list[str]:
    missing = []
    if find_browser() is None:
        missing.append(f"a browser ({', '.join(BROWSERS)})")
    for package in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(package) is None:
            missing.append(f"the Python package {package}")
    return missing


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """Return what opens pages in a headless browser, one process for a module."""
    with open_browser() as pages:
        yield pages


@pytest.fixture(scope="session")
def measuring_tools() -> str:
    """Names and versions of the compiler and emulator that measure figures here."""
    versions = []
    for name, program in (
        ("arm-none-eabi-gcc", "arm-none-eabi-gcc"),
        ("QEMU", "qemu-system-arm"),
    ):
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        )
        (number,) = re.findall(r"\b(\d+\.\d+)\.\d+", said.stdout)[:1]
        versions.append(f"{name} {number}")
    return ", ".join(versions)


@pytest.fixture(scope="session")
def recorded_tools() -> str:
    """What the figures of the repository were measured with, as `measuring_tools`."""
    with (ROOT / "benchmarks" / "budgets.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        (tools,) = {row["measured_with"] for row in csv.DictReader(file)}
    return tools


@pytest.fixture(scope="session")
def figure_slack(measuring_tools: str, recorded_tools: str) -> float:
    """The factor that a measured figure may be above the recorded one."""
    return OWN_SLACK if measuring_tools == recorded_tools else OTHER_SLACK


def models_folder() -> Path:
    """Where the MLPerf Tiny models are looked for."""
    named = os.environ.get("FIRMWRIGHT_MODELS")
    return Path(named) if named else ROOT.parent / "shared" / "models"


def no_models_reason() -> str:
    return (
        f"the MLPerf Tiny models are not in {models_folder()}; examples/mlperf_tiny/fetch.py gets "
        "them, FIRMWRIGHT_MODELS names their folder"
    )


@pytest.fixture(scope="session", autouse=True)
def _one_build_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The workers of one run share images and objects, and none of an earlier run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    cache = shared / "firmwright-cache"
    cache.mkdir(exist_ok=True)
    os.environ["FIRMWRIGHT_CACHE"] = str(cache)
    # Many tests start a Python of their own, which loads compiled modules in half
    # the time. The bytecode of installed packages lies beside them already.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["FIRMWRIGHT_OBJECTS"] = str(cache / "objects")


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Undo the changes of one test: options that are parsed may set variables."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def model_path() -> Callable[[str], Path]:
    """Path of an MLPerf Tiny model by file name; the test skips where it is absent."""

    def find(name: str) -> Path:
        path = models_folder() / name
        if not path.is_file():
            pytest.skip(f"{name}: {no_models_reason()}")
        return path

    return find


@pytest.fixture
def digits_path() -> Path:
    """The bundled int8 example model."""
    return ROOT / "examples" / "01_digits" / "digits.tflite"


@pytest.fixture
def deep(request: pytest.FixtureRequest) -> bool:
    """Whether the larger grid was asked for; for tests that widen their own loops."""
    return bool(request.config.getoption("--deep"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares with tests/golden/<module>/<test><suffix>.

    A missing file fails. `pytest --update-golden` writes the file instead; the diff is
    read in review.
    """
    update = bool(request.config.getoption("--update-golden"))
    module = Path(str(request.path)).relative_to(ROOT / "tests").with_suffix("")
    test = re.sub(r"[^A-Za-z0-9_.-]+", "_", request.node.name).strip("_")

    def check(text: str, suffix: str = ".txt") -> None:
        path = ROOT / "tests" / "golden" / module / f"{test}{suffix}"
        text = text if text.endswith("\n") else text + "\n"
        lines = text.count("\n")
        assert lines <= GOLDEN_LINES_MAX, (
            f"{lines} lines are too many to review: assert properties"
        )
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"no {path.relative_to(ROOT)}; --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), (
            "differs; --update-golden accepts it"
        )

    return check


@dataclass(frozen=True)
class Said:
    """The exit code, stdout and stderr of a command line in this process."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def fw(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Return a function that runs a command: `fw("verify", path)`."""
    from firmwright.cli.main import main

    def run(*words: object) -> Said:
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Said(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def ci_script() -> Callable[[str], ModuleType]:
    """Return a function that imports a script of the folder .ci."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look up their module
        spec.loader.exec_module(module)
        return module

    return load
