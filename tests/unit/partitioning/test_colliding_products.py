"""Regions of backends that write the same file, symbol or intrinsic differently."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.errors import PluginError
from firmwright.build.external_symbols import check_external_symbols
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.patterns import op
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.pipeline import bundle
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.kernel_builder import BackendKernel
from tests.backends.toy_backends import Toy, chain, default_loops

pytestmark = pytest.mark.usefixtures("no_backends")
MODULE = chain(("tanh", "x", "a"), ("sin", "a", "b"))
SOURCE = (
    "#include <math.h>\nvoid {symbol}(const float *x, float *y)\n{{\n    {loop}\n}}\n"
)
LOOP = "for (int i = 0; i < 12; ++i) y[i] = {function}f(x[i]);"


class Writer(Backend):
    """Writes one C function per region, with the file and symbol of a test's choice."""

    name = "writer"

    def __init__(
        self, file: Callable[[str], str], symbol: Callable[[str], str]
    ) -> None:
        self.file, self.symbol = file, symbol

    def patterns(self):
        return [PatternEntry(name, op(name)) for name in ("tanh", "sin")]

    def generate(self, kernel: BackendKernel) -> None:
        (call,) = kernel.ops
        symbol = self.symbol(kernel.symbol)
        loop = LOOP.format(function=call.op)
        kernel.file(self.file(kernel.symbol), SOURCE.format(symbol=symbol, loop=loop))
        kernel.extern(symbol, [kernel.inputs[0], kernel.outputs[0]])


def compiled(file: str, symbol: str):
    BACKENDS.register(
        Writer(lambda name: file or f"{name}.c", lambda name: symbol or name)
    )
    return compile_for(MODULE, target="writer")


@pytest.mark.host_c
def test_unique_files_and_symbols_compute_the_right_values() -> None:
    done = compiled("", "")
    assert verify(done, samples=2).exact
    assert sum(path.startswith("backend/writer/") for path in done.tree.files) == 2


@pytest.mark.parametrize(
    ("file", "symbol", "said"),
    [
        (
            "run.c",
            "",
            r"toy: `generate` of target writer, for @writer_\w+, writes the file "
            r"backend/writer/run\.c, which exists with other content\. Try: a file name per region",
        ),
        (
            "",
            "writer_run",
            r"backend/writer/toy_writer_\w+\.c and backend/writer/toy_writer_\w+\.c both define "
            r"the function writer_run, so one .*\. Try: a symbol per region, such as `kernel",
        ),
    ],
)
def test_one_name_with_two_contents_is_refused(
    file: str, symbol: str, said: str
) -> None:
    with pytest.raises(PluginError, match=said):
        compiled(file, symbol)


def test_models_of_one_firmware_are_compared_too() -> None:
    BACKENDS.register(Writer(lambda name: "run.c", lambda name: "writer_run"))
    one, other = (chain((kind, "x", "a")) for kind in ("tanh", "sin"))
    parts = [
        compile_for(m, target="writer", name=m.entry.body[0].op) for m in (one, other)
    ]
    with pytest.raises(
        PluginError, match=r"the model sin writes the file backend/writer/run\.c"
    ):
        bundle(parts)


def intrinsic(name: str, symbol: str, count: int = 1) -> Intrinsic:
    numbers = (Operand(f"n{index}", "imm", INT32) for index in range(count))
    operands = (Operand("x", "ptr", FLOAT32), *numbers)
    return Intrinsic(name, operands, meaning=len, portable="", doc="", symbol=symbol)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            intrinsic("run", "npu_run"),
            intrinsic("walk", "npu_run", 2),
            "the backend b and the backend a declare the function npu_run with different parameter",
        ),
        (
            intrinsic("run", "npu_run"),
            replace(intrinsic("run", "npu_run"), meaning=max),
            "the backend b defines the intrinsic run, which exists with another meaning",
        ),
        (
            intrinsic("run", "npu_run"),
            replace(INTRINSICS["smlad"], meaning=max),
            "the backend b defines the intrinsic smlad, which exists with another meaning",
        ),
    ],
)
def test_intrinsics_of_one_name_agree(
    first: Intrinsic, second: Intrinsic, said: str
) -> None:
    for name, item in (("a", first), ("b", second)):
        toy = type(name, (Toy,), {"intrinsics": (item,)})
        BACKENDS.register(toy({"sum": op("add")}, name=name, hook=default_loops))
    with pytest.raises(PluginError, match=said):
        compile_for(chain(("add", "x z", "a")), target="a, b")


ARCHIVED = {
    "one": "int npu_run(void) { return 1; }",
    "two": "int npu_run(void) { return 2; }",
}


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, bytes]:
    """Objects and archives of ARCHIVED, and archives whose equal helper is shared."""
    for name, text in ARCHIVED.items():
        (tmp_path / f"{name}.c").write_text(text)
        subprocess.run(["cc", "-c", f"{name}.c"], cwd=tmp_path, check=True)
        subprocess.run(
            ["ar", "rcD", f"{name}.a", f"{name}.o"], cwd=tmp_path, check=True
        )
    subprocess.run(["ar", "rcD", "same.a", "one.o"], cwd=tmp_path, check=True)
    return {
        f"backend/npu/{file.name}": file.read_bytes() for file in tmp_path.iterdir()
    }


@pytest.mark.host_c
def test_symbols_of_objects_and_archives_are_compared(
    objects: dict[str, bytes],
) -> None:
    def chosen(*names: str) -> dict[str, bytes]:
        return {f"backend/npu/{name}": objects[f"backend/npu/{name}"] for name in names}

    for names in (
        ("one.o", "two.o"),
        ("one.a", "two.a"),
        ("one.c", "two.a"),
        ("one.c", "two.c"),
    ):
        files = chosen(*names)
        with pytest.raises(PluginError, match="both define the function npu_run"):
            check_external_symbols(files, files)
    for files in (chosen("one.a", "same.a"), chosen("one.o")):
        check_external_symbols(files, files)
    check_external_symbols(
        chosen("one.c", "two.c"), ()
    )  # one library, with alternatives
    cut = {"backend/npu/cut.o": objects["backend/npu/one.o"][:-200]}
    with pytest.raises(PluginError, match=r"cut\.o: the object file is not complete"):
        check_external_symbols(cut, cut)
