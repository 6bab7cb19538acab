"""Each package format compiles, links and runs from its own files alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import InternalError, PluginError, UsageError
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.frontends.onnx import BoundedShapes, ModelOverrides
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.patterns import custom_op, wildcard
from firmwright.ops.custom import CUSTOM_OPS, CustomOp
from firmwright.package.export_format import export_formats
from firmwright.package.package_files import collect_package_files
from firmwright.pipeline import Bundle, Compilation, bundle
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_registry import BACKENDS
from tests.archives import unpack_tar
from tests.onnx.onnx_models import Net
from tests.state.model_writer import ModelFile

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples/01_digits/digits.tflite"
KEYWORD = ROOT / "examples/02_keyword/keyword.tflite"
Exported = Compilation | Bundle

pytestmark = pytest.mark.host_c

NEGATE = """\
#include "negate.h"
#if NEGATE_STEP != 1
#error "the backend's flags are missing"
#endif

void negate(const int8_t *x, int8_t *y, int32_t count)
{
    int unused; /* which a warning names */
    for (int32_t i = 0; i < count; i += NEGATE_STEP) {
        y[i] = (int8_t)-x[i];
    }
}
"""
HEADER = (
    "#include <stdint.h>\nvoid negate(const int8_t *x, int8_t *y, int32_t count);\n"
)


class Negator(Backend):
    """A backend with a library of C and flags for it."""

    name = "negator"
    files: ClassVar = {"negate.c": NEGATE, "negate.h": HEADER}
    flags = ("-DNEGATE_STEP=1",)

    def patterns(self) -> list[PatternEntry]:
        return [PatternEntry("negate", custom_op("Negate", wildcard()))]

    def generate(self, kernel: Any) -> None:
        x, y = kernel.inputs[0], kernel.outputs[0]
        kernel.extern("negate", [x, y, x.elements])

    def c_files(self, target: Any, symbols: frozenset[str]) -> dict[str, bytes]:
        return {name: text.encode() for name, text in self.files.items()}

    def c_flags(self, target: Any) -> tuple[str, ...]:
        return self.flags


class QueueingNegator(Negator):
    """An accelerator whose driver queues calls: its library has the wait function."""

    name = "queue"
    device = "queue0"
    wait = "negate_wait"
    files: ClassVar = {
        "negate.c": NEGATE + "int32_t negate_wait(void)\n{\n    return 0;\n}\n",
        "negate.h": HEADER + "int32_t negate_wait(void);\n",
    }


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(BACKENDS, "_known", {})
    yield
    CUSTOM_OPS._ops.clear()


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Return a model of a relu and a custom operator that negates."""
    file = ModelFile()
    graph = file.graph("main")
    kind = ("int8", (1, 16), 0.5, 0)
    x, a = graph.input("x", *kind), graph.tensor("a", *kind)
    y = graph.tensor("y", *kind)
    graph.op("RELU", [x], [a])
    graph.op("custom:Negate", [a], [y])
    graph.outputs(y)
    path = tmp_path / "pairs.tflite"
    path.write_bytes(file.data())
    return path


def negate_operator(source: str = "pair_negate.c") -> CustomOp:
    text = HEADER + NEGATE.replace('#include "negate.h"', "").replace(
        "NEGATE_STEP", "1"
    )
    return CustomOp(
        name="Negate",
        function="negate",
        sources={source: text},
        reference=lambda call, arrays: (-arrays[0],),
        int_args=lambda call: [call.output.elements],
    )


def with_backend(network: Path) -> Exported:
    CUSTOM_OPS.register(negate_operator())
    BACKENDS.register(Negator())
    return compile_for(load_model(network), target="negator")


def with_device(network: Path) -> Exported:
    CUSTOM_OPS.register(negate_operator())
    BACKENDS.register(QueueingNegator())
    return compile_for(load_model(network), target="queue")


def with_custom_operator(network: Path) -> Exported:
    CUSTOM_OPS.register(negate_operator())
    return compile_for(load_model(network))


def two_models(network: Path) -> Exported:
    models = [
        compile_for(load_model(path), numerics="tflm") for path in (DIGITS, KEYWORD)
    ]
    return bundle(models)


def digits(**options: Any) -> Callable[[Path], Exported]:
    return lambda network: compile_for(load_model(DIGITS), **options)


def with_axis(network: Path) -> Exported:
    net = Net(2)
    x = net.node("Relu", net.input("x", ("time", 8)))
    path = network.with_suffix(".onnx")
    path.write_bytes(net.model(net.node("MatMul", x, net.random(8, 4))))
    axis = BoundedShapes(BoundedAxis("time", 1, 3), {"x": (0,)})
    overrides = ModelOverrides({"x": (3, 8)}, bounded=axis)
    return compile_for(load_model(path, overrides=overrides))


