"""Backend esp-nn: what it takes, and its results with the real library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.extensions.esp_nn.backend import HEADER, PATH_VARIABLE
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.backend_conformance import run_backend_test
from firmwright.flows.verify.verification import verify
from firmwright.targets.library_sources import collect_needed_files
from tests import mlperf_tiny

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODELS = Path(os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared" / "models"))
REAL = os.environ.get(PATH_VARIABLE, "")
needs_library = pytest.mark.skipif(
    not REAL, reason=f"needs ESP-NN; {PATH_VARIABLE} names its folder"
)
SOFTMAX = """\
firmwright ir 2
module @net
graph @main(%x: i8[1,{count}] quant(0.1, 0)) -> (%y) {{
  %y: i8[1,{count}] quant(0.00390625, -128) = softmax(%x) {{beta=1.0}}
}}
"""
CONV = """\
#include <common_functions.h>
__attribute__((noinline))
static void pointwise(int x)
{
    (void)x;
}
void esp_nn_conv_s8_opt(int x)
{
    pointwise(x);
}
"""


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the library's layout, and no kernel but one."""
    texts = {
        HEADER: "",
        "include/esp_nn_defs.h": "",
        "src/common/common_functions.h": "",
        "src/convolution/conv_opt.c": CONV,
        "src/convolution/conv_esp32s3.c": "void pointwise(int x)\n{\n}\n",
    }
    for name, text in texts.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_missing_library_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, "/absent")
    with pytest.raises(UsageError) as error:
        compile_for(load_model(DIGITS), target="esp-nn")
    assert str(error.value) == (
        f"/absent: the backend esp-nn needs a copy of the library that contains "
        f"{HEADER}. Try: --esp-nn PATH or the variable {PATH_VARIABLE}."
    )


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize(("numerics", "count"), [("litert", 7), ("tflm", 9)])
def test_it_takes_the_layers_that_round_as_the_library(
    numerics: str, count: int
) -> None:
    compiled = compile_for(
        load_model(DIGITS),
        board="qemu-riscv32-virt-imc",
        target="esp-nn",
        numerics=numerics,
    )
    rows = compiled.metadata["operators"]
    assert sum(row["schedule"] == "esp-nn" for row in rows) == count
    calls = "".join(
        data.decode()
        for name, data in compiled.tree.files.items()
        if name.startswith("backend/esp-nn/")
    )
    assert "esp_nn_depthwise_conv_s8_opt(&input" in calls
    assert "backend/esp-nn/esp_nn_ansi_headers.h" in compiled.tree.files
    assert "conv_params_t params = {128, -128, {1, 1}" in calls


@pytest.mark.usefixtures("headers")
@pytest.mark.parametrize(("count", "taken"), [(255, True), (256, False)])
def test_softmax_of_long_rows_stays_with_the_core(
    count: int, taken: bool, tmp_path: Path
) -> None:
    """The library shifts by 31 bits there, which C does not define for its types."""
    file = tmp_path / "softmax.fwir"
    file.write_text(SOFTMAX.format(count=count), encoding="utf-8")
    compiled = compile_for(load_model(file), target="esp-nn", numerics="tflm")
    (row,) = compiled.metadata["operators"]
    assert (row["schedule"] == "esp-nn") == taken


def test_static_functions_of_a_source_are_not_those_of_others(headers: Path) -> None:
    """The library has files for other chips with functions of the same names."""
    files = collect_needed_files(
        headers, ("src/common",), "src", frozenset({"esp_nn_conv_s8_opt"})
    )
    assert sorted(files) == ["common_functions.h", "conv_opt.c"]


@needs_library
@pytest.mark.models
@pytest.mark.deep
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("qemu-riscv32-virt-imc", marks=pytest.mark.qemu("riscv32")),
        pytest.param("qemu-xtensa-lx106", marks=pytest.mark.qemu("xtensa")),
    ],
)
@pytest.mark.parametrize("name", mlperf_tiny.MODELS)
def test_models_verify_with_the_library(name: str, board: str) -> None:
    model = load_model(MODELS / f"{name}.tflite")
    compiled = compile_for(model, board=board, target="esp-nn", numerics="tflm")
    assert verify(compiled, samples=2).mismatches == 0


@needs_library
@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.parametrize("kernels", ["opt", "ansi"])
def test_every_pattern_matches_the_core(kernels: str) -> None:
    result = run_backend_test(f"esp-nn -kernels={kernels}", numerics="tflm")
    assert [entry.name for entry in result.entries if entry.differing] == []
