"""Backend cmsis-nn with a stand-in and, if available, the real library."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, DType
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.conformance.case_tables import conformance_cases
from firmwright.extensions.cmsis_nn.backend import HEADER, PATH_VARIABLE
from firmwright.extensions.cmsis_nn.c_calls import (
    average_pool_workspace_bytes,
    conv_workspace_bytes,
    depthwise_workspace_bytes,
    reversed_weights_bytes,
    transpose_conv_workspace_bytes,
)
from firmwright.extensions.tune.region_costs import run_passes_before_reordering
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model, partition
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.verify.backend_conformance import run_backend_test
from firmwright.flows.verify.operator_conformance import (
    NamedCase,
    case_inputs,
    cases_module,
    dtype_of,
)
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.oracle.random_samples import make_samples
from firmwright.pipeline import Options, compile_model
from firmwright.targets.library_sources import collect_needed_files
from tests import mlperf_tiny

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = ROOT / "tests" / "extensions" / "cmsis_nn" / "stand_in"
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODELS = Path(os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared" / "models"))
REAL = os.environ.get(PATH_VARIABLE, "")
IN_THE_GATE = ("kws_ref_model", "ad01_int8")  # --deep runs the others


FUNCTIONS = (
    "conv2d",
    "depthwise_conv2d",
    "fully_connected",
    "transpose_conv",
    "svdf",
    "lstm",
    "average_pool2d",
    "max_pool2d",
    "softmax",
    "add",
    "mul",
    "batch_matmul",
)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(STAND_IN))


def test_a_missing_library_is_a_usage_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    with pytest.raises(UsageError) as error:
        compile_for(load_model(DIGITS), target="cmsis-nn")
    assert str(error.value) == (
        f"the backend cmsis-nn needs a copy of the library that contains {HEADER}. "
        f"Try: --cmsis-nn PATH or the variable {PATH_VARIABLE}."
    )


@pytest.mark.usefixtures("stand_in")
def test_it_supports_only_the_rounding_of_the_library():
    litert, tflm = (
        compile_for(
            load_model(DIGITS), board="mps2-an386", target="cmsis-nn", numerics=numerics
        )
        for numerics in ("litert", "tflm")
    )

    def supported(compiled) -> list[str]:
        rows = compiled.metadata["operators"]
        return [row["kind"] for row in rows if row["schedule"] == "cmsis-nn"]

    assert {"fully_connected", "softmax"} - {*supported(litert)} == {
        "fully_connected",
        "softmax",
    }
    assert len(supported(litert)) == 7
    assert len(supported(tflm)) == 9
    sources = {
        name.split("/")[-1] for name in tflm.tree.files if name.startswith("backend/")
    }
    assert "arm_softmax_s8.c" in sources
    assert "arm_softmax_s8.c" not in {name.split("/")[-1] for name in litert.tree.files}
    assert "arm_elementwise_s8.c" not in sources


@pytest.mark.qemu
@pytest.mark.usefixtures("stand_in")
def test_firmware_verifies_against_tflm():
    compiled = compile_for(
        load_model(DIGITS), board="mps2-an386", target="cmsis-nn", numerics="tflm"
    )
    assert verify(compiled, samples=4).mismatches == 0


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_THE_GATE else pytest.param(name, marks=pytest.mark.deep)
        for name in mlperf_tiny.MODELS
    ],
)
def test_benchmark_models_verify_with_the_stand_in(name: str):
    """Verify on the host against TFLM, then on the board against the host's outputs."""
    model, expected = load_model(MODELS / f"{name}.tflite"), None
    for board, target in (
        ("host", "cmsis-nn"),
        ("mps2-an386", "cmsis-nn,cortex-m -mcpu=cortex-m4"),
    ):
        compiled = compile_for(
            model, board=board, target=target, numerics="tflm", planner="greedy_by_size"
        )
        assert any(
            row["schedule"] == "cmsis-nn" for row in compiled.metadata["operators"]
        )
        result = verify(compiled, samples=1, expected=expected)
        assert result.mismatches == 0
        expected = result.outputs


@pytest.mark.host_c
@pytest.mark.usefixtures("stand_in")
def test_every_function_matches_its_operator():
    """Verify one case of each operator and type in one firmware against numpy."""
    first: dict[tuple[str, str], NamedCase] = {}
    for name in FUNCTIONS:
        for case in conformance_cases(name):
            key = name, dtype_of(case)
            if (
                key not in first
                and key[1] != "float32"
                and takes(NamedCase(name, case))
            ):
                first[key] = NamedCase(name, case)
    cases = list(first.values())
    assert len(cases) == 22
    options = Options(target="cmsis-nn", numerics="tflm", planner="greedy_by_size")
    module = cases_module(cases)
    compiled = compile_model(run_passes_before_reordering(module, options), options)
    assert {row["schedule"] for row in compiled.metadata["operators"]} == {"cmsis-nn"}
    drawn = tuple(make_samples(case_inputs(cases), 4, 1))
    expected = run_numpy_reference(module.with_numerics("tflm"), drawn).outputs
    with open_session(compiled) as session:
        actual = session.run_all(drawn)
    for reference, got in zip(expected, actual, strict=True):
        for name in reference:
            assert np.array_equal(reference[name], got[name]), name


def takes(named: NamedCase) -> bool:
    module = partition(Model(cases_module([named])), "cmsis-nn", "tflm").module
    return len(module.functions) > 1


