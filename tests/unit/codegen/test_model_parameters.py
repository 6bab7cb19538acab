"""Constants of a model: parameter blocks, and arrays that models share."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace

import pytest

from firmwright.artifacts import SourceTree
from firmwright.codegen.constant_arrays import (
    emit_shared_constants,
    find_shared_constants,
    shared_symbols,
)
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from tests.unit.codegen.adder_models import adder, program, unlinked_module

PARAMS_MAIN = """
#include <stdio.h>
#include "m.h"
static uint8_t sram[M_SRAM_SIZE] __attribute__((aligned(M_SRAM_ALIGN)));
static uint8_t block[M_PARAMS_SIZE] __attribute__((aligned(M_PARAMS_ALIGN)));
int main(int argc, char **argv)
{
    const struct m_workspace_pools pools = { .sram = sram };
    struct m_params params;
    struct m_inputs in;
    struct m_outputs out;
    FILE *file = fopen(PARAMS, "rb");
    if (file == NULL || fread(block, 1, sizeof block, file) != sizeof block || argc != 1) {
        return argv[0] != NULL;
    }
    fclose(file);
    block[0] ^= 1;
    block[sizeof block - 1] ^= 1;
    printf("%ld ", (long)m_map_params(block, &params));
    block[sizeof block - 1] ^= 1;
    printf("%ld ", (long)m_map_params(block + 1, &params));
    block[0] ^= 1;
    printf("%ld ", (long)m_map_params(block, &params));
    m_map_io(&pools, &in, &out);
    printf("%ld ", (long)m_run(&in, &out, &pools, &params));
    printf("%ld ", (long)m_run(&in, &out, &pools, NULL));
    printf("%ld", (long)out.t_y[3]);
    return 0;
}
"""


@pytest.mark.host_c
def test_constants_that_are_not_linked_come_through_the_block(
    tmp_path, module_of
) -> None:
    tree = emit_model(unlinked_module(module_of), {})
    flag = f'-DPARAMS="{tmp_path / "model" / "m.params.bin"}"'
    assert program(tmp_path, tree, PARAMS_MAIN, flag) == "-9 -2 0 0 -1 21"


def test_the_parameter_index_has_the_offset_of_each_constant(module_of) -> None:
    tree = emit_model(unlinked_module(module_of), {})
    block = tree.files["model/m.params.bin"]
    assert isinstance(block, bytes)
    rows = json.loads(str(tree.files["model/m.params.json"]))["params"]
    assert [row["name"] for row in rows] == ["add_0_c"]
    for row in rows:
        data = block[row["offset"] : row["offset"] + row["size_bytes"]]
        assert hashlib.sha256(data).hexdigest() == row["sha256"]
        assert row["dtype"] == "int32"
    assert "model/m_weights.h" not in tree.files


@pytest.mark.host_c
@pytest.mark.gcc  # and nm beside it
def test_equal_constants_of_two_models_are_one_array_in_the_image(
    tmp_path, module_of
) -> None:
    modules = [
        module_of(adder(), name="one"),
        module_of(adder("other_add"), name="two"),
    ]
    shared = find_shared_constants(modules)
    tree = emit_shared_constants(shared)
    for module in modules:
        options = EmitOptions(shared=shared_symbols(shared))
        files = emit_model(module, {}, options).files
        kept = {path: text for path, text in files.items() if path.startswith("model/")}
        tree = tree.merged(SourceTree(kept))
    main = '#include "one.h"\n#include "two.h"\nint main(void)\n{\n    return 0;\n}\n'
    program(tmp_path, tree, main)
    listed = subprocess.run(
        ["nm", str(tmp_path / "program")], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines()]
    assert [n for n in names if n.startswith("shared_")] == list(
        shared_symbols(shared).values()
    )
    assert not [n for n in names if n in ("one_add_0_c", "two_other_add_c")]


def test_equal_constants_of_one_model_are_one_array(module_of) -> None:
    module = module_of(adder())
    twin = replace(module.constants["add_0.c"], name="twin")
    text = str(
        emit_model(
            replace(module, constants={**module.constants, "twin": twin}), {}
        ).files
    )
    assert text.count("static const int32_t") == 1
