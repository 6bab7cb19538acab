"""Settings of a compilation: what the user asks for, and facts of the board.

They are fixed before the first pass (`pipeline/configuration.py`); passes read them
only. What passes find is in `ir/pass_results.py`. Sizes are in bytes, times in cycles
of the core.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from firmwright.ir.bounded_axis import BoundedAxis

NumericsProfile: TypeAlias = Literal["litert", "tflm", "onnx"]
"""The runtime that defines the results."""
OffloadRequests: TypeAlias = tuple[tuple[str, str], ...]
"""Tensors, each with TARGET or TARGET:PERCENT."""


class Minimize(StrEnum):
    """What kernels are selected for; `BALANCED` weighs time, flash and RAM."""

    SPEED = "speed"
    SIZE = "size"
    RAM = "ram"
    BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class Objective:
    """The goal of selection and the budgets; None is no budget.

    With `has_coded_weights`, large constants may be stored in a code that kernels
    decode, if that makes the image smaller.
    """

    minimize: Minimize = Minimize.BALANCED
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    has_coded_weights: bool = False

    @property
    def has_free_ram(self) -> bool:
        """Whether the pools have the board's sizes, not those of a user's budget."""
        return self.ram_bytes is None


@dataclass(frozen=True, slots=True)
class ReadSpeed:
    """Bytes per cycle of a sequential read, and cycles before its first byte."""

    bandwidth: float
    latency: int | None = None


@dataclass(frozen=True, slots=True)
class FlashTiming:
    """What flash with wait states requires of the code; nothing by default.

    `ramfunc_bytes` is the room for functions that run from RAM. `has_short_loops` asks
    for loops that fit a small cache. `stalls_per_byte` is the time of a read of
    constants that no cache holds, 0 if unknown. `program_memory` is its speed if
    constants may be copied to RAM.
    """

    ramfunc_bytes: int = 0
    has_short_loops: bool = False
    stalls_per_byte: float = 0.0
    program_memory: ReadSpeed | None = None


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a program besides the main core.

    `names` lists all that compute, the main core first, or is empty if it is the only
    one. `copiers` execute copies between memories, by default the main core. With
    `has_fallback` the main core executes the calls that a device rejects or aborts.
    `emulated_engines` are the accelerators that the second core emulates.
    """

    names: tuple[str, ...] = ()
    copiers: tuple[str, ...] = ()
    has_fallback: bool = False
    emulated_engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """The model file of a module: its hash ("" if unknown) and its subgraph's index."""

    sha256: str = ""
    subgraph: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a compilation; by default those of a module without a board.

    Attributes:
        numerics: The runtime that defines the results; None until it is chosen means
            LiteRT.
        board: The name of the board, "" before the module is configured.
        planner: The name of the memory planner, "" for the default.
        tuning: The digest of the tuning log, "" without one.
        link_params: Whether constants are linked into the image.
        recompute: Whether tensors may be computed twice to save RAM.
        pipeline_runs: Whether consecutive runs overlap in two stages.
        weight_independent: Whether the code suits all weights of the same shapes.
        no_nan: Whether the user promises that no float is NaN.
        all_channels: Whether kernels compute even channels that no input changes.
        harden: Whether a run checks its memory by checksums.
        offload: Operators that the user assigns to targets, removed when they are
            assigned.
        axis: The axis whose size every run gives, or None.
    """

    numerics: NumericsProfile | None = None
    objective: Objective = Objective()
    flash: FlashTiming = FlashTiming()
    devices: Devices = Devices()
    board: str = ""
    planner: str = ""
    tuning: str = ""
    link_params: bool = True
    recompute: bool = False
    pipeline_runs: bool = False
    weight_independent: bool = False
    no_nan: bool = False
    all_channels: bool = False
    harden: bool = False
    offload: OffloadRequests = ()
    axis: BoundedAxis | None = None

    @property
    def largest_size(self) -> dict[str, int]:
        """The scalar parameter of the axis, if any, with its largest value."""
        axis = self.axis
        return {} if axis is None else {axis.variable.name: axis.most}

    @property
    def profile(self) -> NumericsProfile:
        return self.numerics or "litert"
