"""A foreign project folder can be built; nothing in it runs without consent."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.build import build_project
from firmwright.build.project_trust import find_build_script
from firmwright.flows.model.compilation import compile_for
from firmwright.graph_builder import GraphBuilder

BAD_FLAGS = (
    *(
        "-fplugin=./x.so",
        "-fplugin-arg-x=1",
        "-B.",
        "-Bx/",
        "-specs=x",
        "--specs=x.specs",
    ),
    *(
        "@x",
        "-wrapper",
        "-Wl,-plugin,x.so",
        "-Wa,-I.",
        "-Wp,-I.",
        "-fuse-ld=./x",
        "-include",
    ),
    *(
        "x.c",
        "-Xclang",
        "-mllvm",
        "-mllvm=-load",
        "-o/tmp/x",
        "-I/etc",
        "-Tx.ld",
        "-T../x",
        "-x",
    ),
    *(
        "-print",
        "-fdump-tree-all=/tmp/x",
        "${open('PWNED','w')}",
        "-O2 @x",
        "-g\n@x",
        "-DX=`x`",
    ),
    "",
)
MARK = "open({!r}, 'w')\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project for the host, as `compile` writes it."""
    net = GraphBuilder("net")
    x = net.input("x", (1, 8), scale=0.5, zero_point=3)
    folder = tmp_path_factory.mktemp("built") / "net"
    compile_for(net.model(net.call("relu", x, scale=0.5, zero_point=3))).save(folder)
    return folder


@pytest.fixture
def project(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "net"))


def change_board(project: Path, **changes: Any) -> None:
    file = project / "board" / "board.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


