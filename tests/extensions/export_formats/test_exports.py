"""Packages for other build systems: built where their tool is here."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.device.process_transport import PtyProcess
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.export.package_export import export_model
from firmwright.flows.export.package_selftest import (
    pseudo_random_sample,
    selftest_sources,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import (
    compute_reference,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import Compilation, bundle

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples/01_digits/digits.tflite"
KEYWORD = ROOT / "examples/02_keyword/keyword.tflite"
Compile = Callable[..., Compilation]
IS_INSTALLED = any(
    entry.value == "firmwright.pytest_plugin"
    for entry in importlib.metadata.entry_points(group="pytest11")
)


def run(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def need(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, not found on PATH")


def cmake(source: Path, build: Path) -> None:
    need("cmake", "make")
    run(
        "cmake",
        "-S",
        source,
        "-B",
        build,
        "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror",
        folder=source,
    )
    run("cmake", "--build", build, folder=source)


@pytest.mark.host_c
def test_cmake_builds_the_library_and_its_example_runs(
    digits: Compilation, tmp_path: Path
):
    export_model(digits, "cmake", tmp_path / "digits")
    cmake(tmp_path / "digits", tmp_path / "build")
    assert "100% tests passed" in run("ctest", folder=tmp_path / "build")


@pytest.mark.qemu
def test_a_header_has_the_stack_that_the_build_measured(
    digits: Compilation, tmp_path: Path
):
    package = export_model(digits, "makefile", tmp_path, measure_stack=True)
    header = (tmp_path / "model" / "digits.h").read_text(encoding="utf-8")
    size_bytes = build_image(digits).stack.size_bytes
    assert f"#define DIGITS_STACK_BYTES {size_bytes}\n" in header
    assert package.stacks == {"digits": f"{size_bytes} bytes, measured"}


@pytest.mark.qemu
def test_make_builds_for_this_machine_and_for_a_chip(
    digits: Compilation, tmp_path: Path
):
    need("make")
    export_model(digits, "makefile", tmp_path)
    run("make", "check", "CFLAGS=-O2 -Wall -Wextra -Werror", folder=tmp_path)
    library = tmp_path / "m4/libdigits.a"
    tools = ["CC=arm-none-eabi-gcc", "AR=arm-none-eabi-ar", "BUILD=m4", "CFLAGS=-O1"]
    for cpu, architecture in (
        ("cortex-m4", "Tag_CPU_arch: v7E-M"),
        ("cortex-m0", "v6S-M"),
    ):
        run("make", *tools, f"TARGET_FLAGS=-mcpu={cpu} -mthumb", folder=tmp_path)
        assert architecture in run(
            "arm-none-eabi-readelf", "-A", library, folder=tmp_path
        )
    again = run("make", *tools, "TARGET_FLAGS=-mcpu=cortex-m0 -mthumb", folder=tmp_path)
    assert "digits.c" not in again  # equal flags compile nothing


@pytest.mark.host_c
def test_a_compiler_with_a_small_int_is_refused(digits: Compilation, tmp_path: Path):
    digits.save(tmp_path)
    compilers = {"clang": "--target=avr -ffreestanding", "avr-gcc": "-mmcu=atmega328p"}
    for compiler, options in compilers.items():
        if compiler == "avr-gcc" and shutil.which(compiler) is None:
            continue
        command = [
            compiler,
            *options.split(),
            "-fsyntax-only",
            "-std=c99",
            "model/digits.c",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode != 0
        assert "The model needs an int of at least 32 bits" in done.stderr


@pytest.mark.host_c
def test_an_arduino_library_has_its_properties_and_its_sketch_compiles(
    digits: Compilation, tmp_path: Path
):
    need("g++")
    export_model(digits, "arduino", tmp_path)
    lines = (tmp_path / "library.properties").read_text(encoding="utf-8").splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    wanted = "name version author maintainer sentence paragraph category url architectures includes"
    assert list(properties) == wanted.split()
    assert {"*", "avr", "megaavr"}.isdisjoint(properties["architectures"].split(","))
    assert (tmp_path / "src" / properties["includes"]).is_file()
    core = tmp_path / "Arduino.h"
    core.write_text(
        "#include <stdint.h>\nextern struct Port { void begin(long); void print(const char *);\n"
        "void print(long); void println(); void println(long); } Serial;\n"
        "void delay(unsigned long);\n",
        encoding="utf-8",
    )
    sketch = tmp_path / "examples/digits_run/digits_run.ino"
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Isrc", "-include", core]
    run("g++", *flags, "-x", "c++", sketch, folder=tmp_path)


PLAYED = {
    "zephyr": """
function(zephyr_include_directories folder)
  include_directories(${CMAKE_CURRENT_SOURCE_DIR}/${folder})
endfunction()
function(zephyr_library_named name)
  add_library(${name} STATIC)
  set(ZEPHYR_CURRENT_LIBRARY ${name} PARENT_SCOPE)
