"""Tests that names from a model stay names in paths, templates, C, shells and HTML.

A model's graph, tensors, entry point and file have names that would be harmful if
interpreted.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from firmwright.base.array_files import read_npz
from firmwright.base.errors import FirmwrightError
from firmwright.cli.reproduce import reproduce
from firmwright.flows.export.package_export import export_model
from firmwright.flows.samples.sample_batches import npz_bytes
from firmwright.ir.printer import parse_module, print_module
from firmwright.package.export_format import export_formats
from firmwright.pipeline import Compilation, Options, compile_model, load_module_bytes
from firmwright.report.html_page import render_page
from tests.state.model_writer import ModelFile
from tests.unit.report.sample_report import buffer, make_report, operator

SUM, RAN = "{{ 1234567 + 1 }}", "1234568"
"""The result that a template would compute from the name."""
NAMES = {
    "way up": "../../../planted",
    "way from the root": "/tmp/planted",
    "way of another system": "C:\\Windows\\planted",
    "two dots": "..",
    "way down and up": "a/../../planted",
    "expression": SUM,
    "loop": "{% for i in range(9) %}planted{% endfor %}",
    "remark": "{# gone #}",
    "word of a shell": "$(touch planted) `touch planted` ${PATH} ; touch planted",
    "end of a comment": "*/ int planted; /*",
    "line that goes on": "// x \\\nint planted;",
    "line": "x\nint planted;\r\n#error planted\n",
    "trigraph": "x ??/\nint planted; ??=error planted ??)",
    "end of a string": 'x"; int planted; "',
    "conversion": "%s%n%d",
    "control": "\x1b[2J\x07\x7f\u202e\u2066",
    "foreign": "\u00e9\u4e2d\U0001f600",
    "nothing": "",
    "keyword": "int",
    "function": "memcpy",
    "long": "planted " * 700,
    "element of a page": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "name of a text": "@main %x {planted} const",
}
STRICT = (
    "-std=c99",
    "-trigraphs",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
)
SHARED = ["end of a comment", "expression", "way up"]
"""Names that every package format is tested with."""


def hostile_file(name: str) -> bytes:
    """Return a model whose graph, tensors and entry point have the name."""
    file = ModelFile()
    graph = file.graph(name)
    x = graph.input(name, "int8", (1, 4), 0.5, 3)
    inner = graph.tensor(f"{name}{name}", "int8", (1, 4), 0.5, 3)
    graph.op("RELU", [x], [inner])
    y = graph.tensor(name, "int8", (1, 4), 0.5, 3)
    graph.op("RELU6", [inner], [y])
    graph.outputs(y)
    file.signature(name, 0, {name: x}, {name: y})
    return file.data()


@cache
def compiled(kind: str) -> Compilation:
    data = hostile_file(NAMES[kind])
    module = load_module_bytes(data, "model.tflite")
    return compile_model(module, Options(), source=data)


def described(kind: str) -> Compilation:
    """Return the compilation with a descriptor, which has all names too."""
    data = hostile_file(NAMES[kind])
    module = load_module_bytes(data, "model.tflite")
    return compile_model(module, Options(emit_descriptor=True), source=data)


def texts_of(files: dict[str, str | bytes]) -> str:
    return "\n".join(text for text in files.values() if isinstance(text, str))


def assert_inside(paths: list[str]) -> None:
    for path in paths:
        pure = PurePosixPath(path)
        assert not pure.is_absolute(), path
        assert ".." not in pure.parts, path
        assert "\\" not in path, path
        assert ":" not in path, path
        assert path.isprintable(), path


@pytest.mark.host_c
@pytest.mark.parametrize("kind", NAMES)
def test_c_sources_with_a_hostile_name_compile_safely(
    kind: str, tmp_path: Path
) -> None:
    project = described(kind).project()
    assert_inside(list(project.files))
    assert any(path.endswith("_descriptor.c") for path in project.files)
    assert RAN not in texts_of(dict(project.files))
    project.write(tmp_path)
    sources = sorted((tmp_path / "model").glob("*.c"))
    words = ["gcc", *STRICT, f"-I{tmp_path / 'model'}", "-c", *map(str, sources)]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    objects = map(str, tmp_path.glob("*.o"))
    symbols = subprocess.run(
        ["nm", *objects], capture_output=True, text=True, check=True
    ).stdout
    assert "planted" not in symbols.split()
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("kind", NAMES)
def test_module_text_with_a_hostile_name_round_trips(kind: str) -> None:
    module = compiled(kind).module
    text = print_module(module)
    assert print_module(parse_module(text, "again.fwir")) == text


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("form", export_formats())
def test_a_package_cannot_escape_its_folder(
    form: str, kind: str, tmp_path: Path
) -> None:
    output = tmp_path / "inner" / "package"
    output.parent.mkdir()
    tree = export_model(compiled(kind), form, output).tree
    assert_inside(list(tree.files))
    assert RAN not in texts_of(dict(tree.files))
    if form == "mlf":
        with tarfile.open(output) as archive:
            assert_inside([name.removeprefix("./") for name in archive.getnames()])
    elif export_formats()[form].archive:
        with zipfile.ZipFile(output) as archive:
            assert_inside(archive.namelist())
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert found
    assert all(path.is_relative_to(output) for path in found)
    assert not Path("/tmp/planted").exists()


@pytest.mark.parametrize("kind", NAMES)
def test_a_hostile_prefix_becomes_an_identifier_or_an_error(kind: str) -> None:
    try:
        done = compile_model(compiled("foreign").imported, Options(name=NAMES[kind]))
    except FirmwrightError:
        return
    assert_inside(list(done.tree.files))
    assert RAN not in texts_of(dict(done.tree.files))


@pytest.mark.parametrize("kind", NAMES)
def test_html_escapes_hostile_names(kind: str) -> None:
    name = NAMES[kind]
    report = make_report(
        model=name,
        buffers=(buffer(name, 0, 64, (0, 1), kind="input"), *make_report().buffers[1:]),
        operators=(operator(0, name, 600, name=name), operator(2, "softmax", 400)),
    )
    text = render_page(report)
    assert RAN not in text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


@pytest.mark.parametrize("kind", NAMES)
def test_array_archives_contain_hostile_names_safely(kind: str, tmp_path: Path) -> None:
    name = NAMES[kind]
    data = npz_bytes({f"in/{name}": np.zeros(3, np.int8)})
    (tmp_path / "x.npz").write_bytes(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.namelist()) == 1
    assert len(read_npz(tmp_path / "x.npz")) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["x.npz"]


def test_module_files_must_be_inside_the_project() -> None:
    module = replace(
        compiled("keyword").module, files={"../planted.c": b"int planted;"}
    )
    with pytest.raises(FirmwrightError):
        compile_model(module, Options())


def test_options_cannot_name_files_outside_the_project(tmp_path: Path) -> None:
    done = compiled("keyword")
    folder = tmp_path / "project"
    done.save(folder)
    facts = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(facts.replace('"model/', '"model/../../'))
    (tmp_path / "kept.c").write_text("kept")
    done.save(folder)
    assert (tmp_path / "kept.c").read_text() == "kept"
    (tmp_path / "model.tflite").write_bytes(done.source or b"")
    assert reproduce(folder, [tmp_path / "model.tflite"]).exact
