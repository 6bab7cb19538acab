"""Small planned modules, written by hand, and a way to compile and call their C."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import DType
from firmwright.base.quant import Quantization
from firmwright.build.compiler_flags import WARNINGS
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS, EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir import tir
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoBinding, IoTensor, IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.intrinsic import Intrinsic
from tests.unit.codegen.planned_mains import planned_main, whole

FLAGS = ["-std=c99", *WARNINGS, "-ffp-contract=off"]
GCC = "gcc" if shutil.which("gcc") else "cc"
BUILDS = (
    (GCC, "-O0", "-fsanitize=undefined"),
    (GCC, "-O2", "-fsanitize=undefined"),
    (GCC, "-O3"),
    *(
        (("clang", "-O2"),) if GCC == "gcc" else ()
    ),  # where zig is all there is, once is enough
)


def module_of_kernel(
    builder: Builder, *, name: str = "m", zero_point: int = 0, **attrs: Any
) -> IRModule:
    """A module whose main calls one kernel; its parameters are the model's."""
    kernel = builder.build(op=builder.name, **attrs)
    placed: list[tuple[tir.Buffer, int]] = []
    offset = 0
    ins, outs, args = [], [], []
    for param in kernel.params:
        buffer = param.value
        assert isinstance(buffer, tir.Buffer)
        mine = tir.Buffer(
            f"t_{buffer.name}", buffer.dtype, buffer.shape, alignment=buffer.alignment
        )
        placed.append((mine, offset))
        offset += -(-mine.size_bytes // 16) * 16
        args.append(whole(mine))
        quantization = (
            Quantization((0.5,), (zero_point,)) if buffer.dtype.is_int else None
        )
        io = IoTensor(
            f"serving/{buffer.name}:0",
            mine.name,
            TensorType(buffer.shape, buffer.dtype, quantization),
        )
        if param.role in ("in", "out"):
            (ins if param.role == "in" else outs).append(io)
    call = tir.PrimFuncCall(kernel.name, tuple(args), Span("m.tflite", 0, 0, "t/y"), 0)
    main = planned_main([call], placed, offset)
    return IRModule(
        name,
        {kernel.name: kernel, "run": main},
        dict(builder.constants),
        io=IoBinding("arena", False, tuple(ins), tuple(outs)),
        entry_name="run",
    )


class Compiled:
    """A shared library of emitted sources and its parsed header."""

    def __init__(
        self, tree: SourceTree, directory: Path, compiler: str, flags: list[str]
    ) -> None:
        tree.write(directory)
        sources = sorted(str(p) for p in (directory / "model").glob("*.c"))
        library = directory / f"lib_{compiler}.so"
        command = [
            compiler,
            *FLAGS,
            *flags,
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            *sources,
        ]
        done = subprocess.run(
            [*command, "-lm"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.ffi = cffi.FFI()
        header = next(
            p
            for p in sorted((directory / "model").glob("*.h"))
            if "weights" not in p.name
        )
        self.header = header.read_text()
        self.ffi.cdef(_declarations(self.header))
        self.lib = Library(self.ffi.dlopen(str(library)), self.header)

    def macro(self, name: str) -> int:
        for line in self.header.splitlines():
            words = line.split()
            if words[:2] == ["#define", name]:
                return int(words[2].strip("()"))
        raise KeyError(name)


class Library:
    """A library whose functions have the header's names, not those of their symbols."""

    def __init__(self, library: Any, header: str) -> None:
        self._library, self._symbols = library, symbols_of(header)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, self._symbols.get(name, name))


def symbols_of(header: str) -> dict[str, str]:
    """The symbols of functions that end in the interface's hash."""
    return dict(
        re.findall(r"^#define (\w+) (\w+_abi_[0-9a-f]{8})$", header, re.MULTILINE)
    )


def _declarations(header: str) -> str:
    """The header without what cffi's parser does not read."""
    start, end = header.index("\nstruct ") + 1, header.rindex("#ifdef __cplusplus")
    text = re.sub(
        r"#ifdef \w+_CHECK_SIZES\n.*?#endif\n", "", header[start:end], flags=re.DOTALL
    )
    return re.sub(
        r"\w+(?=\()", lambda match: symbols_of(header).get(match[0], match[0]), text
    )


Run = Callable[..., dict[str, np.ndarray]]


def run_in_pool(
    compiled: Compiled,
    name: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Writes inputs where map_io says, runs, reads outputs: {field: (dtype, shape)}."""
    ffi, lib = compiled.ffi, compiled.lib
    size = compiled.macro(f"{name.upper()}_SRAM_SIZE")
    raw = ffi.new("uint8_t[]", size + 64)
    start = -int(ffi.cast("uintptr_t", raw)) % 16
    pools = ffi.new(f"struct {name}_workspace_pools *", {"sram": raw + start})
    ins, outs = ffi.new(f"struct {name}_inputs *"), ffi.new(f"struct {name}_outputs *")
    getattr(lib, f"{name}_map_io")(pools, ins, outs)
    for field, value in inputs.items():
        data = np.ascontiguousarray(value)
        ffi.memmove(getattr(ins, field), data.tobytes(), data.nbytes)
    assert getattr(lib, f"{name}_run")(ins, outs, pools) == 0
    result = {}
    for field, (dtype, shape) in outputs.items():
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        data = bytes(ffi.buffer(getattr(outs, field), count))
        result[field] = np.frombuffer(data, dtype).reshape(shape)
    return result


@pytest.fixture
def run_kernel(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., list[dict[str, np.ndarray]]]:
    """`run_kernel(builder, inputs, intrinsics)`: all compilers' outputs, all equal."""

    def run(
        builder: Builder,
        inputs: Mapping[str, np.ndarray],
        intrinsics: Mapping[str, Intrinsic] | None = None,
        options: EmitOptions = DEFAULT_EMIT_OPTIONS,
    ) -> dict[str, np.ndarray]:
        module = module_of_kernel(builder)
        tree = emit_model(module, intrinsics or {}, options)
        results = []
        for compiler, *flags in BUILDS:
            compiled = Compiled(
                tree, tmp_path / f"{compiler}{flags[0]}", compiler, flags
            )
            outputs = {
                io.buffer: (io.type.dtype.np, io.type.shape) for io in module.io.outputs
            }
            fields = {f"t_{name}": value for name, value in inputs.items()}
            results.append(run_in_pool(compiled, module.name, fields, outputs))
        found = [
            line
            for line in capfd.readouterr().err.splitlines()
            if "runtime error" in line
        ]
        assert found == []
        for other in results[1:]:
            for field in other:
                np.testing.assert_array_equal(other[field], results[0][field])
        return {field.removeprefix("t_"): value for field, value in results[0].items()}

    return run


def constant_of(name: str, values: Any, dtype: DType) -> Constant:
    return Constant.from_array(name, np.asarray(values), dtype)


@pytest.fixture
def module_of() -> Callable[..., IRModule]:
    """`module_of_kernel`, for tests that look at text."""
    return module_of_kernel


@pytest.fixture(scope="module")
def compile_c() -> Callable[[SourceTree, Path], list[Compiled]]:
    """`compile_c(tree, folder)`: the emitted sources under each compiler."""

    def compile_all(tree: SourceTree, folder: Path) -> list[Compiled]:
        return [
            Compiled(tree, folder / f"{compiler}{flags[0]}", compiler, flags)
            for compiler, *flags in BUILDS
        ]

    return compile_all
