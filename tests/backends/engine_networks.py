"""Networks of int8 convolutions for accelerators with private pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module

KIND = "i8[1, 8, 8, 4] quant(12.0, -2)"
BANKS = (
    PoolInfo("sram"),
    PoolInfo("bank", targets=("vanilla",)),
    PoolInfo("bank1", targets=("vanilla_1",)),
)


def network(*edges: tuple[str, str]) -> IRModule:
    """Return convolutions, each with its own weights, and relus that run on the core.

    An edge to a name with "r" is a relu. The leaves are the results.
    """
    rng = np.random.Generator(np.random.PCG64(5))
    constants: dict[str, Constant] = {}
    lines = []
    for source, to in edges:
        if to.startswith("r"):
            lines.append(f"  %{to}: {KIND} = relu(%{source})")
            continue
        weights = rng.integers(-100, 100, (4, 3, 3, 4))
        biases = rng.integers(-100, 100, (4,))
        for name, array, dtype in (
            (f"w{to}", weights, INT8),
            (f"b{to}", biases, INT32),
        ):
            constants[name] = Constant.from_array(name, array, dtype)
        lines.append(
            f"  %{to}: {KIND} = conv2d(%{source}, "
            f"%w{to}: i8[4, 3, 3, 4] quant(0.01, 0) const @w{to}, "
            f"%b{to}: i32[4] quant(0.12, 0) const @b{to}) "
            '{stride=[1, 1], dilation=[1, 1], padding=[1, 1, 1, 1], activation="none"}'
        )
    declared = "\n".join(
        f"const @{c.name} = {c.dtype.short}[{', '.join(map(str, c.shape))}] sha256.{c.digest}"
        for c in constants.values()
    )
    leaves = {to for _, to in edges} - {source for source, _ in edges}
    results = ", ".join(f"%{name}" for name in sorted(leaves))
    body = "\n".join(lines)
    graph = f"graph @main(%x: {KIND}) -> ({results}) {{\n{body}\n}}\n"
    text = f"firmwright ir 2\nmodule @net\n{declared}\n{graph}"
    return replace(parse_module(text, structure_only=True), constants=constants)
