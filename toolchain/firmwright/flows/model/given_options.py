"""The options of a compilation as a user gives them by name, before they are `Options`.

An option that is not given has the value that the model's module records, or else its
default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from firmwright.base.errors import InternalError
from firmwright.flows.model.tuning_log import read_tuning
from firmwright.ir.core import PoolInfo
from firmwright.ir.program_record import ProgramRecord
from firmwright.ir.settings import NumericsProfile, OffloadRequests
from firmwright.ops.tuning_records import NO_TUNING_RECORDS, TuningRecords
from firmwright.pipeline import Options
from firmwright.pipeline.user_passes import UserPass, make_user_pass


class _PlainOptions(TypedDict, total=False):
    """The options that a user gives by the values that `Options` has."""

    target: str
    offload: OffloadRequests
    numerics: NumericsProfile
    optimize: str
    planner: str
    io_buffers: str
    preserve_input: bool
    stream_input_rows: bool
    recompute: bool
    compress_weights: bool
    link_params: bool
    inline_asm: bool
    emit_step_api: bool
    emit_probe_callback: bool
    emit_descriptor: bool
    c_api: str
    name: str
    ram_bytes: int | None
    flash_bytes: int | None
    pools: tuple[PoolInfo, ...]
    pool_assignments: tuple[tuple[str, str], ...]
    const_pools: tuple[PoolInfo, ...]
    board_dirs: tuple[Path, ...]
    devices: tuple[str, ...]
    fallback: bool
    pipeline_runs: bool
    device_assignments: tuple[tuple[str, str, str], ...]
    c_standard: str
    sections: tuple[tuple[str, str], ...]
    license: str
    constants_in_header: bool
    constant_channels: bool
    analysis_hints: bool
    weight_independent: bool
    no_nan: bool
    harden: bool


class GivenOptions(_PlainOptions, total=False):
    """All options but the board; logs and earlier programs may be given by paths."""

    tuning: TuningRecords | str | Path
    passes: Sequence[UserPass]
    update_of: ProgramRecord | str | Path | None


class OptionValues(GivenOptions, total=False):
    """The options with the board's name."""

    board: str


def to_option_values(values: Mapping[str, object]) -> OptionValues:
    """Return values whose kinds a reader has checked, such as the command line's."""
    return cast(OptionValues, dict(values))


def make_options(values: OptionValues) -> Options:
    """Return `Options` with these values; an earlier program is a record by now."""
    plain = values.copy()
    board = plain.pop("board", Options().board)
    tuning = plain.pop("tuning", NO_TUNING_RECORDS)
    passes = tuple(map(make_user_pass, plain.pop("passes", ())))
    program = plain.pop("update_of", None)
    if isinstance(program, str | Path):
        raise InternalError(f"the earlier program {program} has not been read")
    if not isinstance(tuning, TuningRecords):
        tuning = read_tuning(tuning)
    rest: _PlainOptions = plain
    return Options(board=board, tuning=tuning, passes=passes, update_of=program, **rest)
