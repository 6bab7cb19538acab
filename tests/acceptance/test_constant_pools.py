"""Constants outside of the image: bit-exact results, and an image without them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import Image, PreloadedMemory
from firmwright.base.errors import DeviceError, UsageError
from firmwright.base.resources import boards_dir
from firmwright.build.compiler_flags import WARNINGS
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import (
    ModelSession,
    constant_memory_files,
    open_session,
)
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import Compilation

Compile = Callable[..., Compilation]

SCOPES = ("global", "external", "port", "async")
SEPARATE = SCOPES[1:]
RAM_BYTES = 40 * 1024
CHUNK_BYTES = 32
M4 = "mps2-an386"
SMALL = """
[[memory]]
name = "code"
start = 0x0000_0000
size = 0x0040_0000
kind = "flash"

[[memory]]
name = "sram"
start = 0x2000_0000
size = 0xA000
kind = "ram"
pool = "sram"

[[memory]]
name = "psram"
start = 0x2100_0000
size = 0x0100_0000
kind = "ram"
const_pool = "psram"
"""


def deep_but(*kept: str) -> list[object]:
    """The ways to constants, all but those `kept` with --deep only."""
    return [
        pytest.param(scope, marks=[] if scope in kept else [pytest.mark.deep])
        for scope in SCOPES
    ]


def psram(scope: str) -> tuple[PoolInfo, ...]:
    return (PoolInfo("psram", access="ro", scope=scope),)


@pytest.fixture
def small_board(tmp_path: Path) -> tuple[Path, ...]:
    """`small`: the M4 board with 40 KiB of RAM, of which 1.5 KiB are the stack."""
    text = (boards_dir() / M4 / "board.toml").read_text(encoding="utf-8")
    text = text.replace(f'name = "{M4}"', 'name = "small"', 1)
    text = text.replace("stack = 4096", "stack = 1536\nruntime = 640")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "board.toml").write_text(text + SMALL, encoding="utf-8")
    return (tmp_path,)


def loaded_bytes(elf: Path) -> bytes:
    """The bytes of all segments that a loader puts into memory (32-bit ELF)."""
    data = elf.read_bytes()
    (table,), (size, count) = (
        struct.unpack_from("<I", data, 28),
        struct.unpack_from("<HH", data, 42),
    )
    found = []
    for at in range(table, table + size * count, size):
        kind, offset, _, _, file_bytes = struct.unpack_from("<IIIII", data, at)
        if kind == 1:
            found.append(data[offset : offset + file_bytes])
    return b"".join(found)


def chunks(done: Compilation) -> list[bytes]:
    """Pieces of the constants, each long and mixed enough not to occur by chance."""
    found = [
        constant.data[start : start + CHUNK_BYTES]
        for constant in done.module.constants.values()
        for start in range(0, constant.size_bytes - CHUNK_BYTES + 1, CHUNK_BYTES)
    ]
    return [chunk for chunk in found if len(set(chunk)) > 8]


def share_loaded(done: Compilation, image: Image) -> float:
    """Return the share of the constants' chunks in the loaded bytes."""
    loaded, pieces = loaded_bytes(image.elf), chunks(done)
    assert len(pieces) * CHUNK_BYTES > done.metadata["constants_bytes"] // 2
    return sum(piece in loaded for piece in pieces) / len(pieces)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(
    "numerics", ["litert", pytest.param("tflm", marks=pytest.mark.deep)]
)
@pytest.mark.parametrize(
    "scope", ["port", pytest.param("async", marks=pytest.mark.deep)]
)
@pytest.mark.parametrize(
    ("model", "least_bytes"),
    [("kws", 20_000), pytest.param("vww", 38_000, marks=pytest.mark.deep)],
)
def test_a_model_runs_in_40_kib_with_weights_read_by_a_function(
    model: str,
    least_bytes: int,
    scope: str,
    numerics: str,
    compiled: Compile,
    small_board: tuple[Path, ...],
) -> None:
    done = compiled(
        model,
        board="small",
        board_dirs=small_board,
        const_pools=psram(scope),
        numerics=numerics,
    )
    image = build_image(done)
    assert image.sizes.ram_bytes <= RAM_BYTES
    assert image.firmware_stack.size_bytes < 1536 - 512
    found = verify(done, samples=3)
    assert found.reference.startswith("LiteRT" if numerics == "litert" else "TFLM")
    assert (found.samples, found.mismatches) == (3, 0)
    assert share_loaded(done, image) == 0.0
    (block,) = constant_memory_files(done, image)
    assert block.file.stat().st_size > least_bytes


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
@pytest.mark.parametrize("scope", ["global", "external"])
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
def test_vww_runs_with_its_weights_in_other_addressable_memory(
    scope: str, numerics: str, compiled: Compile
) -> None:
    done = compiled("vww", board=M4, const_pools=psram(scope), numerics=numerics)
    found = verify(done, samples=3)
    assert (found.samples, found.mismatches) == (3, 0)


@pytest.mark.qemu
@pytest.mark.parametrize("scope", deep_but("port"))
def test_digits_is_bit_exact_for_every_constant_pool(
    scope: str, compiled: Compile
) -> None:
    done = compiled("digits", board=M4, const_pools=psram(scope))
    image = build_image(done)
    assert verify(done, samples=3).mismatches == 0
    share, folded_bytes = share_loaded(done, image), 16
    if scope == "global":
        assert share > 0.98
        folded_bytes += 40  # the compiler folds the last bias
    else:
        assert share == 0.0
    used = {region.name: region.used_bytes for region in image.sizes.regions}["psram"]
    image_bytes = done.metadata["pools"]["psram"]["bytes"]
    assert (
        used == 0 if scope in ("port", "async") else used >= image_bytes - folded_bytes
    )
    assert image.bin is not None
    assert image.bin.stat().st_size < 65_536, (
        "external constants are not part of the .bin"
    )


