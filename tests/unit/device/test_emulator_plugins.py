"""The plugins declare an interface version that their QEMU supports."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from firmwright.device.emulator_plugins import build_emulator_plugin

USED = (
    "insn_size",
    "insn_vaddr",
    "mem_is_store",
    "mem_size_shift",
    "register_vcpu_insn_exec_cb",
    "register_vcpu_mem_cb",
    "register_vcpu_tb_trans_cb",
    "tb_get_insn",
    "tb_n_insns",
)
ONE = ("n_vcpus", "n_max_vcpus")
TWO = ("num_vcpus",)
FOUR = (*TWO, "read_memory_vaddr")
FIVE = (
    *FOUR,
    "write_memory_vaddr",
    "read_memory_hwaddr",
    "write_register",
    "translate_vaddr",
)

LOADER = """
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *const plugin = dlopen(arguments[count - 1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        puts(dlerror());
        return 1;
    }
    printf("%d", *(int *)dlsym(plugin, "qemu_plugin_version"));
    return 0;
}
"""


@pytest.mark.host_c
@pytest.mark.parametrize("plugin", ["count", "operands"])
@pytest.mark.parametrize(
    ("emulator", "lowest", "highest", "functions"),
    [
        ("7.2", 1, 1, ONE),
        ("9.0", 2, 2, TWO),
        ("9.1", 2, 3, TWO),
        ("10.0", 2, 4, FOUR),
        ("10.1", 2, 5, FIVE),
    ],
)
def test_the_plugin_declares_a_version_that_the_loading_qemu_supports(
    emulator: str,
    lowest: int,
    highest: int,
    functions: Sequence[str],
    plugin: str,
    tmp_path: Path,
):
    """The loader exports that QEMU's functions and reads the version as it does."""
    stubs = "".join(
        f"void qemu_plugin_{name}(void) {{}}\n" for name in (*USED, *functions)
    )
    source = tmp_path / "loader.c"
    source.write_text(LOADER + stubs, encoding="utf-8")
    program = tmp_path / f"qemu-{emulator}"
    subprocess.run(["cc", "-rdynamic", source, "-o", program, "-ldl"], check=True)
    done = subprocess.run(
        [program, build_emulator_plugin(plugin, tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert lowest <= int(done.stdout) <= highest
