"""Models x boards: outputs on the board equal those of the reference.

Every model on the host and the Cortex-M4, keyword spotting on every board, both
profiles. `--deep` runs the whole grid with more samples.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import SampleBatch, generate_samples
from firmwright.flows.verify.verification import Verification, verify
from tests import mlperf_tiny

KWS = "kws_ref_model.tflite"
FLOAT = (
    "kws_ref_model_float32.tflite",
    "vww_96_float.tflite",
    "pretrainedResnet.tflite",
    "ad01_fp32.tflite",
)
M4 = "mps2-an386"
SMALL = ("microbit", "stm32vldiscovery")
OTHER_ARM = ("mps2-an385", "mps2-an505", "mps3-an547")
OTHER_DEEP = ("mps2-an500", "mps2-an521", "mps3-an524", "netduinoplus2")
RISCV = "qemu-riscv32-virt"
SMALL_RISCV = "hifive1-revb"
SAMPLES = 4
SAMPLES_DEEP = 20

models = pytest.mark.models
host_c = pytest.mark.host_c
arm = pytest.mark.qemu
riscv = pytest.mark.qemu("riscv32")

host_and_m4 = [pytest.param("host", marks=host_c), pytest.param(M4, marks=arm)]
other_boards = [
    *(pytest.param(board, marks=arm) for board in OTHER_ARM),
    *(pytest.param(board, marks=(arm, pytest.mark.deep)) for board in OTHER_DEEP),
    pytest.param(RISCV, marks=riscv),
    pytest.param(SMALL_RISCV, marks=(riscv, pytest.mark.deep)),
    pytest.param("qemu-riscv32-virt-imc", marks=(riscv, pytest.mark.deep)),
]


def small_first(names: Sequence[str], *large: str) -> list[object]:
    """Parameters: `names`, those that begin with one of `large` with --deep."""
    return [
        pytest.param(name, marks=pytest.mark.deep if name.startswith(large) else ())
        for name in names
    ]


def verified(
    path: Path, board: str, count: int = SAMPLES, **options: object
) -> Verification:
    return verify(compile_for(load_model(path), board, **options), samples=count)


def assert_exact(found: Verification, board: str, count: int) -> None:
    assert (found.board, found.samples, found.mismatches) == (board, count, 0)
    assert not found.is_float
    assert found.max_abs_error == 0
    assert found.reference.startswith(("LiteRT BUILTIN_REF", "TFLM"))


@pytest.mark.sampled(2)
@models
@arm
@pytest.mark.parametrize("model", mlperf_tiny.FILES)
def test_integer_models_are_bit_exact_on_the_m4(
    model: str, model_path: Callable[[str], Path]
):
    assert_exact(verified(model_path(model), M4), M4, SAMPLES)


@models
@host_c
@pytest.mark.parametrize(
    "model", small_first(mlperf_tiny.FILES, "vww", "pretrained", "ad01")
)
def test_integer_models_are_bit_exact_on_the_host(
    model: str, model_path: Callable[[str], Path]
):
    assert_exact(verified(model_path(model), "host"), "host", SAMPLES)


@pytest.mark.sampled(3)
@models
@host_c
@pytest.mark.parametrize("model", small_first(FLOAT, "vww"))
def test_float_models_are_within_the_tolerance_on_the_host(
    model: str, model_path: Callable[[str], Path]
):
    found = verified(model_path(model), "host")
    assert (found.is_float, found.mismatches) == (True, 0)


@pytest.mark.sampled(3)
@models
@arm
@pytest.mark.parametrize("model", small_first(FLOAT, "vww", "pretrained"))
def test_float_models_are_within_the_tolerance_on_the_m4(
    model: str, model_path: Callable[[str], Path], deep: bool
):
    compiled = compile_for(load_model(model_path(model)), M4)
    # Emulated floating point takes seconds a run: by default one random sample.
    samples = generate_samples(
        compiled.module.io.inputs, SAMPLES_DEEP if deep else SAMPLES
    ).samples
    found = verify(compiled, batch=SampleBatch(samples if deep else samples[-1:]))
    assert (found.is_float, found.mismatches) == (True, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=host_c),
        pytest.param(M4, marks=arm),
        *(
            pytest.param(board, marks=(arm, pytest.mark.deep))
            for board in OTHER_ARM + OTHER_DEEP
        ),
        pytest.param(RISCV, marks=(riscv, pytest.mark.deep)),
        pytest.param(SMALL_RISCV, marks=riscv),
    ],
)
def test_the_digits_are_bit_exact_on_every_board(board: str, digits_path: Path):
    assert_exact(verified(digits_path, board), board, SAMPLES)


@pytest.mark.sampled(3)
@arm
@pytest.mark.parametrize("board", SMALL)
def test_the_digits_fit_and_are_bit_exact_on_the_small_boards(
    board: str, digits_path: Path
):
    assert_exact(verified(digits_path, board), board, SAMPLES)


@pytest.mark.sampled(3)
@models
@arm
@pytest.mark.parametrize(
    ("model", "board"),
    [
        (KWS, "microbit"),
        ("str_ww_ref_model.tflite", "stm32vldiscovery"),
        pytest.param(KWS, "stm32vldiscovery", marks=pytest.mark.deep),
        pytest.param("str_ww_ref_model.tflite", "microbit", marks=pytest.mark.deep),
    ],
)
def test_spoken_words_are_bit_exact_on_the_small_boards(
    model: str, board: str, model_path: Callable[[str], Path]
):
    assert_exact(verified(model_path(model), board), board, SAMPLES)


@pytest.mark.sampled(6)
@models
@pytest.mark.parametrize("board", other_boards)
def test_keyword_spotting_is_bit_exact_on_the_other_boards(
    board: str, model_path: Callable[[str], Path]
):
    assert_exact(verified(model_path(KWS), board), board, SAMPLES)


@pytest.mark.sampled(2)
@models
@host_c
@pytest.mark.parametrize("model", [KWS, "ad01_int8.tflite"])
def test_the_other_profile_is_bit_exact_against_its_own_reference(
    model: str, model_path: Callable[[str], Path]
):
    found = verified(model_path(model), "host", numerics="tflm")
    assert_exact(found, "host", SAMPLES)
    assert found.reference.startswith("TFLM")


@models
@arm
def test_the_other_profile_is_bit_exact_on_the_m4_where_the_two_differ(
    model_path: Callable[[str], Path],
):
    assert_exact(
        verified(model_path("ad01_int8.tflite"), M4, numerics="tflm"), M4, SAMPLES
    )


@pytest.mark.sampled(3)
@host_c
@pytest.mark.parametrize(
    "planner", ["greedy_by_size", "greedy_by_conflicts", "hill_climb"]
)
def test_every_planner_is_bit_exact(planner: str, digits_path: Path):
    assert_exact(verified(digits_path, "host", planner=planner), "host", SAMPLES)


@pytest.mark.sampled(6)
@host_c
@pytest.mark.parametrize(
    "options",
    [
        {"io_buffers": "caller"},
        {"preserve_input": True},
        {"inline_asm": False},
        {"optimize": "ram"},
    ],
)
def test_every_option_is_bit_exact(options: dict[str, object], digits_path: Path):
    assert_exact(verified(digits_path, "host", **options), "host", SAMPLES)


@pytest.mark.deep
@models
@pytest.mark.parametrize("board", [*host_and_m4, *other_boards])
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
@pytest.mark.parametrize("model", mlperf_tiny.FILES)
def test_the_whole_grid_is_bit_exact(
    model: str, numerics: str, board: str, model_path: Callable[[str], Path]
):
    found = verified(model_path(model), board, SAMPLES_DEEP, numerics=numerics)
    assert_exact(found, board, SAMPLES_DEEP)


@models
@pytest.mark.deep
@pytest.mark.parametrize(
    "model", ["pretrainedResnet_quant.tflite", "vww_96_int8.tflite"]
)
def test_model_too_large_for_the_smallest_board_is_reported(
    model: str, model_path: Callable[[str], Path]
):
    with pytest.raises(DoesNotFitError) as raised:
        compile_for(load_model(model_path(model)), "stm32vldiscovery")
    (region,) = raised.value.regions
    assert region.need_bytes > region.have_bytes
