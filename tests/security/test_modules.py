"""Code that comes with the text of a module runs only if the user says so."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import InternalError, ModelError, UsageError
from firmwright.base.source_paths import module_file_problem
from firmwright.base.trust import TRUST_VARIABLE
from firmwright.build import build_project
from firmwright.extensions.export_formats.microtvm import template_project
from firmwright.extensions.export_formats.microtvm.project_handler import (
    ProjectHandler,
)
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, save_module
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.package.package_files import collect_package_files
from firmwright.pipeline import load_module_bytes

FORBIDDEN = (
    *(
        "site_scons/site_init.py",
        "SConstruct",
        "SConscript",
        "Makefile",
        "CMakeLists.txt",
    ),
    *("conftest.py", "model/x.c", "board/board.json", "board/link.ld", "metadata.json"),
    *("backend/x.c", "backend/x/x.py", "backend/x/Makefile", "backend/x/SConscript"),
    *(
        "backend/x/board.json",
        "backend/x/sub/build.json",
        "backend/x/x.C",
        "backend/x/x.so",
    ),
    *(
        "backend/../SConstruct.c",
        "../x.c",
        "backend/x/../../../x.c",
        "/tmp/x.c",
        "//host/x.c",
    ),
    *("C:/x.c", "C:x.c", "backend\\x\\x.c", "backend/x\\..\\x.c", "backend//x.c"),
    *("./backend/x/x.c", "backend/x/con.c", "backend/x/NUL.h", "backend/aux/x.c"),
    *(
        "backend/x/com1.c",
        "Backend/x/x.c",
        "BACKEND/x/x.c",
        "backend/x/.x.c",
        "backend/.x/x.c",
    ),
    *(
        "backend/x/-x.c",
        "backend/x /x.c",
        "backend/x/x.c ",
        "backend/x/x.c.",
        "backend/x/a b.c",
    ),
    *("backend/x/$(id).c", "backend/x/${1}.c", "backend/x/\n.c", "backend/x/x.c:y"),
    *("backend/x/@x.c", "backend", ""),
)
CALLS = """
func @k(in x: f32[4] align(4), out y: f32[4] align(4)) attrs {op="custom", schedule="c",
    comment="", macs=0ATTRS} {
  for i in 0..4 { y[i] = x[i] }CALL
}
"""
PLANTED = "system(ptr(x, 0, 4, r))"


def text(
    *, head: str = "", attrs: str = "", kernel_attrs: str = "", call: str = ""
) -> str:
    kernel = CALLS.replace("ATTRS", kernel_attrs).replace(
        "CALL", call and f"\n  {call}"
    )
    return f"""firmwright ir 2
