"""Backends ethos-u*: regions compiled by Vela run on the NPU's functional model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.cli.main import main
from firmwright.extensions.ethos_u import vela
from firmwright.extensions.ethos_u.backend import DRIVER_OF_APPLICATION, PATH_VARIABLE
from firmwright.extensions.tune.partition_search import search_partition
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model, partition
from firmwright.flows.model.partition_methods import PartitionRequest
from firmwright.flows.verify.verification import verify
from firmwright.ir.parser import parse_module
from firmwright.pipeline import Compilation

pytest.importorskip(
    "ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')"
)

ROOT = Path(__file__).resolve().parents[3]
REAL = os.environ.get(PATH_VARIABLE, "")
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"


def compile_digits(board: str, numerics: str) -> Compilation:
    model = load_model(DIGITS)
    return compile_for(model, board=board, target="ethos-u55-128", numerics=numerics)


def test_a_whole_model_is_one_call_in_the_arena_of_vela() -> None:
    compiled = compile_digits("mps3-an547", "tflm")
    (call,) = [
        d.decode()
        for name, d in compiled.module.files.items()
        if name.endswith("_run.c")
    ]
    assert len(compiled.summary.operators) == 1
    assert f".arena_size = {compiled.summary.workspace_bytes}," in call


def test_the_arena_is_in_memory_that_the_npu_can_access() -> None:
    pools = compile_digits("mps3-an547", "tflm").summary.pools
    assert pools["sram"].bytes == 0 < pools["isram"].bytes


def test_digits_on_the_npu_equals_the_reference() -> None:
    assert verify(compile_digits("host", "tflm"), samples=3).exact


def test_operators_that_the_npu_rounds_in_another_way_stay_on_the_core() -> None:
    compiled = compile_digits("host", "litert")
    by_place = {row.kind: row.schedule for row in compiled.summary.operators}
    assert by_place["fully_connected"] != "ethos-u55-128" != by_place["softmax"]
    assert "ethos-u55-128" in by_place.values()
    first, second = compiled.summary.rejections
    assert str(first).startswith("fully_connected ")
    assert "--numerics tflm" in second.reason


BRANCHES = """firmwright ir 2
module @branches
attrs {entry="main", numerics="tflm"}

