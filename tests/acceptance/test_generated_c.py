"""The C of whole models: reproducible, no warning, nothing undefined, on its own."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.build.compiler_flags import WARNINGS
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation

Compile = Callable[..., Compilation]
ModelFile = Callable[[str], Path]
Run = Callable[..., str]

INT8 = ("ad", "ic", "kws", "vww", "ww")
FLOAT = ("ad_float", "ic_float", "kws_float", "vww_float")
M4 = "cortex-m -mcpu=cortex-m4"
SANITIZED = "-fsanitize=address,undefined -fno-sanitize-recover=all"
DIGEST = """
import hashlib, sys
from firmwright.flows.model.model import load_model
from firmwright.ir.printer import print_module
from firmwright.pipeline import Options, compile_model

model = load_model(sys.argv[1])
digest = hashlib.sha256()
for board in ("host", "mps2-an386", "qemu-riscv32-virt"):
    done = compile_model(model.module, Options(board=board))
    digest.update(print_module(done.module).encode())
    for path, content in done.project().files.items():
        digest.update(path.encode() + (content.encode() if isinstance(content, str) else content))
print(digest.hexdigest())
"""
"""Prints one hash of everything that compiling for three boards writes."""


def each(names: tuple[str, ...], default: tuple[str, ...]) -> list[object]:
    """Parameters: the models of `default` always, the rest of `names` with --deep."""
    return [
        pytest.param(
            name,
            marks=[pytest.mark.models] * (name != "digits")
            + [pytest.mark.deep] * (name not in default),
        )
        for name in ("digits", *names)
    ]


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("name", each(INT8, ("kws", "ad", "ww")))
def test_schedules_of_the_m4_are_bit_exact_on_the_host(
    name: str, compiled: Compile, quickly: Callable[[Compilation], ModelSession]
) -> None:
    done = compiled(name, board="host", target=M4)
    assert (
        sum(row["schedule"].startswith("dsp.") for row in done.metadata["operators"])
        >= 3
    )
    found = verify(done, samples=4, open_with=quickly)
    assert found.reference.startswith("LiteRT")
    assert (found.samples, found.mismatches) == (4, 0)


@pytest.mark.parametrize("name", each(INT8 + FLOAT, ("digits",)))
def test_two_processes_write_the_same_bytes(
    name: str, model_file: ModelFile, python: Run
) -> None:
    words = ["-c", DIGEST, model_file(name)]
    digests = [python(words, {"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    assert len(digests[0].split()) == 1
    assert digests[0] == digests[1]


@pytest.mark.host_c
@pytest.mark.parametrize("target", [pytest.param("host", marks=pytest.mark.deep), M4])
@pytest.mark.parametrize("name", each(INT8 + FLOAT, ("digits",)))
def test_a_run_is_clean_under_the_sanitizers(
    name: str, target: str, compiled: Compile, tmp_path: Path
) -> None:
    done = compiled(name, board="host", target=target)
    done.save(tmp_path)
    scons(tmp_path, f"extra={SANITIZED}")
    elf = tmp_path / "build" / "release" / "firmware.elf"
    assert b"__asan_" in elf.read_bytes()
    session = Session(
        open_transport(done.board, elf), model_id=bytes.fromhex(done.model_id)
    )
    with ModelSession(done, session, None) as running:
        batch = generate_samples(done.module.io.inputs, 4)
        assert len(running.run_all(batch.samples)) == 4


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("target", ["host", M4])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", each(INT8 + FLOAT, ("digits", "kws")))
def test_no_compiler_warns(
    name: str, compiler: str, target: str, compiled: Compile, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}, not found on PATH")
    done = compiled(name, board="host", target=target)
    done.tree.write(tmp_path)
    for file in sorted((tmp_path / "model").glob("*.c")):
        command = [
            compiler,
            "-std=c99",
            "-O2",
            *WARNINGS,
            "-c",
            str(file),
            "-o",
            os.devnull,
        ]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize("name", each(INT8, ("digits", "kws")))
def test_kernels_say_where_an_output_overlaps_an_input(
    name: str, compiled: Compile
) -> None:
    """The comments are compared with the offsets and the calls in the same text."""
    done = compiled(name, board="mps2-an386")
    text = str(done.tree.files[f"model/{done.module.name}.c"])
    plan = {
        buffer: (int(offset), int(size))
        for buffer, offset, size in re.findall(
            r"_IN_SRAM\((\w+), +(\d+), +(\d+), ", text
        )
    }
    pointers = re.findall(
        r"\*(\w+) =\s*\(int8_t \*\)\(sram\s*\+ \w+?_OFFSET_(\w+)\);", text
    )
    places = {pointer: plan[buffer] for pointer, buffer in pointers}
    found = 0
    for kernel, x, y in re.findall(
        r"_PROBE\(\d+, 0, .*\n +(\w+)\((\w+),\s+(\w+)", text
    ):
        if x not in places or y not in places:
            continue
        (x_at, x_size), (y_at, y_size) = places[x], places[y]
        is_apart = y_at >= x_at + x_size or x_at >= y_at + y_size
        distance = f"{abs(y_at - x_at)} bytes {'before' if y_at < x_at else 'after'} it"
        expected = distance if y_at != x_at else "at the same address"
        comment = text[: text.index(f"_KERNEL void {kernel}(")].rpartition("/*")[2]
        assert (expected in comment.replace("\n *  ", "")) != is_apart, (
            kernel,
            comment,
        )
        found += not is_apart
    assert found > 3


def test_the_softmax_of_ten_classes_is_three_loops(compiled: Compile) -> None:
    text = str(compiled("digits", board="mps2-an386").tree.files["model/digits.c"])
    _, _, body = text.partition("_KERNEL void digits_softmax_9(")
    body = body[: body.index("\n}")]
    assert (body.count("for ("), body.count("exponentials[")) == (3, 2)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("model", "board"),
    [
        pytest.param("digits", "microbit", marks=pytest.mark.deep),
        ("digits", "mps2-an386"),
        pytest.param("digits", "mps2-an505", marks=pytest.mark.deep),
        ("kws_float", "mps2-an386"),
    ],
)
def test_assembly_compiles_with_a_frame_pointer(
    model: str, board: str, compiled: Compile, tmp_path: Path
) -> None:
    done = compiled(model, board=board)
    done.tree.write(tmp_path)
    name = done.module.name
    text = str(done.tree.files[f"model/{name}.c"])
    own = [
        flag for line in re.findall(r"gcc flags:(.*)", text) for flag in line.split()
    ]
    without_assembly = [f"-D{name.upper()}_NO_INLINE_ASM"]
    assert "-fomit-frame-pointer" in own
    assert "optimize(" not in text
    for fallback in (own, without_assembly):
        command = [
            "arm-none-eabi-gcc",
            *done.board.cpu_flags,
            "-O2",
            "-fno-omit-frame-pointer",
        ]
        command += ["-std=c99", *WARNINGS, *fallback]
        command += ["-c", f"model/{name}.c", "-o", os.devnull]
        subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
    ],
)
def test_a_saved_project_builds_by_scons_alone(
    board: str, compiled: Compile, tmp_path: Path
) -> None:
    compiled("digits", board=board).save(tmp_path)
    scons(tmp_path)
    assert (tmp_path / "build" / "release" / "firmware.elf").is_file()


def scons(folder: Path, *words: str) -> None:
    """SCons in a Python that cannot import the project: only SCons is on its path.

    -I hides PYTHONPATH and the folder, -S the site packages, where the project may be
    installed.
    """
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
    }
    package = importlib.util.find_spec("SCons")
    assert package is not None
    assert package.origin is not None
    alone = folder / "scons-alone"
    alone.mkdir(exist_ok=True)
    (alone / "SCons").symlink_to(Path(package.origin).parent)
    path = f"import sys; sys.path.insert(0, {str(alone)!r}); "
    seen = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{path}import firmwright"],
        env=clean,
        capture_output=True,
        check=False,
    )
    assert seen.returncode != 0, (
        "the project can be imported here: nothing would be shown"
    )
    main = f"{path}from SCons.Script import main; sys.argv[0] = 'scons'; main()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", main, "-Q", *words],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
