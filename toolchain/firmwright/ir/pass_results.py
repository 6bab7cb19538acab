"""What passes find out and later passes, verifiers, codegen or reports read."""

from dataclasses import dataclass

from firmwright.ir.core import Attr
from firmwright.ir.settings import OffloadRequests


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a backend does not take the operator that makes a tensor."""

    op: str
    tensor: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class PoolAccess:
    """The pools that calls of `target` ("" for cores) on `device` can access."""

    target: str
    device: str
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PassResults:
    """The state of a compilation besides functions, constants and plan.

    Attributes:
        stage: The last pass that has run, None before the first.
        user_passes: The passes of users that have run.
        partitioned: The backends to which operators were assigned, None before that was
            done.
        rejections: The operators that remain on the core, with the reasons of backends.
        offload_shares: The requests that have a percentage.
        pool_access: The pools that devices can access; empty if all can access all.
        device_waits: Devices, each with the C function that waits for its calls in
            flight.
        backend_checks: Library versions that a run checks first, as "function version".
        backend_records: The backends of a saved module (`targets/saved_backend.py`).
        live_channels: Values, each with the indices of the last axis that remain.
        pipelined_runs: The number of runs by which the outputs are later than their
            inputs.
        compressed_bytes: The flash that coded weights save, in bytes.
    """

    stage: str | None = None
    user_passes: tuple[str, ...] = ()
    partitioned: tuple[str, ...] | None = None
    rejections: tuple[Rejection, ...] = ()
    offload_shares: OffloadRequests = ()
    pool_access: tuple[PoolAccess, ...] = ()
    device_waits: tuple[tuple[str, str], ...] = ()
    backend_checks: tuple[str, ...] = ()
    backend_records: Attr = ()
    live_channels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    pipelined_runs: int = 0
    compressed_bytes: int = 0
