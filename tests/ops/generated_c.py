"""Run conformance cases as generated C, many cases per program.

The program is compiled with the address and undefined behavior sanitizers. Undefined
behavior traps, which compiles in half the time; a program that trapped is compiled
again with reports.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firmwright.build.compiler_flags import WARNINGS
from firmwright.conformance.case_tables import ConformanceCase
from firmwright.ir import tir
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.pipeline import Options, compile_model, load_module_bytes
from tests.ops.tflite_writer import write_cases

Array = NDArray[np.generic]
FLAGS = (
    "-std=c99",
    "-O0",
    *WARNINGS,
    "-ffp-contract=off",
    "-fsanitize=address,undefined,float-cast-overflow",
)
TRAPPING = ("-fsanitize-undefined-trap-on-error",)
REPORTING = ("-fno-sanitize-recover=all",)

_MAIN = """\
#include <stdint.h>
#include <stdio.h>

#include "model/cases.h"

{buffers}
int main(void)
{{
    const struct cases_inputs in = {{{inputs}}};
    const struct cases_outputs out = {{{outputs}}};
    const struct cases_workspace_pools pools = {{{pools}}};
    {reset}
    while (1) {{
{reads}
        const int32_t status = cases_run(&in, &out, &pools);
        if (status != 0) {{
            return 2;
        }}
{writes}
    }}
}}
"""


def run_in_c(
    cases: Sequence[ConformanceCase],
    samples: Sequence[Sequence[Array]],
    numerics: NumericsProfile,
    folder: Path,
) -> list[list[Array]]:
    """Return the outputs of each sample in the order of the cases.

    `samples[k]` holds all variable inputs of sample k.
    """
    model = load_module_bytes(write_cases(cases), "cases.tflite", name="cases")
    return run_model_in_c(model, samples, numerics, folder)


def run_model_in_c(
    model: IRModule,
    samples: Sequence[Sequence[Array]],
    numerics: NumericsProfile,
    folder: Path,
) -> list[list[Array]]:
    """Return the outputs of each sample of a model with the name `cases`."""
    # All inputs and outputs are the caller's, so there is little to plan.
    options = Options(io_buffers="caller", numerics=numerics, planner="greedy_by_size")
    compiled = compile_model(model, options)
    io = compiled.module.io
    compiled.tree.write(folder)
    entry = compiled.module.entry
    assert isinstance(entry, tir.PrimFunc)
    pools = [param.name for param in entry.params if param.role == "pool"]
    reset = "cases_reset(&pools);" if io.state else ""
    (folder / "main.c").write_text(_main(io.inputs, io.outputs, pools, reset))
    sent = b"".join(array.tobytes() for sample in samples for array in sample)
    done = _run(folder, TRAPPING, sent)
    if done.returncode < 0:
        done = _run(folder, REPORTING, sent)
    assert done.returncode == 0, done.stderr.decode()
    return _split(done.stdout, io.outputs, len(samples))


def _run(
    folder: Path, flags: Sequence[str], sent: bytes
) -> subprocess.CompletedProcess[bytes]:
    program = folder / "cases"
    sources = ["main.c", *sorted(str(path) for path in (folder / "model").glob("*.c"))]
    subprocess.run(
        ["cc", *FLAGS, *flags, "-I.", "-o", str(program), *sources, "-lm"],
        cwd=folder,
        check=True,
    )
    return subprocess.run([str(program)], input=sent, capture_output=True, check=False)


def _main(
    inputs: Sequence[IoTensor],
    outputs: Sequence[IoTensor],
    pools: Sequence[str],
    reset: str,
) -> str:
    def declared(tensor: IoTensor) -> str:
        return f"static {tensor.type.dtype.c_type} {tensor.buffer}[{tensor.type.elements}];\n"

    buffers = "".join(map(declared, (*inputs, *outputs)))
    buffers += "".join(
        f"static uint8_t {name}[CASES_{name.upper()}_SIZE]"
        f" __attribute__((aligned(CASES_{name.upper()}_ALIGN)));\n"
        for name in pools
    )
    return _MAIN.format(
        buffers=buffers,
        inputs=", ".join(tensor.buffer for tensor in inputs),
        outputs=", ".join(tensor.buffer for tensor in outputs),
        pools=", ".join(pools) or "0",
        reset=reset,
        reads="\n".join(
            f"        if (fread({t.buffer}, sizeof {t.buffer}, 1, stdin) != 1) {{ return 0; }}"
            for t in inputs
        ),
        writes="\n".join(
            f"        fwrite({t.buffer}, sizeof {t.buffer}, 1, stdout);"
            for t in outputs
        ),
    )


def _split(data: bytes, outputs: Sequence[IoTensor], count: int) -> list[list[Array]]:
    found: list[list[Array]] = []
    place = 0
    for _ in range(count):
        found.append([])
        for tensor in outputs:
            kind = tensor.type
            flat = np.frombuffer(data, kind.dtype.np, kind.elements, place)
            found[-1].append(flat.reshape(kind.shape))
            place += kind.size_bytes
    assert place == len(data)
    return found
