"""Project folders are complete, reproducible, and never overwrite other files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.package.project_writer import add_file_list, write_project


def project(*models: str) -> SourceTree:
    files: dict[str, str | bytes] = {
        f"model/{name}.c": f"/* {name} */\n" for name in models
    }
    facts = add_file_list({"schema": 1, "model": models[0]}, SourceTree(files))
    return SourceTree({**files, "metadata.json": json.dumps(facts)})


def names(directory: Path) -> list[str]:
    return sorted(
        p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()
    )


def test_a_new_directory_gets_every_file(tmp_path: Path) -> None:
    write_project(project("kws"), tmp_path / "a" / "out")
    assert names(tmp_path / "a" / "out") == ["metadata.json", "model/kws.c"]


def test_a_second_compilation_leaves_unchanged_files(tmp_path: Path) -> None:
    write_project(project("kws"), tmp_path)
    before = (tmp_path / "model" / "kws.c").stat().st_mtime_ns
    write_project(project("kws"), tmp_path)
    assert (tmp_path / "model" / "kws.c").stat().st_mtime_ns == before


def test_another_model_replaces_the_first_and_keeps_other_files(tmp_path: Path) -> None:
    write_project(project("kws"), tmp_path)
    (tmp_path / "model" / "mine.c").write_text("int x;\n")
    write_project(project("vww"), tmp_path)
    assert names(tmp_path) == ["metadata.json", "model/mine.c", "model/vww.c"]


def test_writers_of_one_directory_wait_for_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    trees = [
        project(*(f"m{number}" for number in range(first, 30))) for first in range(4)
    ]
    with ThreadPoolExecutor(max_workers=len(trees)) as pool:
        for _ in range(10):
            done = [pool.submit(write_project, tree, folder) for tree in trees]
            assert [one.exception() for one in done] == [None] * len(trees)
            assert names(folder) in [sorted(tree.files) for tree in trees]


@pytest.mark.parametrize(
    "marker", [None, "not json", "[]", '{"name": "npm"}', "[" * 100_000]
)
def test_a_directory_of_other_origin_is_refused(
    tmp_path: Path, marker: str | None
) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    if marker is not None:
        (tmp_path / "metadata.json").write_text(marker)
    with pytest.raises(UsageError) as caught:
        write_project(project("kws"), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: the directory is not empty and holds no firmwright project "
        "(no metadata.json). Try: an empty or new directory."
    )
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_a_file_instead_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(UsageError, match="it is not a directory"):
        write_project(project("kws"), tmp_path / "out")


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write_project(project("kws"), tmp_path / "out")
    (tmp_path / "out" / "model" / "kws.c").unlink()
    (tmp_path / "out" / "model" / "kws.c").symlink_to(outside / "kws.c")
    with pytest.raises(UsageError, match="leaves the directory"):
        write_project(project("kws"), tmp_path / "out")
    assert list(outside.iterdir()) == []


def test_a_forged_file_list_removes_nothing_outside_of_model(tmp_path: Path) -> None:
    write_project(project("kws"), tmp_path / "out")
    (tmp_path / "precious").write_text("1")
    facts = {
        "schema": 1,
        "model": "x",
        "files": ["model/../../precious", "../precious"],
    }
    (tmp_path / "out" / "metadata.json").write_text(json.dumps(facts))
    write_project(project("kws"), tmp_path / "out")
    assert (tmp_path / "precious").exists()
