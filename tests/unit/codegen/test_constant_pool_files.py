"""Constants in files of their own: what C says of them, and what a failed read does."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.codegen.model_emitter import emit_model
from firmwright.codegen.multi_model_firmware import emit_multi_model_firmware
from firmwright.ir.constant_pools import unlinked_pool_images
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.passes.tir import assign_constant_memory, stage_constants
from firmwright.usmp.memory_planning import plan_memory

TEXT = """firmwright ir 2
module @m
attrs {entry="run"}
io arena {
  input %x = "x": i8[4]
  output %y = "y": i32[4]
}
const @w = i8[4] [1, -2, 3, -4]
const @bias = i32[4] [100, 200, -300, 400]
func @scale(in x: i8[4], out y: i32[4]) attrs {op="scale"} {
  alloc_const w: i8[4] scope(const) = @w
  alloc_const b: i32[4] scope(const) align(4) = @bias
  for i in 0..4 { y[i] = cast(i32, x[i]) * cast(i32, w[i]) + b[i] }
}
func @add(in x: i32[4], out y: i32[4]) attrs {op="add"} {
  alloc_const b: i32[4] scope(const) align(4) = @bias
  for i in 0..4 { y[i] = x[i] + b[i] }
}
func @run() attrs {aot_main=true} {
  allocate x: i8[4] align(4) as input
  allocate y: i32[4] align(4) as output
  allocate a: i32[4] align(4) as activation
  call @scale(ptr(x, 0, 4, r), ptr(a, 0, 4, w)) op 0
  call @add(ptr(a, 0, 4, r), ptr(y, 0, 4, w)) op 1
}
"""
X = np.array([5, -6, 7, 127], np.int8)
Y = X.astype(np.int32) * [1, -2, 3, -4] + 2 * np.array([100, 200, -300, 400])
SEPARATE = ("external", "port", "async")


def module_with(scope: str, section: str = "", text: str = TEXT) -> IRModule:
    """The planned module, its constants in the pool `far`."""
    pools = (
        PoolInfo("sram"),
        PoolInfo("far", access="ro", scope=scope, section=section),
    )
    module = replace(parse_module(text, "m.fwir"), pools=pools)
    return plan_memory(
        stage_constants.run(assign_constant_memory.run(module)), "greedy_by_size"
    )


def emitted(scope: str, section: str = "") -> SourceTree:
    return emit_model(module_with(scope, section), BASE_INTRINSICS)


@pytest.mark.parametrize("scope", SEPARATE)
def test_both_files_of_a_pool_hold_the_same_bytes_and_the_header_their_sum(
    scope: str,
) -> None:
    files = emitted(scope).files
    data, text, header = (
        files[f"model/m{end}"] for end in ("_far.bin", "_far.inc", ".h")
    )
    assert isinstance(data, bytes)
    assert isinstance(text, str)
    numbers = text.split("*/", 1)[1].replace("\n", " ").rstrip(", ").split(",")
    assert bytes(int(number, 16) for number in numbers) == data
    assert f"#define M_FAR_SIZE {len(data)} " in str(header)
    assert f"#define M_FAR_CRC32 0x{zlib.crc32(data):08x}u" in str(header)
    assert "model/m_weights.h" not in files


def test_the_hash_in_a_pool_is_that_of_the_code_that_reads_it() -> None:
    def pool(*change: str) -> bytes:
        text = TEXT.replace(*change) if change else TEXT
        (image,) = unlinked_pool_images(module_with("external", text=text))
        return image.data

    data = pool()
    retrained = pool("3, -4]", "3, -5]")
    assert (retrained == data, retrained[-16:] == data[-16:]) == (False, True)
    assert pool("@m", "@other")[-16:] == data[-16:]
    assert (
        pool("* cast(i32, w[i]) + b[i]", "* cast(i32, w[i]) - b[i]")[-16:] != data[-16:]
    )


def test_header_code_and_glue_of_a_reader_read_as_written_by_hand(
    golden: Callable[..., None],
) -> None:
    files = emitted("async").files
    golden(str(files["model/m.h"]), ".h")
    source = str(files["model/m.c"])
    golden(source[source.index("/* ---- The model") :], "_main.c")
    glue = str(files["firmware/fwr_app.c"])
    golden(
        glue[glue.index("APP_ALIGNED(M") : glue.index("static const struct m_inputs")],
        "_app.c",
    )


def test_linked_constants_go_to_the_section_of_their_pool() -> None:
    text = str(emitted("global", ".rodata.far").files["model/m_weights.h"])
    assert text.count('M_CONST(".rodata.far", ') == 2


def test_several_models_reject_constant_pools() -> None:
    second = replace(module_with("port"), name="second")
    with pytest.raises(UsageError, match="compile without --const-pool"):
        emit_multi_model_firmware([module_with("port"), second], BASE_INTRINSICS)


# ---- in C ----------------------------------------------------------------------------


class Driver:
    """A model in C with its pool of constants behind functions of this test."""

    def __init__(self, compiled: Any, scope: str, data: bytes) -> None:
        self.ffi, self.lib = compiled.ffi, compiled.lib
        self.data = data
        self.calls: list[tuple[str, int, int]] = []
        self.fails_at = -1
        self.pending: tuple[int, Any, int] | None = None
        self._sram = self._aligned(compiled.macro("M_SRAM_SIZE"))
        self._far = self._aligned(len(data))
        self.ffi.memmove(self._far, data, len(data))
        self.pools = self.ffi.new("struct m_workspace_pools *", {"sram": self._sram})
        self._kept: list[Any] = []
        self._connect(scope)

    def _aligned(self, size: int) -> Any:
        raw = self.ffi.new("uint8_t[]", size + 16)
        self._memory = [*getattr(self, "_memory", []), raw]
        return raw + -int(self.ffi.cast("uintptr_t", raw)) % 16

    def _connect(self, scope: str) -> None:
        if scope == "external":
            self.pools.far = self._far
            return
        kind = "int32_t(void *, uint32_t, void *, uint32_t)"
        if scope == "port":
            self.pools.far.read = self._callback(kind, self.read)
        else:
            self.pools.far.start = self._callback(kind, self.start)
            self.pools.far.wait = self._callback("int32_t(void *)", self.wait)

    def _callback(self, kind: str, function: Callable[..., int]) -> Any:
        self._kept.append(self.ffi.callback(kind, function))
        return self._kept[-1]

    def read(self, context: Any, offset: int, target: Any, size: int) -> int:
        self.calls.append(("read", offset, size))
        self.ffi.memmove(target, self.data[offset : offset + size], size)
        return 0 if len(self.calls) - 1 != self.fails_at else -9

    def start(self, context: Any, offset: int, target: Any, size: int) -> int:
        assert self.pending is None, "one read is under way at a time"
        self.calls.append(("start", offset, size))
        self.pending = (offset, target, size)
        return 0 if len(self.calls) - 1 != self.fails_at else -9

    def wait(self, context: Any) -> int:
        """The last moment at which a driver may bring the bytes."""
        assert self.pending is not None
        offset, target, size = self.pending
        self.pending = None
        self.calls.append(("wait", 0, 0))
        self.ffi.memmove(target, self.data[offset : offset + size], size)
        return 0 if len(self.calls) - 1 != self.fails_at else -9

    def run(self) -> int:
        ins, outs = (
            self.ffi.new("struct m_inputs *"),
            self.ffi.new("struct m_outputs *"),
        )
        self.lib.m_map_io(self.pools, ins, outs)
        self.ffi.memmove(ins.x, X.tobytes(), 4)
        status = int(self.lib.m_run(ins, outs, self.pools))
        self.y = np.frombuffer(bytes(self.ffi.buffer(outs.y, 16)), np.int32)
        return status


@pytest.fixture(scope="module")
def in_c(
    tmp_path_factory: pytest.TempPathFactory, compile_c: Any
) -> Callable[[str], list[Driver]]:
    """`in_c(scope)`: a driver for the emitted model, compiled once by each compiler."""
    made: dict[str, list[Any]] = {}

    def make(scope: str) -> list[Driver]:
        tree = emitted(scope)
        if scope not in made:
            made[scope] = compile_c(tree, tmp_path_factory.mktemp(scope))
        data = tree.files["model/m_far.bin"]
        assert isinstance(data, bytes)
        return [Driver(compiled, scope, data) for compiled in made[scope]]

    return make


@pytest.mark.host_c
@pytest.mark.parametrize("scope", SEPARATE)
def test_the_c_computes_with_external_constants(scope: str, in_c: Any) -> None:
    for driver in in_c(scope):
        for _ in range(2):
            assert driver.run() == 0
            np.testing.assert_array_equal(driver.y, Y)


@pytest.mark.host_c
def test_reads_come_in_order_and_one_at_a_time(in_c: Any) -> None:
    for driver in in_c("port"):
        driver.run()
        assert driver.calls == [("read", 48, 16), ("read", 0, 20), ("read", 32, 16)]
    for driver in in_c("async"):
        driver.run()
        wait = ("wait", 0, 0)
        check = ("start", 48, 16), wait
        assert driver.calls == [*check, ("start", 0, 20), wait, ("start", 32, 16), wait]


@pytest.mark.host_c
@pytest.mark.parametrize("scope", SEPARATE)
def test_constants_of_another_build_are_refused(scope: str, in_c: Any) -> None:
    for driver in in_c(scope):
        memory = driver.ffi.buffer(driver._far, len(driver.data))
        memory[:] = driver.data = bytes(len(driver.data))
        assert driver.run() == -9


@pytest.mark.host_c
@pytest.mark.parametrize(("scope", "calls"), [("port", 3), ("async", 6)])
def test_a_read_that_fails_ends_the_run(scope: str, calls: int, in_c: Any) -> None:
    for driver in in_c(scope):
        for fails_at in range(calls):
            driver.calls, driver.fails_at, driver.pending = [], fails_at, None
            assert driver.run() == -4
            assert len(driver.calls) == fails_at + 1


@pytest.mark.host_c
@pytest.mark.parametrize("scope", SEPARATE)
def test_a_missing_pointer_is_refused(scope: str, in_c: Any) -> None:
    for driver in in_c(scope):
        if scope == "external":
            driver.pools.far = driver._far + 1
            assert driver.run() == -2
            driver.pools.far = driver.ffi.NULL
        else:
            setattr(
                driver.pools.far, "read" if scope == "port" else "wait", driver.ffi.NULL
            )
        assert driver.run() == -1
        assert driver.calls == []
