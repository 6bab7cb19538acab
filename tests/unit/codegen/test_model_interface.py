"""The C interface: who owns inputs and outputs, what `run` refuses, probes, pools."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import INT8
from firmwright.base.resources import runtime_dir
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.codegen.model_identity import model_id, run_symbol
from firmwright.codegen.model_interface import build_interface
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.builder import Builder
from tests.unit.codegen.adder_models import (
    COUNT,
    GCC,
    adder,
    caller_module,
    program,
    unlinked_module,
)

WORKSPACE_MAIN = """
#include <stdio.h>
#include <string.h>
#include "m.h"
static uint8_t sram[M_SRAM_SIZE + 1] __attribute__((aligned(M_SRAM_ALIGN)));
static uint8_t other[M_SRAM_SIZE] __attribute__((aligned(M_SRAM_ALIGN)));
int main(void)
{
    struct m_workspace_pools pools = { .sram = sram };
    const struct m_workspace_pools odd = { .sram = sram + 1 };
    const struct m_workspace_pools none = { .sram = NULL };
    struct m_inputs in;
    struct m_outputs out;
    printf("%ld %ld ", (long)m_map_io(NULL, &in, &out), (long)m_map_io(&none, &in, &out));
    printf("%ld ", (long)m_map_io(&odd, &in, &out));
    printf("%ld ", (long)m_map_io(&pools, &in, &out));
    for (int32_t i = 0; i < M_T_X_ELEMENTS; ++i) {
        in.t_x[i] = i;
    }
    printf("%ld ", (long)m_run(&in, &out, &pools));
    printf("%ld ", (long)m_run(NULL, &out, &pools));
    printf("%ld ", (long)m_run(&in, &out, &none));
    printf("%ld ", (long)m_run(&in, &out, &odd));
    pools.sram = other;
    printf("%ld ", (long)m_run(&in, &out, &pools));
    printf("%ld", (long)out.t_y[2]);
    return 0;
}
"""


@pytest.mark.host_c
def test_a_run_refuses_null_misaligned_and_foreign_pointers(
    tmp_path, module_of
) -> None:
    tree = emit_model(module_of(adder()), {})
    assert program(tmp_path, tree, WORKSPACE_MAIN) == "-1 -1 -2 0 0 -1 -1 -2 -3 16"


CALL = """
#include "m.h"
static uint8_t sram[M_SRAM_SIZE] __attribute__((aligned(M_SRAM_ALIGN)));
int main(void)
{
    struct m_workspace_pools pools;
    struct m_inputs in;
    struct m_outputs out;
    pools.sram = sram;
#ifdef M_CHECK_SIZES
    pools.sram_size = sizeof sram - SHORT;
#endif
    m_map_io(&pools, &in, &out);
    return m_run(&in, &out, &pools);
}
"""


def linked(folder: Path, header: Path, *flags: str) -> str:
    """Compile CALL with `header` and the model of `folder`; return linker messages."""
    (folder / "main.cc").write_text(CALL)
    library = [
        GCC,
        "-c",
        "-O2",
        *flags,
        str(folder / "model" / "m.c"),
        "-o",
        str(folder / "m.o"),
    ]
    subprocess.run(library, check=True)
    main = [
        "-I",
        str(header),
        "-x",
        "c++" if "-flto" in flags else "c",
        str(folder / "main.cc"),
    ]
    command = [GCC, "-O2", *flags, *main, "-x", "none", str(folder / "m.o")]
    done = subprocess.run(
        [*command, "-o", str(folder / "a")], capture_output=True, text=True
    )
    assert "model" not in done.stderr
    return done.stderr


@pytest.mark.host_c
@pytest.mark.parametrize(
    "flags",
    [
        ("-g",),
        ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"),
        ("-flto",),
    ],
)
def test_a_program_with_a_header_of_another_interface_does_not_link(
    tmp_path, module_of, flags
) -> None:
    emit_model(module_of(adder()), {}).write(tmp_path / "now")
    emit_model(module_of(adder(), zero_point=3), {}).write(tmp_path / "before")
    assert linked(tmp_path / "now", tmp_path / "now" / "model", *flags) == ""
    error = linked(tmp_path / "now", tmp_path / "before" / "model", *flags)
    assert re.search(r"undefined reference to .m_run_abi_[0-9a-f]{8}'", error)


def test_comments_and_constants_do_not_change_the_interface(module_of) -> None:
    trees = [
        emit_model(
            module_of(adder(values=values)), {}, EmitOptions(tool_version=version)
        )
        for values, version in (((*range(COUNT),), "1.0"), ((1,) * COUNT, "1.1"))
    ]
    assert trees[0].files["model/m.c"] != trees[1].files["model/m.c"]
    assert run_symbol(trees[0], "m") == run_symbol(trees[1], "m")


@pytest.mark.host_c
def test_a_build_with_checked_sizes_refuses_a_short_pool(tmp_path, module_of) -> None:
    emit_model(module_of(adder()), {}).write(tmp_path)
    for short, status in ((0, 0), (1, 256 - 10)):
        assert (
            linked(tmp_path, tmp_path / "model", "-DM_CHECK_SIZES", f"-DSHORT={short}")
            == ""
        )
        assert subprocess.run([str(tmp_path / "a")]).returncode == status
    (tmp_path / "other.c").write_text("#define M_CHECK_SIZES\n" + CALL)
    command = [
        GCC,
        "-DSHORT=0",
        "-I",
        str(tmp_path / "model"),
        str(tmp_path / "other.c"),
    ]
    mixed = subprocess.run(
        [*command, str(tmp_path / "model" / "m.c"), "-o", str(tmp_path / "b")],
        capture_output=True,
        text=True,
    )
    assert "_sizes'" in mixed.stderr


PROBED_MAIN = """
#include <stdio.h>
#include "m.h"
static uint8_t sram[M_SRAM_SIZE] __attribute__((aligned(M_SRAM_ALIGN)));
struct limit { int calls, most; };
static int32_t count(void *at, uint32_t index, uint32_t phase, const void *output, uint32_t size)
{
    struct limit *limit = at;
    printf("%lu.%lu %lu %d; ", (unsigned long)index, (unsigned long)phase, (unsigned long)size,
           output != NULL);
    return ++limit->calls > limit->most;
}
int main(void)
{
    const struct m_workspace_pools pools = { .sram = sram };
    struct m_inputs in;
    struct m_outputs out;
    struct limit limit = { 0, 2 };
    const struct m_probe probe = { count, &limit };
    m_map_io(&pools, &in, &out);
    printf("%ld; ", (long)m_run(&in, &out, &pools, NULL));
    printf("%ld; ", (long)m_run(&in, &out, &pools, &probe));
    printf("%ld", (long)m_run(&in, &out, &pools, &probe));
    return 0;
}
"""


@pytest.mark.host_c
def test_a_callback_sees_each_operator_and_cancels_a_run(tmp_path, module_of) -> None:
    tree = emit_model(module_of(adder()), {}, EmitOptions(emit_probe_callback=True))
    assert (
        program(tmp_path, tree, PROBED_MAIN)
        == "0; 0.0 32 1; 0.1 32 1; 0; 0.0 32 1; -11"
    )


DESCRIBED_MAIN = """
#include <stdio.h>
#include <string.h>
#include "m_descriptor.h"
#include "other_descriptor.h"
static const struct firmwright_model *const models[] = { &m_descriptor, &other_descriptor };
static uint8_t memory[256] __attribute__((aligned(16)));
int main(void)
{
    for (int i = 0; i < 2; ++i) {
        const struct firmwright_model *model = models[i];
        const struct firmwright_tensor *x = &model->inputs[0], *y = &model->outputs[0];
        uint8_t *pools[] = { memory };
        void *inputs[1], *outputs[1];
        printf("%s %s %d ", model->version, model->pools[0].name, (int)model->pool_count);
        printf("%s %s %g ", x->name, x->dtype, (double)x->scale);
        printf("%d ", (int)model->prepare(pools) | (int)model->map_io(pools, inputs, outputs));
        memset(inputs[0], 0, x->size_bytes);
        printf("%d ", (int)model->run(pools, inputs, outputs));
        printf("%d %02x\\n", ((int *)outputs[0])[y->elements - 1], model->id[15]);
    }
    return 0;
}
"""


@pytest.mark.host_c
def test_code_for_many_models_uses_their_descriptors(tmp_path, module_of) -> None:
    options = EmitOptions(emit_descriptor=True, tool_version="2")
    trees = [
        emit_model(module_of(adder(values=values), name=name), {}, options)
        for name, values in (("m", np.arange(COUNT)), ("other", [9] * COUNT))
    ]
    whole = SourceTree({**trees[0].files, **trees[1].files})
    last = [model_id(tree)[-2:] for tree in trees]
    assert program(tmp_path, whole, DESCRIBED_MAIN).splitlines() == [
        f"m, firmwright 2 sram 1 serving/x:0 int32 0.5 0 0 7 {last[0]}",
        f"other, firmwright 2 sram 1 serving/x:0 int32 0.5 0 0 9 {last[1]}",
    ]


CALLER_MAIN = """
#include <stdio.h>
#include <stddef.h>
#include "m.h"
int main(void)
{
    static const int32_t x[M_T_X_ELEMENTS] = { 1, 2, 3 };
    int32_t y[M_T_Y_ELEMENTS];
    const struct m_workspace_pools pools = { NULL };
    const struct m_inputs in = { .t_x = x };
    const struct m_outputs out = { .t_y = y };
    const struct m_outputs nowhere = { .t_y = NULL };
    printf("%ld ", (long)m_run(&in, &out, &pools));
    printf("%ld ", (long)m_run(&in, &nowhere, &pools));
    printf("%ld", (long)(x[2] + y[2]));
    return 0;
}
"""


@pytest.mark.host_c
def test_the_callers_buffers_are_read_in_place_and_kept(tmp_path, module_of) -> None:
    tree = emit_model(caller_module(module_of), {})
    assert program(tmp_path, tree, CALLER_MAIN) == "0 -1 20"
    assert "map_io" not in str(tree.files["model/m.h"])


PROBE_MAIN = """
#include <stdio.h>
#include "m.h"
#include "probe.h"
void probe(int32_t index, int32_t phase, const void *output, uint32_t bytes)
{
    printf("%ld.%ld %lu %d; ", (long)index, (long)phase, (unsigned long)bytes, output != NULL);
}
static uint8_t sram[M_SRAM_SIZE] __attribute__((aligned(M_SRAM_ALIGN)));
int main(void)
{
    const struct m_workspace_pools pools = { .sram = sram };
    struct m_inputs in;
    struct m_outputs out;
    m_map_io(&pools, &in, &out);
    return m_run(&in, &out, &pools) != M_OK;
}
"""


@pytest.mark.host_c
def test_probes_surround_each_operator(tmp_path, module_of) -> None:
    (tmp_path / "probe.h").write_text(
        "#include <stdint.h>\nvoid probe(int32_t, int32_t, const void *, uint32_t);\n"
    )
    tree = emit_model(module_of(adder()), {})
    flags = ('-DM_PROBE_HEADER="probe.h"', "-DM_PROBE=probe", f"-I{tmp_path}")
    assert program(tmp_path, tree, PROBE_MAIN, *flags) == "0.0 32 1; 0.1 32 1; "


# ---- pools ---------------------------------------------------------------------------


def test_the_interface_knows_whether_a_run_consumes_its_input(module_of) -> None:
    module = module_of(adder())
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    assert not build_interface(module, main, ModelNames("m")).consumes_input
    second = main.body.body  # type: ignore[union-attr]  # the window of y
    moved = replace(
        second, source=replace(second.source, offset=main.body.source.offset)
    )  # type: ignore[union-attr]
    overlapped = replace(main, body=replace(main.body, body=moved))  # type: ignore[type-var]
    assert build_interface(
        module.with_function(overlapped), overlapped, ModelNames("m")
    ).consumes_input


def test_pools_of_the_glue_are_in_their_sections(module_of) -> None:
    module = replace(
        module_of(adder()), pools=(PoolInfo("sram", 1000, section=".noinit.ram"),)
    )
    glue = str(emit_model(module, {}).files["firmware/fwr_app.c"])
    assert (
        'APP_SECTION(".noinit.ram")\n#if FWR_GUARDS\nstatic uint8_t guarded_sram['
        in glue
    )
    assert "#else\nstatic uint8_t pool_sram[M_SRAM_SIZE];\n#endif" in glue


# ---- every compiler ------------------------------------------------------------------

TARGETS = [
    ("gcc",),
    ("clang",),
    ("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"),
    ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"),
    (
        "riscv64-unknown-elf-gcc",
        "-march=rv32imac",
        "-mabi=ilp32",
        "--specs=picolibc.specs",
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize("command", TARGETS, ids=lambda c: "-".join(c[:2]))
@pytest.mark.parametrize("kind", ["arena", "caller", "unlinked"])
def test_model_and_glue_compile_without_a_warning(
    tmp_path, module_of, command, kind
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}, not found on PATH")
    makers = {"caller": caller_module, "unlinked": unlinked_module}
    module = makers[kind](module_of) if kind in makers else module_of(adder())
    emit_model(module, {}).write(tmp_path)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
    flags += [
        "-Wdouble-promotion",
        "-Werror",
        f"-I{runtime_dir()}",
        f"-I{tmp_path / 'model'}",
    ]
    for file in ("model/m.c", "firmware/fwr_app.c"):
        for profile in ("-DFWR_PROFILE=0", "-DFWR_PROFILE=1"):
            done = subprocess.run(
                [
                    *command,
                    *flags,
                    profile,
                    "-c",
                    str(tmp_path / file),
                    "-o",
                    str(tmp_path / "o"),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr


def test_the_header_is_c_plus_plus_too(tmp_path, module_of) -> None:
    text = str(emit_model(module_of(adder()), {}).files["model/m.h"])
    assert text.count("#ifdef __cplusplus") == 2
    assert 'extern "C" {' in text


def test_int8_is_the_plain_type_of_a_byte_tensor(module_of) -> None:
    b = Builder("copy")
    x, y = (b.buffer_param(n, INT8, (4,), r) for n, r in (("x", "in"), ("y", "out")))  # type: ignore[arg-type]
    b.store(y, [0], b.load(x, [0]))
    assert "    int8_t *t_x;" in str(emit_model(module_of(b), {}).files["model/m.h"])