NO_DSP = "cortex-m -mcpu=cortex-m33+nodsp"
CORES = ("cpu0", "cpu1=cortex-m -mcpu=cortex-m33")
OUTSIDE = (PoolInfo("wide", access="ro", scope="external"),)
CASES: dict[str, Callable[[Path], Exported]] = {
    "backend": with_backend,
    "device": with_device,
    "custom operator": with_custom_operator,
    "c-api tvm": digits(c_api="tvm", emit_descriptor=True),
    "no link params": digits(link_params=False),
    "external constants": digits(const_pools=OUTSIDE),
    "constants in header": digits(constants_in_header=True),
    "two cores": digits(devices=CORES, target=NO_DSP, link_params=False),
    "bounded axis": with_axis,
    "two models": two_models,
}
FEW = ("backend", "c-api tvm")
"""The options of the gate for formats whose tool is absent."""
GRID = [
    pytest.param(
        case,
        form,
        marks=() if form == "cmake" or case in FEW else pytest.mark.deep,
        id=f"{case}-{form}",
    )
    for case in CASES
    for form in export_formats()
    if not (case == "two models" and form == "mlf")
    and not (case in ("backend", "device") and form in ("arduino", "cmsis-pack"))
]


def run(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def unpack(form: str, package: Path, folder: Path) -> Path:
    """Return the folder of a package, which may be an archive."""
    match form:
        case "mlf":
            unpack_tar(package, folder)
        case "cmsis-pack":
            with zipfile.ZipFile(package) as packed:
                packed.extractall(folder)
        case _:
            return package
    return folder


def listed_sources(form: str, folder: Path) -> list[Path]:
    """Return the sources that the package's description gives the build system."""
    match form:
        case "mlf":
            return sorted(folder.glob("codegen/host/src/*.c"))
        case "cmsis-pack":
            (description,) = folder.glob("*.pdsc")
            files = ET.parse(description).iter("file")
            named = [
                item.attrib["name"]
                for item in files
                if item.get("category") == "sourceC"
            ]
        case "zephyr" | "esp-idf":
            text = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
            named = re.findall(r"src/\w+\.c(?= PROPERTIES|[\"\n])", text)
            named = list(dict.fromkeys(named))
        case _:  # the tool compiles the folder
            return sorted(folder.glob(f"{export_formats()[form].sources_folder}/*.c"))
    return [folder / name for name in named]


def declared_flags(form: str, folder: Path, source: str) -> list[str]:
    """Return the flags that a package states for one of its sources."""
    if form == "platformio":
        build = json.loads((folder / "library.json").read_text(encoding="utf-8"))[
            "build"
        ]
        return [flag for flag in build["flags"] if flag.startswith("-D")]
    place = "README.md" if form == "mlf" else "CMakeLists.txt"
    file = folder / place
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return re.findall(rf"{source}\b.*?(-D\w+=\w+)", text)[:1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("case", "form"), GRID)
def test_a_package_builds_and_runs_from_its_own_files(
    case: str, form: str, network: Path, tmp_path: Path
) -> None:
    compiled = CASES[case](network)
    package = export_model(compiled, form, tmp_path / "package").path
    folder = unpack(form, package, tmp_path / "unpacked")
    passed = len(compiled.parts) if isinstance(compiled, Bundle) else 1
    if form in ("cmake", "makefile"):
        text = build_and_run(form, folder)
    else:
        text = build_by_hand(form, folder, compiled, tmp_path)
    assert text.count("self-test passed") == passed


def build_and_run(form: str, folder: Path) -> str:
    """Build a package by its own description; return what its example prints."""
    if form == "makefile":
        return run("make", "check", "CFLAGS=-O0 -Wall -Wextra -Werror", folder=folder)
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake, not found on PATH")
    flags = "-DCMAKE_C_FLAGS=-O0 -Wall -Wextra -Werror"
    run("cmake", "-S", ".", "-B", "build", flags, "-DCMAKE_BUILD_TYPE=X", folder=folder)
    run("cmake", "--build", "build", folder=folder)
    (example,) = folder.glob("build/*_example")
    return run(example, folder=folder)


def build_by_hand(form: str, folder: Path, compiled: Exported, tmp_path: Path) -> str:
    """Compile the sources that the package lists, link an example and run it."""
    other = export_model(compiled, "makefile", tmp_path / "example").path
    sources = listed_sources(form, folder)
    includes = [f"-I{path}" for path in {source.parent for source in sources}]
    if form == "mlf":
        includes.append(f"-I{folder / 'codegen/host/include'}")
    objects = []
    for source in sources:
        target = tmp_path / f"{source.stem}.o"
        flags = declared_flags(form, folder, source.name)
        run(
            "cc",
            "-O0",
            "-std=c99",
            *flags,
            *includes,
            "-c",
            source,
            "-o",
            target,
            folder=folder,
        )
        objects.append(target)
    example = other / "example/main.c"
    program = tmp_path / "program"
    run(
        "cc", "-O0", *includes, example, *objects, "-lm", "-o", program, folder=tmp_path
    )
    return run(program, folder=tmp_path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", export_formats())
def test_every_format_has_the_wrapper_for_microtvm(form: str, tmp_path: Path) -> None:
    compiled = compile_for(load_model(DIGITS), c_api="tvm")
    files = export_model(compiled, form, tmp_path / "package").tree
    names = {path.rpartition("/")[2] for path in files.files}
    assert {"tvmgen_digits.c", "tvmgen_digits.h"} <= names


@pytest.mark.parametrize("form", ["arduino", "cmsis-pack"])
def test_formats_without_flags_refuse_backends_that_need_them(
    form: str, network: Path, tmp_path: Path
) -> None:
    compiled = with_backend(network)
    with pytest.raises(
        UsageError, match=f"needs the flags -DNEGATE_STEP=1; {form} cannot"
    ):
        export_model(compiled, form, tmp_path / "package")


@pytest.mark.parametrize(
    "name", ["negate.cpp", "negate.cc", "negate.S", "sub/negate.c"]
)
def test_a_backend_with_a_source_that_builds_ignore_is_refused(
    name: str, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"negate.h": HEADER, name: NEGATE}
    monkeypatch.setattr(Negator, "files", files)
    problem = "files in subfolders are not built" if "/" in name else "compile only C"
    with pytest.raises(PluginError, match=f"{re.escape(name)}, but .*{problem}"):
        with_backend(network)


def test_a_custom_operator_in_cpp_is_refused(network: Path) -> None:
    CUSTOM_OPS.register(negate_operator("negate.cpp"))
    with pytest.raises(PluginError, match=r"custom/negate\.cpp, but .* compile only C"):
        compile_for(load_model(network))


def test_files_of_one_name_are_refused(network: Path, tmp_path: Path) -> None:
    CUSTOM_OPS.register(negate_operator("pairs.c"))
    compiled = compile_for(load_model(network))
    with pytest.raises(
        UsageError, match=r"backend/custom/pairs\.c and model/pairs\.c have one"
    ):
        export_model(compiled, "cmake", tmp_path / "package")


@pytest.mark.parametrize("form", ["cmake", "makefile"])
def test_packages_link_the_objects_and_archives_of_a_backend(
    form: str, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "negate.h").write_text(HEADER, encoding="utf-8")
    (tmp_path / "negate.c").write_text(NEGATE, encoding="utf-8")
    run(
        "cc",
        "-DNEGATE_STEP=1",
        "-fPIC",
        "-c",
        "negate.c",
        "-o",
        "negate.o",
        folder=tmp_path,
    )
    run("ar", "rcs", "libnegate.a", "negate.o", folder=tmp_path)
    monkeypatch.setattr(Negator, "flags", ())
    monkeypatch.setattr(
        Negator,
        "c_files",
        lambda *_: {"libnegate.a": (tmp_path / "libnegate.a").read_bytes()},
    )
    compiled = with_backend(network)
    folder = export_model(compiled, form, tmp_path / "package").path
    assert "self-test passed" in build_and_run(form, folder)
    with pytest.raises(UsageError, match="platformio links sources only"):
        export_model(compiled, "platformio", tmp_path / "other")


def test_tests_of_a_package_refuse_options_that_they_cannot_repeat(
    tmp_path: Path,
) -> None:
    compiled = compile_for(load_model(DIGITS), const_pools=OUTSIDE)
    with pytest.raises(UsageError, match="cannot repeat --const-pool"):
        export_model(compiled, "cmake", tmp_path, with_tests=True)


def test_tests_of_a_package_repeat_options_that_change_the_interface(
    tmp_path: Path,
) -> None:
    compiled = compile_for(load_model(DIGITS), io_buffers="caller", link_params=False)
    export_model(compiled, "cmake", tmp_path, with_tests=True)
    text = (tmp_path / "pytest.ini").read_text(encoding="utf-8")
    assert {"io_buffers=caller", "link_params=False"} <= set(text.split())


def test_a_folder_without_a_rule_is_an_error() -> None:
    with pytest.raises(InternalError, match="no package format has a place"):
        collect_package_files(SourceTree({"other/file.c": ""}))