endfunction()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
set(CONFIG_FIRMWRIGHT_DIGITS y)
file(WRITE ${CMAKE_BINARY_DIR}/zephyr/sys/printk.h "void printk(const char *, ...);")
include_directories(${CMAKE_BINARY_DIR})
""",
    "esp-idf": """
function(idf_component_register)
  cmake_parse_arguments(given "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  add_library(component STATIC ${given_SRCS})
  target_include_directories(component PUBLIC ${given_INCLUDE_DIRS})
  set(COMPONENT_LIB component PARENT_SCOPE)
endfunction()
""",
}
SAMPLES = {"zephyr": "samples/digits/src/main.c", "esp-idf": "examples/run/main/main.c"}


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize("form", PLAYED)
def test_exported_module_builds_with_simulated_commands(
    form: str, digits: Compilation, tmp_path: Path
):
    export_model(digits, form, tmp_path / "digits")
    library = "firmwright_digits" if form == "zephyr" else "component"
    text = (
        "cmake_minimum_required(VERSION 3.20)\nproject(outer C)\n"
        f"{PLAYED[form]}add_subdirectory(digits)\n"
        f"add_library(sample OBJECT digits/{SAMPLES[form]})\n"
        f"target_link_libraries(sample PRIVATE {library})\n"
        "target_include_directories(sample PRIVATE digits/src)\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(text, encoding="utf-8")
    cmake(tmp_path, tmp_path / "build")
    layout = {
        "zephyr": (
            "zephyr/module.yml",
            "Kconfig",
            "samples/digits/prj.conf",
            "samples/digits/sample.yaml",
            "samples/digits/CMakeLists.txt",
        ),
        "esp-idf": (
            "idf_component.yml",
            "examples/run/CMakeLists.txt",
            "examples/run/main/CMakeLists.txt",
            "examples/run/main/idf_component.yml",
        ),
    }
    assert all((tmp_path / "digits" / path).is_file() for path in layout[form])


@pytest.mark.qemu
def test_package_tests_run_on_a_board_and_detect_wrong_outputs(
    digits: Compilation, tmp_path: Path
):
    export_model(digits, "cmake", tmp_path, with_tests=True)
    file = tmp_path / "tests" / "known_answers.npz"
    answers = dict(np.load(file))
    answers["out/digit"][3, 0, 0] ^= (
        1  # neither of the two that the second test looks at
    )
    np.savez(file, **answers)
    plugin = () if IS_INSTALLED else ("-p", "firmwright.pytest_plugin")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugin,
        "--fw-board",
        "mps2-an386",
    ]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "toolchain")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "Mismatched elements: 1 / 10" in done.stdout


@pytest.mark.deep
@pytest.mark.host_c
def test_tests_of_a_package_detect_a_wrong_weight_in_its_c(
    digits: Compilation, tmp_path: Path
):
    need("make")
    export_model(digits, "makefile", tmp_path, with_tests=True)
    assert "digits: self-test passed" in run("make", "check", folder=tmp_path)
    file = tmp_path / "model" / "digits_weights.h"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("-18446,", "-28446,"), encoding="utf-8")
    made = subprocess.run(
        ["make", "check"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode != 0
    assert "digits: self-test failed" in made.stdout
    plugin = () if IS_INSTALLED else ("-p", "firmwright.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "-k", "known_answers"]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "toolchain")}
    done = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True
    )
    assert "Mismatched elements" in done.stdout, done.stdout + done.stderr


def test_known_answers_in_c_are_those_of_the_reference_runtime(digits: Compilation):
    io = digits.module.io
    text = str(selftest_sources(digits, ()).files["model/digits_selftest.c"])
    seeds, crcs = (
        re.findall(r"\{ (\d+)u, (\d+)u \}", text),
        re.findall(r"0x(\w{8})u[, ]", text),
    )
    samples = [pseudo_random_sample(io.inputs, int(seed)) for seed in seeds[0]]
    outputs = compute_reference(digits, samples).outputs
    assert [f"{zlib.crc32(found['digit'].tobytes()):08x}" for found in outputs] == crcs[
        -2:
    ]
    assert all(np.unique(found["digit"]).size >= 4 for found in outputs)


@pytest.mark.host_c
@pytest.mark.deep
def test_a_package_runs_its_tests_on_firmware_behind_a_port(
    digits: Compilation, tmp_path: Path
):
    export_model(digits, "cmake", tmp_path, with_tests=True)
    model = load_model(tmp_path / "tests" / "digits.tflite")
    image = build_image(compile_for(model, "host"))
    plugin = () if IS_INSTALLED else ("-p", "firmwright.pytest_plugin")
    path = {**os.environ, "PYTHONPATH": str(ROOT / "toolchain")}
    with PtyProcess(lambda _: [image.elf]) as terminal:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *plugin,
            "--fw-port",
            terminal.name,
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def printed_outputs(folder: Path) -> dict[str, list[int]]:
    """Build and run the package's example; return each output's printed values."""
    warned = "-O1 -Wall -Wextra -Wconversion -Wshadow -Wcast-align -Werror"
    text = run("make", "-s", "check", f"CFLAGS={warned}", folder=folder)
    assert "status 0" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    return {name: [int(value) for value in values] for name, *values in rows}


def expected_outputs(compiled: Compilation) -> dict[str, list[int]]:
    """Return the first values of the reference's outputs for inputs of zeros."""
    samples = generate_samples(compiled.module.io.inputs, 1).samples
    (found,) = run_numpy_reference(
        compiled.imported,
        [{name: np.zeros_like(value) for name, value in samples[0].items()}],
    ).outputs
    fields = {tensor.name: tensor.buffer for tensor in compiled.module.io.outputs}
    return {
        fields[name]: value.reshape(-1)[:10].tolist() for name, value in found.items()
    }


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize(
    "options",
    [
        {"emit_probe_callback": True, "emit_descriptor": True},
        {"io_buffers": "caller", "link_params": False, "stream_input_rows": True},
        {"const_pools": (PoolInfo("wide", access="ro", scope="async"),)},
        *(
            pytest.param({"const_pools": (pool,), **more}, marks=pytest.mark.deep)
            for scope in ("global", "external", "port")
            for pool in [PoolInfo("wide", access="ro", scope=scope)]
            for more in ({}, {"io_buffers": "caller"}, {"stream_input_rows": True})
        ),
    ],
    ids=str,
)
def test_examples_of_packages_follow_placement_options(
    options: dict[str, Any], compiled: Compile, tmp_path: Path
):
    need("make")
    model = compiled("digits", **options)
    export_model(model, "makefile", tmp_path)
    assert printed_outputs(tmp_path) == expected_outputs(model)


@pytest.mark.host_c
@pytest.mark.parametrize(
    "concurrent", [False, pytest.param(True, marks=pytest.mark.deep)]
)
def test_a_package_of_several_models_has_one_plan(concurrent: bool, tmp_path: Path):
    need("make")
    models = [
        compile_for(load_model(path), numerics="tflm") for path in (DIGITS, KEYWORD)
    ]
    both = bundle(models, concurrent=concurrent)
    folder = export_model(both, "makefile", tmp_path / "both").path
    expected = expected_outputs(models[0]) | expected_outputs(models[1])
    assert printed_outputs(folder) == expected
    example = (folder / "example/main.c").read_text(encoding="utf-8")
    assert ("static union" in example) is not concurrent
    with pytest.raises(
        UsageError, match="--format mlf accepts a single model; 2 were given"
    ):
        export_model(both, "mlf", tmp_path / "both.tar")


@pytest.mark.deep
@pytest.mark.qemu
def test_the_guide_lists_the_library_functions_of_soft_and_hard_float(
    compiled: Compile, tmp_path: Path
):
    guide = (ROOT / "docs/firmware.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1:4]
        for line in guide.splitlines()
        if line.startswith("| `-mcpu")
    ]
    floats = load_model(DIGITS.with_name("digits_float.tflite"))
    for board, (flags, *cells) in zip(("microbit", "mps2-an386"), rows, strict=True):
        models = {"digits": compiled("digits", board=board)}
        models["digits_float"] = compile_for(floats, board)
        for (name, model), cell in zip(models.items(), cells, strict=True):
            folder = tmp_path / board / name
            model.tree.write(folder)
            words = [
                *flags.strip(" `").split(),
                "-mthumb",
                "-O2",
                "-ffp-contract=off",
                "-c",
            ]
            run(
                "arm-none-eabi-gcc",
                *words,
                f"model/{name}.c",
                "-o",
                "model.o",
                folder=folder,
            )
            symbols = run("arm-none-eabi-nm", "-u", "model.o", folder=folder).split()[
                1::2
            ]
            assert symbols == re.findall("`(.+?)`", cell), (board, name)


@pytest.mark.deep
@pytest.mark.qemu
def test_cmake_links_libm_for_a_chip(tmp_path: Path):
    need("cmake", "make")
    model = compile_for(
        load_model(DIGITS.with_name("digits_float.tflite")), "mps2-an386"
    )
    export_model(model, "cmake", tmp_path / "net")
    (tmp_path / "main.c").write_text(
        '#include "digits_float.h"\nint main(void) { return digits_float_run(0, 0, 0); }\n'
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(outer C)\nadd_subdirectory(net)\n"
        "add_executable(main main.c)\ntarget_link_libraries(main firmwright::digits_float)\n"
    )
    flags = (
        "-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard --specs=nosys.specs"
    )
    chip = ["-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc"]
    run(
        "cmake",
        "-S",
        ".",
        "-B",
        "build",
        *chip,
        f"-DCMAKE_C_FLAGS={flags}",
        folder=tmp_path,
    )
    run("cmake", "--build", "build", folder=tmp_path)
    assert "expf" in run("arm-none-eabi-nm", tmp_path / "build/main", folder=tmp_path)
