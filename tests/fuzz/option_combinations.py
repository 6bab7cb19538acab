"""Random combinations of all options that change the code, with a board and a compiler.

A seed determines the combination. Options that contradict each other are not drawn
together, so that a refused combination is worth a look.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from firmwright.ir.core import PoolInfo

BOARDS = {
    "host": 4,
    "microbit": 1,
    "mps2-an385": 4,
    "mps2-an386": 4,
    "mps2-an505": 4,
    "mps3-an547": 4,
    "mps2-an500": 4,
    "qemu-riscv32-virt": 4,
    "qemu-riscv32-virt-v": 4,
}
"""The most models in an image by board: `host` has no emulator, `microbit` 16 KiB."""
COMPILERS_BY_BOARD = {
    "host": ("gcc", "gcc", "clang", "zig"),
    "qemu-riscv32-virt-v": ("zig",),
}
COMPILERS = ("gcc", "gcc", "gcc", "clang")
TWO_CORES = "mps2-an521"
HOST_TARGETS = (
    "",
    "cortex-m -mcpu=cortex-m4",
    "cortex-m -mcpu=cortex-m55",
    "cortex-m -mcpu=cortex-m0",
    "riscv32 -march=rv32imac",
)


@dataclass(frozen=True)
class Combination:
    """The options of a compilation, and how the models share an image."""

    board: str
    compiler: str
    models: int
    is_concurrent: bool
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.board, self.compiler, f"{self.models} models"]
        words += ["concurrent"] if self.is_concurrent else []
        return " ".join(
            [*words, *(f"{name}={value}" for name, value in self.options.items())]
        )


def random_combination(seed: int, board: str = "", models: int = 0) -> Combination:
    """Return the combination of the seed; board and number of models may be given."""
    rng = random.Random(f"options {seed}")
    drawn = rng.choice([*BOARDS, TWO_CORES])
    board = board or drawn
    compiler = rng.choice(COMPILERS_BY_BOARD.get(board, COMPILERS))
    drawn_models = rng.choice([1, BOARDS.get(board, 1)])
    models = models or drawn_models
    options = _draw(rng, board)
    is_divided = board == TWO_CORES or (board == "host" and rng.random() < 0.2)
    if is_divided and models <= BOARDS.get(board, 1):
        models = 1
        for name in ("io_buffers", "emit_step_api", "emit_probe_callback"):
            options.pop(name, None)
        options |= _draw_devices(rng)
    elif models == 1:
        options |= _draw_for_one_model(rng)
    return Combination(
        board, compiler, models, models > 1 and rng.random() < 0.3, options
    )


def _draw(rng: random.Random, board: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "optimize": rng.choice(["balanced", "ram", "speed", "size"])
    }
    if board == "host":
        options["target"] = rng.choice(HOST_TARGETS)
    if rng.random() < 0.3:
        options["flash_bytes"] = rng.choice([20_000, 60_000, 200_000])
    if rng.random() < 0.3:
        options["planner"] = rng.choice(
            ["greedy_by_size", "greedy_by_conflicts", "hill_climb"]
        )
    for name, chance in (
        ("compress_weights", 0.3),
        ("recompute", 0.2),
        ("preserve_input", 0.3),
        ("emit_step_api", 0.2),
        ("emit_probe_callback", 0.1),
    ):
        if rng.random() < chance:
            options[name] = True
    if rng.random() < 0.25:
        options["inline_asm"] = False
    if rng.random() < 0.25:
        options["io_buffers"] = "caller"
    return options


def _draw_devices(rng: random.Random) -> dict[str, Any]:
    """Return a second core, or an accelerator that works beside the core."""
    if rng.random() < 0.5:
        return {"devices": ("cpu0", "cpu1")}
    speed = rng.choice([1, 2, 8])
    return {
        "target": f"vanilla -macs-per-cycle={speed}",
        "pipeline_runs": rng.random() < 0.6,
    }


def _draw_for_one_model(rng: random.Random) -> dict[str, Any]:
    """Return options that images with several models do not have."""
    options: dict[str, Any] = {}
    form = rng.choice(["", "", "rows", "params", "pool", "tvm", "header"])
    match form:
        case "rows":
            options["stream_input_rows"] = True
        case "params":
            options["link_params"] = False
        case "pool":
            options["const_pools"] = (PoolInfo("weights", 1 << 20, access="ro"),)
        case "tvm":
            options["c_api"] = "tvm"
        case "header":
            options["constants_in_header"] = True
    return options