@pytest.mark.qemu
@pytest.mark.deep
def test_streamed_model_reads_its_constants(compiled: Compile) -> None:
    done = compiled(
        "digits", board=M4, const_pools=psram("port"), stream_input_rows=True
    )
    assert verify(done, samples=3).mismatches == 0
    with pytest.raises(
        UsageError,
        match="cannot be loaded asynchronously while the caller provides rows",
    ):
        compiled("digits", board=M4, const_pools=psram("async"), stream_input_rows=True)


@pytest.mark.deep
@pytest.mark.qemu
def test_profile_image_reads_its_constants(compiled: Compile) -> None:
    done = compiled("digits", board=M4, const_pools=psram("port"))
    with open_session(done, variant="profile") as session:
        (sample,) = generate_samples(done.module.io.inputs, 1).samples
        session.run_all([sample])
        calls = [row.calls for row in session.device.profile()]
    assert sum(calls) == len(done.metadata["operators"])  # views have no calls


@pytest.mark.host_c
@pytest.mark.parametrize("scope", deep_but("port"))
def test_the_host_reads_constants_from_a_file(scope: str, compiled: Compile) -> None:
    done = compiled("digits", board="host", const_pools=psram(scope))
    assert verify(done, samples=3).mismatches == 0


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("scope", SEPARATE)
def test_library_tolerates_late_asynchronous_reads(
    scope: str, compiled: Compile, quickly: Callable[..., object]
) -> None:
    done = compiled("digits", board="host", const_pools=psram(scope))
    assert verify(done, samples=3, open_with=quickly).mismatches == 0  # type: ignore[arg-type]  # a fixture


@pytest.mark.host_c
def test_run_fails_if_constants_cannot_be_read(
    compiled: Compile, tmp_path: Path
) -> None:
    done = compiled("digits", board="host", const_pools=psram("port"))
    image = build_image(done, directory=tmp_path)
    (block,) = constant_memory_files(done, image)
    block.file.write_bytes(block.file.read_bytes()[:1000])
    (sample,) = generate_samples(done.module.io.inputs, 1).samples
    with (
        open_session(done, image=image) as session,
        pytest.raises(DeviceError, match="-4"),
    ):
        session.run_all([sample])


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("scope", SEPARATE)
def test_external_constants_cause_no_compiler_warnings(
    compiler: str, scope: str, compiled: Compile, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}, not found on PATH")
    compiled("digits", board=M4, const_pools=psram(scope)).tree.write(tmp_path)
    command = [
        compiler,
        "-std=c99",
        "-O1",
        *WARNINGS,
        "-c",
        "model/digits.c",
        "-o",
        os.devnull,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.parametrize("scope", SEPARATE)
def test_external_constants_are_clean_under_sanitizers(
    scope: str, compiled: Compile, tmp_path: Path
) -> None:
    done = compiled(
        "digits",
        board="host",
        target="cortex-m -mcpu=cortex-m4",
        const_pools=psram(scope),
    )
    done.save(tmp_path)
    extra = "extra=-fsanitize=address,undefined -fno-sanitize-recover=all"
    command = [sys.executable, "-m", "SCons", "-Q", extra]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    elf = tmp_path / "build" / "release" / "firmware.elf"
    assert b"__asan_" in elf.read_bytes()
    file = tmp_path / "model" / "digits_psram.bin"
    loads = (PreloadedMemory(file, 0),)
    session = Session(
        open_transport(done.board, elf, loads=loads),
        model_id=bytes.fromhex(done.model_id),
    )
    with ModelSession(done, session, None) as running:
        batch = generate_samples(done.module.io.inputs, 3)
        reference = run_numpy_reference(done.imported, batch.samples).outputs
        for ours, theirs in zip(running.run_all(batch.samples), reference, strict=True):
            np.testing.assert_array_equal(ours["digit"], theirs["digit"])


def test_unknown_pool_of_the_board_is_refused(compiled: Compile) -> None:
    with pytest.raises(UsageError) as caught:
        compiled("digits", board=M4, const_pools=(PoolInfo("flash2", access="ro"),))
    assert str(caught.value) == (
        "board mps2-an386 has no pool for constants flash2. Try: one of code, psram, or "
        "--const-pool flash2=BYTES@ADDRESS, or a board file of which a [[memory]] has "
        "const_pool = 'flash2'."
    )


def test_program_memory_cannot_be_read_by_a_function(compiled: Compile) -> None:
    with pytest.raises(UsageError, match=r"code is the program memory of board"):
        compiled(
            "digits",
            board=M4,
            const_pools=(PoolInfo("code", access="ro", scope="port"),),
        )


def test_function_reads_cannot_be_access_checked(compiled: Compile) -> None:
    done = compiled("digits", board="host", const_pools=psram("port"))
    with pytest.raises(
        UsageError, match="memory that is filled by a function cannot be checked"
    ):
        open_checked_session(done)


def test_unlinked_constants_are_in_no_pool(compiled: Compile) -> None:
    with pytest.raises(UsageError, match="leaves no constant for --const-pool"):
        compiled("digits", board=M4, const_pools=psram("port"), link_params=False)
