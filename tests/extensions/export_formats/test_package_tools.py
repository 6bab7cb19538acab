"""Packages as the tools and schemas of their build systems see them.

Needs `pio` (platformio) and `compote` (idf-component-manager) from PyPI,
arduino-builder and xmllint from Debian; CMSIS_PACK_SPEC_PATH names a copy of
Open-CMSIS-Pack-Spec.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.package.export_input import PackageMetadata
from firmwright.pipeline import Bundle, bundle

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCHEMA = Path(os.environ.get("CMSIS_PACK_SPEC_PATH", "-")) / "schema/PACK.xsd"
FACTS = PackageMetadata(
    name="sensing",
    version="1.4.0",
    maintainer="Ada & Co <ml@ada.example>",
    url="https://ada.example/sensing?a=1&b=2",
)
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def models() -> Bundle:
    files = ("01_digits/digits.tflite", "02_keyword/keyword.tflite")
    parts = [load_model(EXAMPLES / file) for file in files]
    return bundle([compile_for(part, "mps2-an386", numerics="tflm") for part in parts])


def run(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}, not found on PATH")
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_platformio_packs_the_library(models: Bundle, tmp_path: Path) -> None:
    export_model(models, "platformio", tmp_path / "sensing", metadata=FACTS)
    run(
        "pio",
        "pkg",
        "pack",
        "-o",
        tmp_path / "pack.tar.gz",
        folder=tmp_path / "sensing",
    )
    assert (tmp_path / "pack.tar.gz").stat().st_size > 10_000


def test_the_component_manager_packs_the_component(
    models: Bundle, tmp_path: Path
) -> None:
    export_model(models, "esp-idf", tmp_path / "sensing", metadata=FACTS)
    run("compote", "manifest", "lint", folder=tmp_path / "sensing")
    run(
        "compote", "component", "pack", "--name", "sensing", folder=tmp_path / "sensing"
    )
    assert (tmp_path / "sensing/dist/sensing_1.4.0.tgz").stat().st_size > 10_000


@pytest.mark.skipif(
    not SCHEMA.is_file(), reason="CMSIS_PACK_SPEC_PATH names no copy of the schema"
)
def test_the_pack_follows_the_schema(models: Bundle, tmp_path: Path) -> None:
    file = export_model(
        models, "cmsis-pack", tmp_path / "sensing.pack", metadata=FACTS
    ).path
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    run(
        "xmllint", "--noout", "--schema", SCHEMA, "Ada-Co.sensing.pdsc", folder=tmp_path
    )


PLATFORM = """
name=Stand-in
version=1.0.0
tool={tools}/arm-none-eabi-
flags=-mcpu=cortex-m4 -mthumb -Os -Wall -Wextra -Werror {{includes}}
recipe.c.o.pattern="{{tool}}gcc" -c {{flags}} "{{source_file}}" -o "{{object_file}}"
recipe.cpp.o.pattern="{{tool}}g++" -c -fno-exceptions {{flags}} "{{source_file}}" -o \
"{{object_file}}"
recipe.ar.pattern="{{tool}}ar" rcs "{{archive_file_path}}" "{{object_file}}"
recipe.c.combine.pattern="{{tool}}gcc" -mcpu=cortex-m4 -mthumb --specs=nosys.specs -o \
"{{build.path}}/sketch.elf" {{object_files}} "{{build.path}}/{{archive_file}}" -lm
recipe.preproc.macros="{{tool}}g++" -E -CC -x c++ {{flags}} "{{source_file}}" -o \
"{{preprocessed_file_path}}"
preproc.includes.flags=-w -x c++ -M -MG -MP
recipe.preproc.includes="{{tool}}g++" {{flags}} {{preproc.includes.flags}} "{{source_file}}"
"""
CORE = """
#include <stdint.h>
#ifdef __cplusplus
struct Port {
    void begin(long) {} void print(const char *) {} void print(long) {}
    void println() {} void println(long) {}
};
static Port Serial __attribute__((unused));
static inline void delay(unsigned long) {}
#endif
void setup(void);
void loop(void);
"""
"""A stand-in for an Arduino core: no real one of an Arm board is in Debian."""


def test_arduino_builder_finds_the_library_and_builds_its_sketch(
    models: Bundle, tmp_path: Path
) -> None:
    compiler = shutil.which("arm-none-eabi-g++")
    if compiler is None:
        pytest.skip("needs arm-none-eabi-g++, not found on PATH")
    platform = tmp_path / "hardware/stand-in/samd"
    core = platform / "cores/arduino"
    core.mkdir(parents=True)
    (platform / "boards.txt").write_text(
        "m4.name=M4\nm4.build.core=arduino\n", encoding="utf-8"
    )
    (platform / "platform.txt").write_text(
        PLATFORM.format(tools=Path(compiler).parent), encoding="utf-8"
    )
    (core / "Arduino.h").write_text(CORE, encoding="utf-8")
    main = '#include "Arduino.h"\nint main() { setup(); for (;;) loop(); }\n'
    (core / "main.cpp").write_text(main, encoding="utf-8")
    library = export_model(
        models, "arduino", tmp_path / "libraries/sensing", metadata=FACTS
    ).path
    folders = (
        "-hardware",
        tmp_path / "hardware",
        "-hardware",
        "/usr/share/arduino-builder",
    )
    more = ("-tools", "/usr/bin", "-libraries", tmp_path / "libraries")
    (tmp_path / "build").mkdir()
    sketch = library / "examples/sensing_run/sensing_run.ino"
    options = (
        "-fqbn",
        "stand-in:samd:m4",
        "-build-path",
        tmp_path / "build",
        "-verbose",
    )
    text = run(
        "arduino-builder",
        "-compile",
        *folders,
        *more,
        *options,
        sketch,
        folder=tmp_path,
    )
    assert "Using library sensing at version 1.4.0" in text
    assert (tmp_path / "build/sketch.elf").stat().st_size > 10_000
