"""gcc compiles the loops of the DSP extension, also where Helium takes a register."""

import subprocess
from pathlib import Path

import pytest

from firmwright.schedules.cortex_m_dsp.microkernels import (
    ACCUMULATORS,
    INTRINSIC_MAKERS,
)

STEPS = 18
LOOPS = [name for name in INTRINSIC_MAKERS if name.endswith(f"_loop_{STEPS}")]


def c_function(name: str) -> str:
    """Return a micro-kernel as a C function of its accumulators."""
    registers = ", ".join(f"int32_t {sum_}" for sum_ in ACCUMULATORS)
    head = f"int32_t {name}(const uint32_t *w, const uint32_t *x, int32_t steps,"
    text = INTRINSIC_MAKERS[name]().text["gnu"]
    return f"{head}\n{registers})\n{{\n{text}\nreturn {' + '.join(ACCUMULATORS)};\n}}\n"


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_loops_assemble(core: str, tmp_path: Path) -> None:
    definitions: dict[str, None] = {}
    for name in LOOPS:
        definitions |= dict.fromkeys(INTRINSIC_MAKERS[name]().definitions)
    functions = map(c_function, LOOPS)
    source = tmp_path / "loops.c"
    source.write_text("\n".join(["#include <stdint.h>", *definitions, *functions]))
    options = [f"-mcpu={core}", "-mthumb", "-mfloat-abi=hard", "-fomit-frame-pointer"]
    command = ["arm-none-eabi-gcc", *options, "-O2", "-c", source, "-o", "/dev/null"]
    assert len(LOOPS) > 4
    subprocess.run(command, check=True, timeout=60)
