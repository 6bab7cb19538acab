"""User options of a compilation."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from firmwright.base.errors import UsageError
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import Pass
from firmwright.ir.program_record import ProgramRecord
from firmwright.ir.settings import Minimize, NumericsProfile, Objective, OffloadRequests
from firmwright.ops.tuning_records import NO_TUNING_RECORDS, TuningRecords
from firmwright.usmp.planner_registry import DEFAULT_PLANNER as DEFAULT_PLANNER

OPTIMIZE_GOALS = tuple(goal.value for goal in Minimize)
NUMERICS = get_args(NumericsProfile)
C_APIS = ("own", "tvm")


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a compilation; the defaults are part of the public interface."""

    board: str = "host"
    target: str = ""
    offload: OffloadRequests = ()
    numerics: NumericsProfile = "litert"
    optimize: str = "balanced"
    planner: str = DEFAULT_PLANNER
    io_buffers: str = "arena"
    preserve_input: bool = False
    stream_input_rows: bool = False
    recompute: bool = False
    compress_weights: bool = False
    link_params: bool = True
    inline_asm: bool = True
    emit_step_api: bool = False
    emit_probe_callback: bool = False
    emit_descriptor: bool = False
    c_api: str = "own"
    name: str = ""
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    pools: tuple[PoolInfo, ...] = ()
    pool_assignments: tuple[tuple[str, str], ...] = ()
    const_pools: tuple[PoolInfo, ...] = ()
    board_dirs: tuple[Path, ...] = ()
    tuning: TuningRecords = NO_TUNING_RECORDS
    devices: tuple[str, ...] = ()
    fallback: bool = False
    pipeline_runs: bool = False
    device_assignments: tuple[tuple[str, str, str], ...] = ()
    c_standard: str = "c99"
    sections: tuple[tuple[str, str], ...] = ()
    license: str = ""
    passes: tuple[Pass, ...] = ()
    constants_in_header: bool = False
    analysis_hints: bool = False
    constant_channels: bool = True
    weight_independent: bool = False
    no_nan: bool = False
    harden: bool = False
    update_of: ProgramRecord | None = None

    @property
    def objective(self) -> Objective:
        """What `optimize` and the budgets mean.

        `balanced` is the fastest image within a budget.
        """
        minimize = Minimize(self.optimize)
        if minimize is Minimize.BALANCED and self.flash_bytes is not None:
            minimize = Minimize.SIZE
        return Objective(
            minimize, self.ram_bytes, self.flash_bytes, self.compress_weights
        )


def check_options(options: Options) -> None:
    for name, value, allowed in (
        ("numerics", options.numerics, NUMERICS),
        ("optimize", options.optimize, OPTIMIZE_GOALS),
        ("io-buffers", options.io_buffers, ("arena", "caller")),
        ("c-api", options.c_api, C_APIS),
    ):
        if value not in allowed:
            raise UsageError(
                f"--{name} cannot be {value!r}.", hint=f"one of {', '.join(allowed)}."
            )
    if options.weight_independent and options.compress_weights:
        what = (
            "--compress-weights depends on the weights, which --weight-independent "
            "must not."
        )
        raise UsageError(what, hint="omit one of them.")
