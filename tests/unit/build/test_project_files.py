"""A project folder holds what its board needs, and nothing of another's."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import InternalError
from firmwright.boards import list_boards, load_board
from firmwright.build.project_files import project_files


@pytest.mark.parametrize("board", list_boards(), ids=lambda b: b.name)
def test_only_the_boards_own_drivers_are_copied(board) -> None:  # type: ignore[no-untyped-def]
    paths = project_files(board).files
    ports = {path.split("/")[2] for path in paths if path.count("/") == 3}
    assert ports == {board.port}
    drivers = {path.rsplit("/", 1)[-1] for path in paths if "console_" in path}
    assert drivers == (
        set() if board.is_host else {f"console_{board.console.driver}.c"}
    )


@pytest.mark.parametrize("board", list_boards(), ids=lambda b: b.name)
def test_every_header_of_a_port_is_included_by_a_file_of_the_project(board) -> None:  # type: ignore[no-untyped-def]
    paths = project_files(board).files
    included = {
        name
        for path, text in paths.items()
        if path.endswith((".c", ".h"))
        for name in re.findall(
            r'#include "(?:.*/)?(.*)"',
            str(text, "utf-8") if isinstance(text, bytes) else text,
        )
    }
    headers = {
        p.rsplit("/", 1)[-1] for p in paths if re.fullmatch(r"runtime/port/.*\.h", p)
    }
    assert headers <= included
    assert ("stm32.h" in headers) == (
        "stm32" in str(sorted(paths)).replace("stm32.h", "")
    )


def test_the_project_contains_no_path_of_this_machine() -> None:
    for path, content in project_files(load_board("mps2-an386")).files.items():
        text = content if isinstance(content, str) else content.decode("utf-8")
        assert str(Path(__file__).parents[3]) not in text, path


def test_unchanged_files_are_not_touched(
    twice: Callable[..., SourceTree], tmp_path: Path
) -> None:
    board = load_board("mps2-an386")
    twice().merged(project_files(board)).write(tmp_path)
    before = {
        file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()
    }
    twice("    /* changed */\n").merged(project_files(board)).write(tmp_path)
    after = {file: file.stat().st_mtime_ns for file in before}
    assert [f.name for f in before if before[f] != after[f]] == ["twice.c"]


def test_the_board_file_of_the_project_has_flags_and_memory() -> None:
    text = project_files(load_board("mps2-an386")).files["board/board.json"]
    facts = json.loads(text)
    assert facts["model_optimization"] == "-O2"
    assert "-mcpu=cortex-m4" in facts["compile_flags"]
    assert facts["memory"][0] == {
        "name": "code",
        "start": 0,
        "size_bytes": 4194304,
        "kind": "flash",
    }


def test_files_of_another_board_in_the_folder_are_not_built(
    twice: Callable[..., SourceTree], tmp_path: Path
) -> None:
    for name in ("mps2-an386", "microbit"):
        twice().merged(project_files(load_board(name))).write(tmp_path)
    assert (tmp_path / "runtime/port/cortex_m/counter_systick.c").is_file()
    facts = json.loads((tmp_path / "board/board.json").read_text(encoding="utf-8"))
    drivers = [file for file in facts["runtime_sources"] if "/counter_" in file]
    assert drivers == ["runtime/port/cortex_m/counter_nrf51_timer.c"]
    assert "runtime/port/external_memory.c" in facts["runtime_sources"]


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", "./a"])
def test_a_tree_does_not_leave_its_folder(path: str) -> None:
    with pytest.raises(InternalError):
        SourceTree({path: ""})


def test_two_trees_with_one_file_are_not_merged() -> None:
    with pytest.raises(InternalError):
        SourceTree({"a": ""}).merged(SourceTree({"a": ""}))
