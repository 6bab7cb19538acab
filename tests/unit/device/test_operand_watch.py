"""The plugin for operands, driven by a program in QEMU's place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firmwright.base.errors import DeviceError
from firmwright.device.emulator_plugins import build_emulator_plugin
from firmwright.device.operand_watch import MemoryRange, OperandWatch, WrongAccess

pytestmark = pytest.mark.host_c
MARKS, POOL, CONSTANTS = 0x2000_0000, 0x2000_1000, 0x1000
AREAS = (MemoryRange(POOL, 256), MemoryRange(CONSTANTS, 64))
X, Y, W = MemoryRange(POOL + 64, 16), MemoryRange(POOL + 144, 4), MemoryRange(4096, 12)
LAST = (1 << 32) - 4
EMULATOR = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void access_fn(unsigned int cpu, uint32_t info, uint64_t address, void *data);
static void (*translate)(uint64_t id, void *block);
static access_fn *access_memory;
static uint64_t instruction;

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void *callback)
{
    (void)id;
    memcpy(&translate, &callback, sizeof translate);
}

void qemu_plugin_register_vcpu_mem_cb(void *insn, access_fn *callback, int flags, int kinds,
                                      void *data)
{
    (void)insn;
    (void)flags;
    (void)kinds;
    access_memory = callback;
    instruction = (uint64_t)(uintptr_t)data;
}

unsigned int qemu_plugin_mem_size_shift(uint32_t info) { return info & 15u; }
_Bool qemu_plugin_mem_is_store(uint32_t info) { return info > 15u; }
size_t qemu_plugin_tb_n_insns(void *block) { (void)block; return 1; }
void *qemu_plugin_tb_get_insn(void *block, size_t i) { (void)i; return block; }
uint64_t qemu_plugin_insn_vaddr(void *insn) { (void)insn; return 4660; }

/* PLUGIN FILE [CPU INFO ADDRESS]... */
int main(int count, char **words)
{
    void *const plugin = dlopen(words[1], RTLD_NOW);
    int (*install)(uint64_t, const void *, int, char **);
    void *const symbol = plugin == NULL ? NULL : dlsym(plugin, "qemu_plugin_install");
    char argument[512];
    char *arguments[] = {argument};
    if (symbol == NULL) {
        return 2;
    }
    memcpy(&install, &symbol, sizeof install);
    snprintf(argument, sizeof argument, "out=%s", words[2]);
    if (install(0, NULL, 1, arguments) != 0) {
        return 1;
    }
    translate(0, NULL);
    for (int i = 3; i + 2 < count; i += 3) {
        access_memory((unsigned int)atoi(words[i]), (uint32_t)atoi(words[i + 1]),
                      strtoull(words[i + 2], NULL, 10), (void *)(uintptr_t)instruction);
    }
    return 0;
}
"""
Run = Callable[[OperandWatch, Sequence[tuple[int, int, int]]], int]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_emulator_plugin("operands", tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def run(plugin: Path) -> Run:
    """Execute accesses: the core, the size's logarithm (stores: plus 16), address."""
    program = plugin.with_name("emulator")
    source = plugin.with_name("emulator.c")
    source.write_text(EMULATOR, encoding="utf-8")
    subprocess.run(["cc", "-rdynamic", source, "-o", program, "-ldl"], check=True)

    def executed(watch: OperandWatch, accesses: Sequence[tuple[int, int, int]]) -> int:
        file = watch.argument.partition("out=")[2]
        words = [str(number) for access in accesses for number in access]
        command = [program, plugin, file, *words]
        return subprocess.run(command, check=False, capture_output=True).returncode

    return executed


@pytest.fixture
def watch(plugin: Path) -> OperandWatch:
    """Operator 0 may access X and W, operator 1 X and Y."""
    return OperandWatch(plugin, MARKS, AREAS, ((X, W), (X, Y)))


def start(operator: int) -> tuple[int, int, int]:
    return (0, 16, MARKS + operator)


LOAD, WORD, STORE = 0, 2, 16


@pytest.mark.parametrize(
    ("access", "is_wrong"),
    [
        ((0, LOAD, X.start), False),
        ((0, LOAD, X.start + 15), False),
        ((0, LOAD, X.start + 16), True),
        ((0, LOAD, X.start - 1), True),
        ((0, WORD, X.start + 12), False),
        ((0, WORD, X.start + 13), True),
        ((1, STORE, Y.start), True),
        ((0, WORD, W.start + 8), False),
        ((0, WORD, W.start + 12), True),
        ((0, WORD, CONSTANTS - 3), True),
        ((0, WORD, CONSTANTS - 4), False),
        ((0, LOAD, POOL + 255), True),
        ((0, LOAD, POOL + 256), False),
        ((0, LOAD, LAST), False),
        ((0, 16 + WORD, MARKS), False),
    ],
)
def test_an_access_of_an_area_has_to_be_in_an_operand(
    access: tuple[int, int, int], is_wrong: bool, watch: OperandWatch, run: Run
) -> None:
    with watch:
        assert run(watch, [access, start(0), access, access, start(2), access]) == 0
        found = watch.read()
    core, info, address = access
    size = 1 << (info & 15)
    wrong = WrongAccess(0, 4660, address, size, is_store=info >= STORE)
    assert found == ((wrong,) if is_wrong else ()), core


def test_operands_are_those_of_the_operator_that_runs(
    watch: OperandWatch, run: Run
) -> None:
    reads = [(0, LOAD, Y.start), (0, LOAD, W.start)]
    with watch:
        assert run(watch, [start(0), *reads, start(1), *reads]) == 0
        places = [(item.operator, item.address) for item in watch.read()]
    assert places == [(0, Y.start), (1, W.start)]


def changed(data: bytes, at: int, value: int) -> bytes:
    """Replace the word at a byte offset."""
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:31],
        lambda data: data[:-1],
        lambda data: data + bytes(4),
        *(lambda data, at=at: changed(data, at, 0xFFFF_FFFF) for at in range(8, 24, 4)),
        lambda data: changed(data, 32, 4),
        lambda data: changed(data, 44, 0xFFFF_FFFF),
    ],
)
def test_damaged_tables_are_refused(
    damage: Callable[[bytes], bytes], watch: OperandWatch, run: Run
) -> None:
    """The lists of operands begin at byte 32: first and count of each operator."""
    file = Path(watch.argument.partition("out=")[2])
    with watch:
        file.write_bytes(damage(file.read_bytes()))
        assert run(watch, [start(0)]) == 1


def test_an_emulator_without_the_plugin_is_an_error(watch: OperandWatch) -> None:
    with watch, pytest.raises(DeviceError, match="did not load the plugin"):
        watch.read()


def test_too_many_wrong_accesses_are_an_error(watch: OperandWatch, run: Run) -> None:
    file = Path(watch.argument.partition("out=")[2])
    with watch:
        assert run(watch, [start(0)]) == 0
        file.write_bytes(changed(file.read_bytes(), 28, 1))
        with pytest.raises(DeviceError, match="more than 4096 instructions"):
            watch.read()
