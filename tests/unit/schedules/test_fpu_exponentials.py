"""float32 logistic, tanh and softmax with inline exponentials, against doubles."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.fpu.logistic_tanh_softmax import INTRINSICS as OWN
from firmwright.schedules.fpu.logistic_tanh_softmax import SCHEDULES
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv_floats import exponentials as riscv

EDGES = [
    0.0,
    -0.0,
    0.625,
    -0.625,
    1e-30,
    -1e-30,
    9.1,
    -9.1,
    90.0,
    -90.0,
    -103.9,
    -200.0,
    np.inf,
]
EDGES += [-np.inf, np.nan]
VALUES = np.array([*np.linspace(-12, 12, 1185), *EDGES], np.float32).reshape(24, 50)


@pytest.mark.parametrize(
    "schedule", [*SCHEDULES[:6], *riscv.SCHEDULES], ids=lambda schedule: schedule.name
)
def test_values_are_within_four_units_in_the_last_place(schedule) -> None:
    x = VALUES[:-1] if schedule.op == "softmax" else VALUES
    kind = TensorType(x.shape, FLOAT32)
    call = OpCall(
        schedule.op, (kind,), (kind,), attrs_from_mapping(schedule.op, {"beta": 1.0})
    )
    kernel, y = Kernel("kernel", call), np.zeros_like(x)
    schedule.build(call, NO_CONFIG, kernel)
    interpret(kernel.build(), {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    (expected,) = op_table()[schedule.op].reference(call, [x])
    units = 4 * np.spacing(np.maximum(np.abs(expected), np.float32(1e-44)))
    same = (y == expected) | (np.isnan(y) & np.isnan(expected))
    assert (same | (np.abs(y - expected) <= units)).all()


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("exp", "units"), [(OWN[0], 2), (OWN[1], 1)], ids=["fpu", "soft"]
)
def test_the_c_text_is_within_some_units_in_the_last_place(
    exp, units, tmp_path: Path
) -> None:
    source = tmp_path / "exp.c"
    source.write_text(
        "#include <stdint.h>\nstatic float f(float x)\n{\n" + exp.portable + "\n}\n"
        "void all(const float *x, float *y, int n)\n{\n"
        "    for (int i = 0; i < n; ++i) {\n        y[i] = f(x[i]);\n    }\n}\n"
    )
    command = [
        "gcc",
        "-O1",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        "-o",
        "exp.so",
        "exp.c",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    tiny = -np.geomspace(1e-40, 1, 4000)
    x = np.concatenate(
        [np.linspace(-110, 0, 200_001), tiny, [-np.inf, np.nan]], dtype=np.float32
    )
    y = np.zeros_like(x)
    pointer = ctypes.POINTER(ctypes.c_float)
    ctypes.CDLL(str(tmp_path / "exp.so")).all(
        x.ctypes.data_as(pointer), y.ctypes.data_as(pointer), len(x)
    )
    exact = np.exp(x[:-1].astype(np.float64))
    unit = np.spacing(np.maximum(exact, 1e-44).astype(np.float32))
    assert (np.abs(y[:-1] - exact) <= units * unit).all()
    assert np.isnan(y[-1])
