"""Weights of the cost model: instructions, cycles and code bytes (cost_weights.txt)."""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.text_sections import read_sections
from firmwright.ir.core import Target
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights
from firmwright.ir.tir.op_count import REGISTERS
from firmwright.targets.registry import target_features

_MEASURED_KINDS = ("cortex-m", "cortex-r", "riscv32", "xtensa")
"""Kinds of cores whose instructions were counted; of Cortex-R, those of Cortex-M."""
_SAME_CYCLES = {"cortex-m33": "cortex-m4"}
_CALL_BYTES = 8.0
"""Code bytes of a call of a float routine."""
_FPU_CODE_BYTES = 4.0
_RISCV_REGISTERS = 20
_XTENSA_REGISTERS = 12
_ACCESSES = ("load", "store", "accessed")
_THUMB1_REGISTERS = 5
"""Registers besides operands; only eight of sixteen do arithmetic or addressing."""


def cost_weights_for(target: Target | None) -> CostWeights:
    """Return the weights for a target, generic ones if its family was not measured."""
    if target is None or target.kind not in _MEASURED_KINDS:
        return GENERIC_WEIGHTS
    mcpu = str(target.attr("mcpu"))
    has = target_features(target)
    if target.kind == "riscv32":
        weights = _weights("riscv32", "riscv", mcpu, _RISCV_REGISTERS)
        if "fpu" in has:
            return _with_fpu(weights, "cortex-m4")
        return _with_counted(weights, "rvp") if "rvp" in has else weights
    if target.kind == "xtensa":
        weights = _weights("Xtensa", "riscv", mcpu, _XTENSA_REGISTERS)
        return _with_counted(weights, "xtensa")
    if "dsp" in has:
        family, name = ("helium", "Helium") if "mve" in has else ("dsp", "DSP")
        weights = _weights(f"cortex-m with {name}", family, mcpu)
        if "fpu" not in has:
            return weights
        return _with_fpu(weights, "vmla" if "vmla" in has else "cortex-m4")
    if "thumb1" in has:
        return _weights("Armv6-M", "armv6m", mcpu, _THUMB1_REGISTERS)
    return _weights("cortex-m without DSP", "thumb2", mcpu)


def _weights(
    name: str, family: str, mcpu: str, registers: int = REGISTERS
) -> CostWeights:
    doubles = _SOFT_DOUBLE.get(family, {})
    soft = {**_SOFT_FLOAT.get(family, {}), **doubles}
    timed = _SAME_CYCLES.get(mcpu, mcpu)
    cycles: dict[str, float] = {}
    if timed in _WORK:
        cycles = {**_WORK[timed], **soft, **_SOFT_FLOAT.get(timed, {})}
    instructions = {**_WORK[family], **soft}
    is_priced = cycles.get("program_cycles", 0.0) > 0
    return CostWeights(
        name,
        instructions,
        cycles,
        code_bytes={**_CODE_BYTES[family], **dict.fromkeys(soft, _CALL_BYTES)},
        registers=registers,
        run_cycles=_run_cycles(mcpu, instructions, cycles),
        image=_IMAGE[family],
        core=timed if is_priced else "",
    )


def _run_cycles(
    mcpu: str, instructions: Mapping[str, float], cycles: Mapping[str, float]
) -> dict[str, float]:
    """Return the weights of a run's cycles: scaled ones, or those of instructions."""
    factors = _RUN.get(mcpu, {})
    if cycles:
        scale = factors.get("scale", 1.0)
        return {kind: scale * cost for kind, cost in cycles.items()}
    if not factors:
        return {}
    weights = {kind: factors["scale"] * cost for kind, cost in instructions.items()}
    for kind in _ACCESSES:
        weights[kind] = weights.get(kind, factors["scale"]) + factors["access"]
    weights["block"] = weights.get("block", factors["scale"]) + factors["block"]
    return weights


def _with_counted(weights: CostWeights, column: str) -> CostWeights:
    instructions = {**weights.instructions, **_COUNTED[column]}
    return replace(weights, instructions=instructions)


def _with_fpu(weights: CostWeights, column: str) -> CostWeights:
    instructions = {**weights.instructions, **_FPU[column]}
    cycles = {**weights.cycles, **_FPU["cycles"]} if weights.cycles else {}
    run_cycles = weights.run_cycles
    if run_cycles:
        run_cycles = {**run_cycles, **_FPU["cycles"]}
    code_bytes = {kind: _FPU_CODE_BYTES * count for kind, count in _FPU[column].items()}
    return replace(
        weights,
        instructions=instructions,
        cycles=cycles,
        code_bytes={**weights.code_bytes, **code_bytes},
        run_cycles=run_cycles,
    )


def _columns(text: str) -> dict[str, dict[str, float]]:
    """Return a table by column and kind of work."""
    (_, *names), *rows = (line.split() for line in text.splitlines())
    columns: dict[str, dict[str, float]] = {name: {} for name in names}
    for kind, *cells in rows:
        for name, cell in zip(names, cells, strict=True):
            if cell != "-":
                columns[name][kind] = float(cell)
    return columns


def _rows(text: str) -> dict[str, dict[str, float]]:
    """Return a table by row and column."""
    rows: dict[str, dict[str, float]] = {}
    for name, cells in _columns(text).items():
        for key, value in cells.items():
            rows.setdefault(key, {})[name] = value
    return rows


_TEXT = read_sections(__file__, ".txt")
_WORK = _columns(_TEXT["work"])
_COUNTED = _columns(_TEXT["counted"])
_CODE_BYTES = _columns(_TEXT["code_bytes"])
_SOFT_FLOAT = _columns(_TEXT["soft_float"])
_SOFT_DOUBLE = _columns(_TEXT["soft_double"])
_FPU = _columns(_TEXT["fpu"])
_RUN = _rows(_TEXT["run"])
_IMAGE = _columns(_TEXT["image"])