graph @main(%x: i8[1,8,8,4] quant(0.5, 0)) -> (%p, %s) {
  %a: i8[1,8,8,4] quant(0.5, 0) = relu(%x)
  %p: i8[1,4,4,4] quant(0.5, 0) = max_pool2d(%a) {size=[2, 2], stride=[2, 2], dilation=[1, 1],
      padding=[0, 0, 0, 0], activation="none"}
  %s: i8[1,8,8,4] quant(0.5, 0) = sub(%a, %x) {activation="none"}
}
"""


def test_a_tensor_with_other_readers_is_copied_to_the_arena() -> None:
    """The core reads `a` after the NPU, which may overwrite its arena."""
    module = parse_module(BRANCHES)
    offload = {"a": "cpu", "s": "cpu"}
    compiled = compile_for(
        partition(Model(module), "ethos-u55-128", offload=offload).module
    )
    (constraint,) = [
        c
        for c in compiled.module.plan.conflicts
        if {c.a, c.b} >= {"a"} and "arena" in c.a + c.b
    ]
    assert constraint.modulus == 0
    assert verify(compiled, samples=3).exact


def test_a_model_that_vela_has_compiled_gives_the_same_outputs(tmp_path: Path) -> None:
    options = vela.VelaOptions(
        "ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"
    )
    vela.run_vela(DIGITS.read_bytes(), options, tmp_path, "tflite")
    compiled_by_vela = load_model(next(tmp_path.glob("*_vela.tflite")))
    images = np.load(DIGITS.with_name("digits_test.npz"))["input_1"][:5]
    outputs = []
    for target, model in (
        ("", load_model(DIGITS)),
        ("ethos-u55-128", compiled_by_vela),
    ):
        with open_session(
            compile_for(model, target=target, numerics="tflm")
        ) as session:
            outputs.append(session.run(images))
    assert np.array_equal(*outputs)
    with pytest.raises(UsageError, match="Vela compiled the model for ethos-u55-128"):
        compile_for(compiled_by_vela, target="ethos-u55-64")


def test_counts_of_instructions_exclude_the_model() -> None:
    mixed, core = (
        measure_instructions(
            compile_for(load_model(DIGITS), "mps3-an547", target=target)
        )
        for target in ("ethos-u55-128", "")
    )
    names = [name for name, _ in mixed.functions]
    assert not any(
        name.startswith("npu_") or name == "ethosu_invoke_async" for name in names
    )
    assert "ethosu_call_start" in names
    on_core = [share.instructions for share in mixed.operators.values()]
    assert on_core[0] == 0 < len(on_core) - 1 == sum(share > 0 for share in on_core)
    assert (
        on_core[1:]
        == [s.instructions for s in core.operators.values()][-len(on_core) + 1 :]
    )
    assert mixed.timeline is not None
    (npu, *_) = mixed.timeline.schedule
    assert npu.call.device == "npu0"
    in_turn = npu.end - npu.begin + mixed.total.duration
    assert 0 < in_turn - mixed.until_over(in_cycles=True) < 50, (
        "the core goes on from the start to the wait while the NPU works"
    )


def test_an_unknown_memory_mode_is_an_error_of_the_target() -> None:
    with pytest.raises(UsageError, match=r"Memory_Mode\.Fast not found"):
        compile_for(load_model(DIGITS), target="ethos-u55-128 -memory-mode=Fast")


def test_a_package_calls_the_driver_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATH_VARIABLE, DRIVER_OF_APPLICATION)
    folder, target = (
        tmp_path / "package",
        ["--target", "ethos-u55-128", "--numerics", "tflm"],
    )
    assert (
        main(["export", str(DIGITS), "--format", "cmake", *target, "-o", str(folder)])
        == 0
    )
    assert (folder / "model" / "ethosu_call.c").is_file()
    assert not (folder / "model" / "npu.h").exists()
    assert "return ethosu_call_wait();" in (folder / "example" / "main.c").read_text()


@pytest.mark.skipif(
    REAL in ("", DRIVER_OF_APPLICATION), reason=f"{PATH_VARIABLE} names no driver"
)
def test_firmware_links_with_arms_driver() -> None:
    image = build_image(compile_digits("mps3-an547", "tflm"))
    names = {symbol.name for symbol in image.sizes.symbols}
    assert {"ethosu_dev_run_command_stream", "ethosu_call_start"} <= names
    assert not any(name.startswith("npu_") for name in names)


def test_without_vela_the_error_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vela, "find_spec", lambda name: None)
    vela.survey_operators.cache_clear()
    with pytest.raises(ToolMissingError, match="Vela") as caught:
        compile_digits("host", "tflm")
    assert "firmwright[ethos-u]" in caught.value.hint


UNSIGNED = """firmwright ir 2
module @unsigned
attrs {entry="main", numerics="litert"}

graph @main(%x: u8[1,8,8,4] quant(0.5, 3)) -> (%y) {
  %a: i8[1,8,8,4] quant(0.5, -125) = quantize(%x)
  %b: i8[1,4,4,4] quant(0.5, -125) = max_pool2d(%a) {size=[2, 2], stride=[2, 2], dilation=[1, 1],
      padding=[0, 0, 0, 0], activation="none"}
  %y: u8[1,4,4,4] quant(0.5, 3) = quantize(%b)
}
"""


def test_uint8_values_are_converted_on_the_npu() -> None:
    compiled = compile_for(parse_module(UNSIGNED), target="ethos-u55-128")
    assert [row.schedule for row in compiled.summary.operators] == ["ethos-u55-128"]
    assert verify(compiled, samples=3).exact


def test_collage_compares_shares_of_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vela runs for all operators, the largest region, core costs and the result."""
    runs: list[str] = []
    real = vela.run_vela

    def counted(
        model: bytes, options: vela.VelaOptions, folder: Path, output: str
    ) -> str:
        runs.append(output)
        return real(model, options, folder, output)

    monkeypatch.setattr(vela, "run_vela", counted)
    vela.survey_operators.cache_clear()
    vela.compile_region.cache_clear()
    given = {"target": "ethos-u55-128", "numerics": "tflm", "board": "host"}
    result = search_partition(
        load_model(DIGITS), given, PartitionRequest("collage")
    ).partition
    assert runs == ["tflite", "raw", "tflite", "raw"]
    first, *_ = result.parts
    whole = max(
        item.cost.count for item in first.alternatives if item.target == first.target
    )
    shares = [part.cost.count for part in result.parts if part.target == first.target]
    assert max(shares) < sum(shares) <= whole
