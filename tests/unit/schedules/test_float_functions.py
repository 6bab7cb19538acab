"""The C text of functions in line, against double precision."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.schedules.fpu.float_functions import INTRINSICS

UNITS = {
    "fpu": {"erfc": 5, "erf": 3, "log": 1, "rsqrt": 2}
    | dict.fromkeys(("cos", "exp", "expm1"), 2),
    "soft": dict.fromkeys(
        ("cos", "erfc", "exp", "expm1", "log", "rsqrt", "sin", "tanh"), 1
    ),
}
UNITS["fpu"] |= dict.fromkeys(("sin", "tanh"), 2)
"""Units in the last place; other functions are exact."""
EXPONENTIALS = {"exp": np.exp, "tanh": np.tanh}


def arguments() -> np.ndarray:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 30_000, np.uint32).view(np.float32)
    ties = np.arange(-400, 400) / 2
    quarters = np.arange(-400, 400) * (np.pi / 2)
    edges = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        8388607.5,
        88.5,
        88.73,
        -87.3,
        -103.5,
        -105,
        9.05,
    ]
    near = random.uniform(-20, 20, 30_000)
    small = np.exp(random.uniform(-20, 1, 10_000))
    parts = [bits, near, 1 + near / 1000, small, -small, ties, quarters, edges]
    x = np.concatenate([part.astype(np.float32) for part in map(np.asarray, parts)])
    with np.errstate(all="ignore"):
        return np.concatenate([x, np.nextafter(x, np.float32(0))])


@pytest.mark.host_c
def test_functions_are_within_some_units_in_the_last_place(tmp_path: Path) -> None:
    source = "#include <math.h>\n#include <stdint.h>\n"
    for item in INTRINSICS:
        source += f"static float {item.name}(float x)\n{{\n{item.portable}\n}}\n"
        source += (
            f"void all_{item.name}(const float *x, float *y, int n)\n{{\n"
            f"    for (int i = 0; i < n; ++i) {{\n        y[i] = {item.name}(x[i]);\n    }}\n}}\n"
        )
    (tmp_path / "all.c").write_text(source)
    command = [
        "gcc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-ffp-contract=off",
    ]
    command += [
        "-fsanitize=undefined",
        "-fno-sanitize-recover",
        "-shared",
        "-fPIC",
        "all.c",
    ]
    subprocess.run([*command, "-o", "all.so", "-lm"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "all.so"))
    for item in INTRINSICS:
        family, name, _ = item.name.split("_")
        x = arguments()
        if name in ("sin", "cos"):
            x = x[~(np.abs(x) > 1e6)]
        y = np.zeros_like(x)
        pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (x, y))
        getattr(library, f"all_{item.name}")(*pointers, len(x))
        with np.errstate(all="ignore"):
            meaning = EXPONENTIALS.get(name, item.meaning)
            expected = meaning(x.astype(np.float64)).astype(np.float32)
            unit = np.spacing(np.maximum(np.abs(expected), np.float32(2e-38)))
            near = np.abs(y - expected) <= UNITS[family].get(name, 0) * unit
        same = (y == expected) | (np.isnan(y) & np.isnan(expected))
        assert (same | near).all(), (item.name, x[~(same | near)][:5])


def test_functions_without_a_bound_are_exact() -> None:
    named = {
        f"{family}_{name}_f32" for family, units in UNITS.items() for name in units
    }
    exact = {item.name for item in INTRINSICS} - named
    rounding = {
        f"{family}_{name}_f32" for family in UNITS for name in ("ceil", "floor", "rint")
    }
    rest = {f"{family}_{name}_f32" for family in UNITS for name in ("round", "sqrt")}
    assert exact == rounding | rest
