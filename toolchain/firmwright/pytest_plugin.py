"""pytest fixtures for users' tests: their model as firmware on a selected board.

    pytest --fw-board mps2-an386

pytest.ini provides `fw_model`, `fw_sources` and `fw_known_answers`, relative paths, and
`fw_options`, compilation options as NAME=VALUE lines. The fixtures are `fw_board`,
`fw_session` and `fw_known_answers`; firmwright is imported when one is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from firmwright.boards import Board
    from firmwright.flows.board.model_session import ModelSession
    from firmwright.flows.samples.sample_batches import Tensors


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("firmwright")
    board_help = "the board that runs the firmware (default: host)"
    dir_help = "more boards, found before firmwright's own"
    group.addoption("--fw-board", metavar="B", default="host", help=board_help)
    group.addoption(
        "--fw-port", metavar="URL", default="", help="the port of a flashed board"
    )
    group.addoption(
        "--fw-boards-dir", metavar="DIR", action="append", default=[], help=dir_help
    )
    parser.addini("fw_model", "the model file that fw_session runs")
    parser.addini(
        "fw_sources", "the folder of an exported package's C, which fw_session builds"
    )
    parser.addini("fw_known_answers", "the .npz of samples and outputs")
    parser.addini(
        "fw_options", "options of the compilation, NAME=VALUE", type="linelist"
    )


@pytest.fixture(scope="session")
def fw_board(pytestconfig: pytest.Config) -> Board:
    """The board of --fw-board."""
    from firmwright.boards import load_board

    return load_board(pytestconfig.getoption("--fw-board"), _folders(pytestconfig))


@pytest.fixture(scope="session")
def fw_session(pytestconfig: pytest.Config, fw_board: Board) -> Iterator[ModelSession]:
    """The model `fw_model`, compiled, built and started on the board, for all tests."""
    from firmwright.flows.board.model_session import open_session
    from firmwright.flows.export.package_export import with_package_sources
    from firmwright.flows.model.compilation import compile_for
    from firmwright.flows.model.given_options import OptionValues, to_option_values
    from firmwright.flows.model.model import load_model

    given = dict(_option(line) for line in _lines(pytestconfig, "fw_options") if line)
    options: OptionValues = {
        **to_option_values(given),
        "board": fw_board.name,
        "board_dirs": _folders(pytestconfig),
    }
    compiled = compile_for(load_model(_path(pytestconfig, "fw_model")), **options)
    if any(_lines(pytestconfig, "fw_sources")):
        compiled = with_package_sources(compiled, _path(pytestconfig, "fw_sources"))
    with open_session(compiled, port=pytestconfig.getoption("--fw-port")) as session:
        yield session


@pytest.fixture(scope="session")
def fw_known_answers(pytestconfig: pytest.Config) -> Sequence[tuple[Tensors, Tensors]]:
    """Pairs of inputs and outputs by tensor name, from `fw_known_answers`."""
    from firmwright.flows.export.package_export import read_known_answers

    return read_known_answers(_path(pytestconfig, "fw_known_answers").read_bytes())


def _folders(config: pytest.Config) -> tuple[Path, ...]:
    return tuple(Path(folder) for folder in config.getoption("--fw-boards-dir"))


def _path(config: pytest.Config, name: str) -> Path:
    lines = [line for line in _lines(config, name) if line]
    if not lines:
        raise pytest.UsageError(f"{name} is not set: name the file in pytest.ini")
    return _root(config) / lines[0]


def _lines(config: pytest.Config, name: str) -> list[str]:
    if config.inipath is not None:
        value = config.getini(name)
        return list(value) if isinstance(value, list) else [str(value)] if value else []
    file = ConfigParser(interpolation=None)
    file.read(_root(config) / "pytest.ini", encoding="utf-8")
    if not file.has_section("pytest"):
        return []
    return file.get("pytest", name, fallback="").split("\n")


def _root(config: pytest.Config) -> Path:
    """Return the project's folder, or the current one if a port misleads pytest."""
    return config.invocation_params.dir if config.inipath is None else config.rootpath


def _option(line: str) -> tuple[str, str | bool]:
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals:
        raise pytest.UsageError(f"fw_options: {line!r} is not NAME=VALUE")
    return name, {"True": True, "False": False}.get(value, value)
