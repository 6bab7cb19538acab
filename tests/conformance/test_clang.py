"""Kernels and models compiled by clang: no warnings, and results equal to gcc's.

Only the model's C is compiled by clang, with the flags of the project that `compile`
writes, as in a user's clang build. Runtime and linker are those of the toolchain.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firmwright.cli.main import main
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.measure.profiling import profile
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation, Options, compile_model, load_module
from tests.conformance.board_runner import failures_on_board
from tests.conformance.core_families import BOARDS
from tests.conformance.expected_results import run_oracles
from tests.conformance.kernel_batches import make_batch
from tests.conformance.random_layers import layer

LAYERS = range(0, 20)
PROFILES = ("litert", "tflm")


@pytest.fixture(autouse=True)
def _clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("needs clang, not found on PATH")


def on_boards(deep: Sequence[str] = ()) -> list[object]:
    return [
        pytest.param(
            name,
            marks=[
                pytest.mark.qemu(*(["riscv32"] if "riscv" in name else [])),
                *[pytest.mark.deep] * (name in deep),
            ],
        )
        for name in BOARDS
        if not name.endswith("-v")  # needs a newer clang
    ]


@pytest.mark.deep
@pytest.mark.parametrize("board", on_boards())
def test_random_layers_built_by_clang_match_the_reference_runtimes(
    board: str, tmp_path: Path
) -> None:
    cases = [layer(n) for n in LAYERS]
    batch = make_batch(cases, (BOARDS[board],), PROFILES)
    expected = run_oracles(cases, PROFILES, (0, 1))
    found = failures_on_board(batch, expected, (0, 1), board, tmp_path, "clang")
    assert list(found) == []


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.parametrize("board", on_boards())
def test_model_built_by_clang_matches_the_reference_runtime(
    board: str, model_path: Callable[[str], Path]
) -> None:
    file = model_path("kws_ref_model.tflite")
    options = Options(board=board, optimize="speed")
    compiled = compile_model(load_module(file), options, source=file.read_bytes())

    def by_clang(asked: Compilation) -> ModelSession:
        return open_session(asked, image=build_image(asked, compiler="clang"))

    found = verify(compiled, samples=2, open_with=by_clang)
    assert (found.samples, found.mismatches) == (2, 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("board", on_boards(deep=("mps2-an385", "mps2-an505")))
def test_bundled_model_built_by_clang_matches_the_reference_runtime(
    board: str, digits_path: Path
) -> None:
    options = Options(board=board, optimize="speed")
    compiled = compile_model(
        load_module(digits_path), options, source=digits_path.read_bytes()
    )
    image = build_image(compiled, compiler="clang")

    def by_clang(asked: Compilation) -> ModelSession:
        return open_session(asked, image=image)

    assert (
        b"clang version"
        in (image.directory / "build/release/model/digits.o").read_bytes()
    )
    found = verify(compiled, samples=2, open_with=by_clang)
    assert (found.samples, found.mismatches) == (2, 0)


@pytest.mark.qemu
@pytest.mark.deep
def test_run_commands_accept_the_compiler_option(digits_path: Path) -> None:
    chosen = ["--board", "mps2-an386", "--compiler", "clang", "--json"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main(["profile", str(digits_path), *chosen])
    assert status == 0
    by_clang = json.loads(said.getvalue())["instructions"]
    by_gcc = profile(
        compile_model(load_module(digits_path), Options(board="mps2-an386"))
    ).total
    assert by_clang != by_gcc