@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.usefixtures("stand_in")
def test_every_pattern_matches_the_core():
    result = run_backend_test("cmsis-nn", numerics="tflm")
    assert [entry.name for entry in result.entries if entry.differing] == []


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
@pytest.mark.skipif(not REAL, reason="needs CMSIS-NN; CMSIS_NN_PATH names its folder")
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
@pytest.mark.parametrize("name", mlperf_tiny.MODELS)
def test_the_real_library_verifies(name: str, board: str):
    model = load_model(MODELS / f"{name}.tflite")
    compiled = compile_for(model, board=board, target="cmsis-nn", numerics="tflm")
    assert verify(compiled, samples=4).mismatches == 0


# ---- buffers -------------------------------------------------------------------------

DSP, MVE = frozenset({"dsp"}), frozenset({"dsp", "mve"})


def layer(
    op: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    padding: int = 0,
    dtype: DType = INT8,
    stride: tuple[int, int] = (1, 1),
) -> OpCall:
    quant = Quantization((1.0,), (0,), None)
    kinds = (TensorType(x, dtype, quant), TensorType(w, INT8, quant))
    attrs = {"stride": stride, "activation": "none"}
    if op == "transpose_conv":
        attrs["before"] = (0, 0)
    else:
        attrs |= {"dilation": (1, 1), "padding": (padding,) * 4}
    if op == "average_pool2d":
        attrs["size"] = w[1:3]
    return OpCall(
        op,
        kinds,
        (TensorType((1, 1, 1, 1), INT8, quant),),
        attrs_from_mapping(op, attrs),
    )


def test_workspace_sizes_match_the_library():
    point = layer("conv2d", (1, 8, 8, 16), (32, 1, 1, 16))
    square = layer("conv2d", (1, 8, 8, 3), (32, 3, 3, 3), 1)
    assert [conv_workspace_bytes(point, core) for core in (frozenset(), DSP, MVE)] == [
        0,
        0,
        0,
    ]
    assert [conv_workspace_bytes(square, core) for core in (frozenset(), DSP, MVE)] == [
        112,
        112,
        128,
    ]
    usual = layer("depthwise_conv2d", (1, 8, 8, 16), (1, 3, 3, 16), 1)
    wide = layer("depthwise_conv2d", (1, 8, 8, 16), (1, 5, 5, 16), 2)
    assert [
        depthwise_workspace_bytes(usual, core) for core in (frozenset(), DSP, MVE)
    ] == [
        0,
        0,
        4464,
    ]
    assert [
        depthwise_workspace_bytes(wide, core) for core in (frozenset(), DSP, MVE)
    ] == [
        0,
        800,
        12400,
    ]
    pool = layer("average_pool2d", (1, 8, 8, 16), (1, 2, 2, 1))
    assert [
        average_pool_workspace_bytes(pool, core) for core in (frozenset(), DSP, MVE)
    ] == [
        0,
        64,
        0,
    ]


def test_workspace_sizes_of_int16_and_transpose_conv_match_the_library():
    square = layer("conv2d", (1, 8, 8, 3), (32, 3, 3, 3), 1, INT16)
    assert [conv_workspace_bytes(square, core) for core in (frozenset(), DSP, MVE)] == [
        108,
        108,
        256,
    ]
    wide = layer("depthwise_conv2d", (1, 8, 8, 16), (1, 5, 5, 16), 2, INT16)
    assert [
        depthwise_workspace_bytes(wide, core) for core in (frozenset(), DSP, MVE)
    ] == [
        0,
        800,
        3208,
    ]
    few = layer("transpose_conv", (1, 4, 4, 8), (3, 2, 2, 8), stride=(2, 2))
    assert [transpose_conv_workspace_bytes(few, core) for core in (DSP, MVE)] == [
        192,
        192,
    ]
    many = layer("transpose_conv", (1, 4, 4, 24), (3, 2, 2, 24), stride=(2, 2))
    assert [transpose_conv_workspace_bytes(many, core) for core in (DSP, MVE)] == [
        384,
        384,
    ]
    assert (reversed_weights_bytes(few), reversed_weights_bytes(many)) == (0, 288)


def test_only_needed_files_are_collected(tmp_path: Path):
    (tmp_path / "Include" / "inner").mkdir(parents=True)
    (tmp_path / "Source").mkdir()
    for name, text in {
        "Include/lib.h": '#include "inner/types.h"\n',
        "Include/inner/types.h": "typedef int word;\n",
        "Include/other.h": "",
        "Source/a.c": '#include "lib.h"\n/* unused( */\nword a(int x)\n{\n    return b(x);\n}\n',
        "Source/b.c": "static int c(int x)\n{\n    return x;\n}\nint b(int x) {return c(x);}\n",
        "Source/unused.c": "int unused(int x)\n{\n    return x;\n}\n",
        "Source/d.c": "const int numbers[2] = {\n    1, 2};\n",
        "Source/e.c": "int e(int x)\n{\n    return numbers[x];\n}\n",
    }.items():
        (tmp_path / name).write_text(text)
    files = collect_needed_files(tmp_path, ("Include",), "Source", frozenset({"a"}))
    assert sorted(files) == ["a.c", "b.c", "inner/types.h", "lib.h"]
    assert sorted(
        collect_needed_files(tmp_path, ("Include",), "Source", frozenset({"e"}))
    ) == [
        "d.c",
        "e.c",
    ]
