"""The CFU of examples/cfu: its SystemVerilog computes the layers, bit for bit.

CFU_PLAYGROUND_PATH names a copy of github.com/google/CFU-Playground, of which Verilator
makes the model.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import firmwright as fw
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cfu"
PATH_VARIABLE = "CFU_PLAYGROUND_PATH"
PROJECT = Path(os.environ.get(PATH_VARIABLE, "")).resolve() / "proj/kws_micro_accel"
COMMANDS = re.compile(r"<!-- not run: .*? -->\n```sh\n(.*?)```", re.DOTALL)
GCC = "riscv64-unknown-elf-gcc"
needs_cfu = pytest.mark.skipif(
    PATH_VARIABLE not in os.environ, reason=f"{PATH_VARIABLE} names no CFU-Playground"
)


def example_copy(folder: Path) -> ModuleType:
    """Return the example's module from a copy of its folder."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.o"))
    spec = importlib.util.spec_from_file_location("kws_cfu", folder / "kws_cfu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verilate(project: Path, folder: Path) -> None:
    command = [sys.executable, folder / "verilate.py", project]
    subprocess.run(command, check=True, timeout=300)


@pytest.mark.qemu("riscv32")
def test_a_riscv_core_gets_the_instructions(tmp_path: Path) -> None:
    if shutil.which(GCC) is None:
        pytest.skip(f"needs {GCC}")
    core = ["--specs=picolibc.specs", "-march=rv32im", "-mabi=ilp32"]
    flags = [*core, "-O2", "-Wall", "-Wextra", "-Werror"]
    compiled = tmp_path / "cfu.o"
    subprocess.run(
        [GCC, *flags, "-c", EXAMPLE / "kws_cfu.c", "-o", compiled], check=True
    )
    disassemble = ["riscv64-unknown-elf-objdump", "-d", compiled]
    listing = subprocess.run(disassemble, capture_output=True, text=True, check=True)
    found = re.findall(r"\t([0-9a-f]{8})\s", listing.stdout)
    words = [int(word, 16) for word in found]
    custom = {(word >> 12 & 7, word >> 25) for word in words if word & 0x7F == 0x0B}
    products = {(1, lanes | zero_point) for lanes in (0, 1) for zero_point in (0, 2)}
    assert custom == products | {(0, 0), (2, 0), (4, 0)}, "funct3 and funct7"


def layer(rng: np.random.Generator, zero_point: int) -> Model:
    """Return a convolution and a depthwise one of random shapes, strides and padding."""
    channels, filters, rows, columns = rng.integers(1, 9, 4).tolist()
    graph = GraphBuilder("layers")
    x = graph.input("x", (1, 8, 9, channels), scale=0.02, zero_point=zero_point)
    for op, kernels in (("conv2d", filters), ("depthwise_conv2d", filters)):
        shape = (kernels, 3, 2, x.type.shape[3])
        if op == "depthwise_conv2d":
            shape = (1, 2, 3, kernels)
        weights = rng.integers(-127, 128, shape, np.int8)
        scales = rng.uniform(0.001, 0.01, kernels).tolist()
        axis = 3 if op == "depthwise_conv2d" else 0
        w = graph.constant(weights, scale=scales, axis=axis)
        bias = graph.constant(rng.integers(-2000, 2000, kernels, np.int32))
        stride, padding = (rows % 2 + 1, columns % 2 + 1), (1, 1, 0, 1)
        height = (x.type.shape[1] + 2 - shape[1]) // stride[0] + 1
        width = (x.type.shape[2] + 1 - shape[2]) // stride[1] + 1
        x = graph.call(
            op,
            x,
            w,
            bias,
            shape=(1, height, width, kernels),
            scale=0.02,
            zero_point=-128,
            activation="relu",
            stride=stride,
            dilation=(1, 1),
            padding=padding,
        )
    return graph.model(x)


@pytest.mark.deep
@needs_cfu
@pytest.mark.models
@pytest.mark.host_c
def test_the_network_of_the_unit_is_exact_on_its_systemverilog(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "cfu"
    example_copy(folder)
    shutil.copy(model_file("kws"), folder / "kws.tflite")
    (folder / "CFU-Playground").symlink_to(PROJECT.parents[1])
    (block,) = COMMANDS.findall((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    said = ""
    for line in block.splitlines():
        words = [sys.executable, *shlex.split(line)[1:]]
        said += subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=True
        ).stdout
    assert "9 of 12 operators run on the CFU" in said
    assert "3 samples: bit-exact" in said


@pytest.mark.deep
@needs_cfu
@pytest.mark.host_c
def test_other_layers_are_exact_and_a_changed_unit_is_not(tmp_path: Path) -> None:
    example = example_copy(tmp_path / "cfu")
    verilate(PROJECT, tmp_path / "cfu")
    fw.register_backend(example.KwsCfu)
    rng = np.random.default_rng(45)
    exact = 0
    for number in range(4):
        model = layer(rng, (-128, 83)[number % 2])
        compiled = fw.compile(model, target="kws-cfu")
        names = [row.schedule for row in compiled.summary.operators]
        exact += names.count("kws-cfu")
        with fw.session(compiled) as on_cfu, fw.session(fw.compile(model)) as on_core:
            x = rng.integers(
                -128, 128, (4, *compiled.summary.io.inputs[0].shape), np.int8
            )
            np.testing.assert_array_equal(on_cfu.run(x), on_core.run(x))
    assert exact >= 6, "most layers are on the unit"
    changed = tmp_path / "changed"
    shutil.copytree(PROJECT, changed)
    text = (changed / "rcdbpot.sv").read_text()
    (changed / "rcdbpot.sv").write_text(text.replace("remainder > threshold", "0"))
    verilate(changed, tmp_path / "cfu")
    again = fw.compile(model, target="kws-cfu")
    with fw.session(again) as on_cfu, fw.session(fw.compile(model)) as on_core:
        assert (on_cfu.run(x) != on_core.run(x)).any()