module @m
attrs {{entry="main", numerics="onnx", partitioned=[]{attrs}}}
target @cpu = "host" {{}}
{head.partition("data {")[0]}
graph @main(%x: f32[4]) -> (%y) {{
  %y: f32[4] = @k(%x)
}}
{kernel}
{"".join(head.partition("data {")[1:])}"""


def with_file(path: str, content: bytes = b"int planted;\n") -> str:
    digest = hashlib.sha256(content).hexdigest()
    quoted = path.replace("\\", "\\\\").replace("\n", "\\n")
    data = base64.b64encode(content).decode()
    head = (
        f'file "{quoted}" sha256.{digest}\ndata {{\n  sha256.{digest}:\n    {data}\n}}'
    )
    return text(head=head)


def trusted(content: str) -> IRModule:
    return replace(load_module_bytes(content.encode(), "m.fwir"), untrusted=None)


CODE = {
    "file": (with_file("backend/custom/x.c"), "backend/custom/x.c"),
    "object": (with_file("backend/custom/x.o"), "backend/custom/x.o"),
    "extern": (text(kernel_attrs=', extern=["system"]', call=PLANTED), "system()"),
    "check": (
        text(attrs=', backend_checks=["system 1"]'),
        "functions in backend_checks",
    ),
    "wait": (
        text(attrs=', device_waits=[["npu0", "system"]]'),
        "functions in device_waits",
    ),
    "record": (
        text(attrs=', backends=[["cpu", [["name", "x"], ["symbols", ["system"]]]]]'),
        "functions of the backend cpu",
    ),
    "lowered": (text(), "@k"),
}


@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_module_cannot_contribute_other_files_than_c_of_backends(path: str) -> None:
    with pytest.raises(ModelError, match=r"m.fwir:\d+:\d+: "):
        load_module_bytes(with_file(path).encode(), "m.fwir")
    assert module_file_problem(path)


def test_names_of_files_that_differ_in_case_are_refused() -> None:
    assert not module_file_problem("backend/x/a.c", ["backend/x/b.c"])
    assert module_file_problem("backend/x/a.c", ["backend/X/A.c"])


@pytest.mark.parametrize(
    "path", [path for path in FORBIDDEN if "backend" in path.lower()]
)
def test_no_source_tree_has_forbidden_files_of_backends(path: str) -> None:
    with pytest.raises(InternalError):
        SourceTree({path: ""})


@pytest.mark.parametrize("kind", CODE)
def test_code_of_a_module_is_not_generated_without_trust(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "m.fwir"
    content, name = CODE[kind]
    file.write_text(content)
    model = load_model(file)
    assert model.module.untrusted is not None
    assert name in model.module.untrusted.items
    with pytest.raises(UsageError) as error:
        compile_for(model)
    assert name in error.value.what
    assert f"add --trust {file}, which" in error.value.hint


@pytest.mark.parametrize(
    "verb",
    [
        "bound",
        "build",
        "compile",
        "debug",
        "export",
        "profile",
        "report",
        "run",
        "verify",
    ],
)
def test_no_verb_runs_code_of_a_module_without_trust(
    verb: str, fw: Callable, tmp_path: Path
) -> None:
    file = tmp_path / "m.fwir"
    file.write_text(CODE["extern"][0])
    needed = {
        "debug": ["--board", "host"],
        "export": ["--format", "cmake"],
        "run": ["--samples", "1"],
        "report": ["-o", str(tmp_path / "x.html")],
    }
    said = fw(verb, str(file), *needed.get(verb, ()))
    assert said.status == 2
    assert "code of its own, C or lowered functions: system(), @k." in said.err
    assert "--trust" in said.err


def test_modules_can_be_read_without_trust(fw: Callable, tmp_path: Path) -> None:
    (tmp_path / "m.fwir").write_text(CODE["file"][0])
    for verb in ("show", "inspect"):
        assert fw(verb, str(tmp_path / "m.fwir")).status == 0


def test_trust_in_a_file_or_its_folder_is_trust_in_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for file in (tmp_path / "m.fwir", tmp_path / "in" / "m.fwir"):
        file.write_text(CODE["file"][0])
    for trusted, outer, inner in (
        ("", False, False),
        ("m.fwir", False, False),  # which file that is depends on the current folder
        (f"{tmp_path}/m.fwir", True, False),
        (f"qemu:{tmp_path}/in", False, True),
        (f"{tmp_path}", True, True),
    ):
        monkeypatch.setenv("FIRMWRIGHT_TRUST", trusted)
        found = [
            load_model(tmp_path / name).module.untrusted
            for name in ("m.fwir", "in/m.fwir")
        ]
        assert found == [None if outer else found[0], None if inner else found[1]]
        assert (found[0] is None, found[1] is None) == (outer, inner)
    monkeypatch.setenv("FIRMWRIGHT_TRUST", "")
    assert load_model(tmp_path / "m.fwir", trust=True).module.untrusted is None


def test_graphs_of_a_module_need_no_trust(digits_path: Path, tmp_path: Path) -> None:
    save_module(load_model(digits_path).module, tmp_path / "m.fwir")
    model = load_model(tmp_path / "m.fwir")
    assert model.module.untrusted is None
    compile_for(model)


def test_lowered_functions_of_a_module_are_named(
    digits_path: Path, tmp_path: Path
) -> None:
    save_module(compile_for(load_model(digits_path)).module, tmp_path / "m.fwir")
    with pytest.raises(
        UsageError, match=r"lowered functions: @conv2d_0, @.* and 4 more\. Try: "
    ):
        compile_for(load_model(tmp_path / "m.fwir"))


@pytest.mark.host_c
def test_a_trusted_module_compiles_and_runs(
    fw: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.fwir").write_text(CODE["file"][0])
    assert fw("run", "m.fwir", "--samples", "1", "--trust", "m.fwir").status == 0


def test_a_module_cannot_put_code_into_the_name_of_a_section() -> None:
    for section in (r"a\"))) int planted; //", r".a,\"ax\"\n.incbin", "a b"):
        content = text(head=f'pool @sram {{section="{section}"}}')
        with pytest.raises(ModelError, match="expected the name of a linker section"):
            load_module_bytes(content.encode(), "m.fwir")


def test_names_of_devices_cannot_contain_code(digits_path: Path) -> None:
    stages: dict[str, IRModule] = {}
    given = {
        "devices": ("cpu0", "cpu1"),
        "device_assignments": (("digit", "cpu1", ""),),
    }
    compile_for(
        load_model(digits_path), "mps2-an521", watch=stages.__setitem__, **given
    )
    content = print_module(list(stages.values())[-1])
    for name in ("x(void); int planted", "cpu1;", "*/ int planted; /*"):
        changed = content.replace('"cpu1"', f'"{name}"')
        assert changed != content
        refusal = "is not a device name|is not where --assign-device"
        with pytest.raises((UsageError, ModelError), match=refusal):
            compile_for(trusted(changed))


@pytest.mark.host_c
def test_text_of_a_module_does_not_become_a_compilers_flag(tmp_path: Path) -> None:
    """The first comment of a model's C contains 16 characters of this attribute."""
    compiled = compile_for(trusted(text(attrs=', source_sha256="gcc flags: -Bx/"')))
    assert "gcc flags: -Bx/" in str(compiled.tree.files["model/m.c"])
    assert not any(file.gcc_flags for file in collect_package_files(compiled.tree))
    compiled.save(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "cc1").write_text(f"#!/bin/sh\ntouch {tmp_path}/PWNED\nexit 1\n")
    (tmp_path / "x" / "cc1").chmod(0o755)
    build_project(tmp_path)
    assert not (tmp_path / "PWNED").exists()
    shutil.rmtree(tmp_path / "build")


def test_code_in_an_archive_of_microtvm_needs_trust(
    digits_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_for(load_model(digits_path), "host")
    archive = export_model(compiled, "mlf", tmp_path / "model.tar").path
    handler = ProjectHandler(template_project() / "microtvm_api_server.py")
    project = tmp_path / "project"
    given = (str(archive), "", str(project), {"board": "host"})
    with pytest.raises(UsageError, match="code of its own") as refused:
        handler.generate_project(*given)
    assert TRUST_VARIABLE in str(refused.value)
    assert not project.exists()
    monkeypatch.setenv(TRUST_VARIABLE, str(archive))
    handler.generate_project(*given)
    assert project.is_dir()