class Planted:
    """An object that creates a file when it is read from a pickle."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._file), "w")


@pytest.mark.host_c
def test_scons_runs_nothing_of_the_folder_and_of_the_home_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "PWNED"
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SCONSFLAGS", f"-f {project}/evil")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "toolchain"]))
    code = MARK.format(str(mark))
    for file in (
        *("evil", "site_scons/site_init.py", "site_init.py", "SCons/__init__.py"),
        *("SCons/__main__.py", "json.py", "ziglang/__init__.py", "ziglang/__main__.py"),
        *(
            "toolchain/json.py",
            "toolchain/SCons/__init__.py",
            "sitecustomize.py",
            "SConscript",
        ),
    ):
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text(code)
    for folder in (".scons/site_scons", "Library/Application Support/SCons/site_scons"):
        (home / folder).mkdir(parents=True)
        (home / folder / "site_init.py").write_text(code)
    (project / ".sconsign.dblite").write_bytes(pickle.dumps({"": Planted(mark)}))
    image = build_project(project)
    assert image.elf.is_file()
    assert not mark.exists()


def test_a_changed_sconstruct_requires_trust(
    project: Path, fw: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "SConstruct").write_text(MARK.format("PWNED"))
    for verb in ("build", "flash"):
        said = fw(verb, str(project))
        assert said.status == 2
        assert "SConstruct is not the one that this version writes" in said.err
        assert f"add --trust {project}" in said.err
    assert not (project / "PWNED").exists()
    monkeypatch.setenv("FIRMWRIGHT_TRUST", str(project))
    with pytest.raises(FirmwrightError):  # it builds nothing
        build_project(project)
    assert (project / "PWNED").exists()


@pytest.mark.parametrize("flag", BAD_FLAGS)
def test_flags_of_a_folder_that_run_programs_require_trust(
    flag: str, project: Path
) -> None:
    for key in (
        "compile_flags",
        "clang_flags",
        "zig_flags",
        "zig_target",
        "link_flags",
    ):
        change_board(project, **{key: ["-g", flag]})
        with pytest.raises(UsageError, match=f"board.json has unusual {key}"):
            find_build_script(project)
        change_board(project, **{key: ["-g"]})
    find_build_script(project)
    (project / "backend" / "x").mkdir(parents=True)
    (project / "backend" / "x" / "build.json").write_text(json.dumps({"flags": [flag]}))
    with pytest.raises(UsageError, match=r"backend/x/build.json has flags"):
        find_build_script(project)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("toolchain", "./evil"),
        ("toolchain", "/tmp/evil"),
        ("toolchain", "${1}"),
        ("runtime_sources", ["../x.c"]),
        ("runtime_sources", ["runtime/../../x.c"]),
        ("runtime_sources", ["runtime/${1}.c"]),
        ("stack_bytes", "1,-plugin,x.so"),
        ("model_optimization", "@x"),
        ("runtime_optimization", "-fplugin=x"),
        ("sections_beside", [".x --dump-section y=z"]),
        ("warnings", "-Wall"),
    ],
)
def test_facts_of_a_folder_that_run_programs_require_trust(
    key: str, value: object, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_board(project, **{key: value})
    with pytest.raises(UsageError, match=r"board/board.json has "):
        build_project(project)
    monkeypatch.setenv("FIRMWRIGHT_TRUST", str(project))
    assert find_build_script(project) == project / "SConstruct"


def test_names_of_files_are_not_evaluated(project: Path) -> None:
    for name in ("${open('PWNED','w')}.c", "$(touch PWNED).c", "a b.c", "@x.c"):
        (project / "model" / name).write_text("")
        with pytest.raises(UsageError, match="model has a file with the name"):
            build_project(project)
        (project / "model" / name).unlink()


def test_links_that_leave_the_folder_require_trust(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (project / "build").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="build is a link that leaves the folder"):
        build_project(project)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(
    "name", ["nano.specs", "x/NANO.SPECS", "device-specs/specs-x", "model/net.h.gch"]
)
def test_files_that_compilers_read_by_themselves_require_trust(
    name: str, project: Path
) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("")
    with pytest.raises(UsageError, match="is a file that compilers read by themselves"):
        build_project(project)


@pytest.mark.host_c
def test_specs_of_the_folder_start_no_program(project: Path, tmp_path: Path) -> None:
    """GCC takes `--specs=NAME` from the current folder if its own have none."""
    facts = json.loads((project / "board" / "board.json").read_text())
    change_board(project, compile_flags=[*facts["compile_flags"], "--specs=nano.specs"])
    (project / "nano.specs").write_text(f".c:\n touch {tmp_path}/PWNED\n\n")
    with pytest.raises(UsageError, match=r"nano.specs is a file that compilers read"):
        build_project(project)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("kind", ["hard link", "inner link", "pipe"])
def test_products_are_not_written_through_links(
    kind: str, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "victim").write_text("kept")
    product = project / "build" / "paths.rsp"
    product.parent.mkdir()
    match kind:
        case "hard link":
            product.hardlink_to(tmp_path / "victim")
        case "inner link":
            product.symlink_to(Path("..", "model", "net.c"))
        case _:
            os.mkfifo(product)
    with pytest.raises(
        UsageError, match=r"build/paths.rsp is (a link|not a regular file)"
    ):
        build_project(project)
    assert (tmp_path / "victim").read_text() == "kept"


@pytest.mark.host_c
def test_the_stack_size_of_an_earlier_build_is_a_number(project: Path) -> None:
    (project / "build").mkdir()
    stack = dict.fromkeys(("release", "empty"), "${open('PWNED','w')}")
    (project / "build" / "stack.json").write_text(json.dumps(stack))
    change_board(project, fit_stack=True)
    with pytest.raises(FirmwrightError):
        build_project(project)
    assert not (project / "PWNED").exists()


DAMAGED_VALUES = (
    -1,
    1 << 32,
    1.5,
    1e308,
    "-x",
    "",
    True,
    None,
    [],
    [None],
    [[]],
    {},
    {"a": 1},
)


def test_damaged_values_in_board_json_are_named(project: Path) -> None:
    """Values that fit a text or a list are left to the checks of trust."""
    region = {"name": "code", "start": 0, "size_bytes": 1 << 20, "kind": "flash"}
    ram = {**region, "name": "sram", "kind": "ram"}
    change_board(project, memory=[region, ram])
    facts = json.loads((project / "board" / "board.json").read_text())
    for key in facts:
        for value in (
            value for value in DAMAGED_VALUES if type(value) is not type(facts[key])
        ):
            change_board(project, **{**facts, key: value})
            with pytest.raises(
                UsageError, match=f"board.json has the {key} .*, which is not"
            ):
                build_project(project)
    for key in region:
        for value in DAMAGED_VALUES:
            if value != "-x" or key != "name":
                change_board(
                    project, **{**facts, "memory": [{**region, key: value}, ram]}
                )
                with pytest.raises(
                    UsageError, match=rf"board.json has the memory\[0\].{key} "
                ):
                    build_project(project)
    change_board(project, **{**facts, "port": "cortex_m", "memory": [region]})
    with pytest.raises(UsageError, match=r"board.json has no memory of kind ram"):
        build_project(project)


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"name": 1}', "\xff"])
def test_a_damaged_board_json_is_a_clear_error(content: str, project: Path) -> None:
    (project / "board" / "board.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError):
        build_project(project)
