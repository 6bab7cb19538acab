"""Requests of the user for the place of a tensor, which every pass must keep.

A module lists its requests; `verify_requests.py` compares them with values, calls and
plan.
"""

from dataclasses import dataclass
from enum import Enum


class RequestOrigin(Enum):
    """Where the user wrote a request."""

    TEXT = "text"
    DEVICE_OPTION = "assign-device"
    POOL_OPTION = "assign-pool"


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A tensor that a device is to compute or hold, or that is to be in a pool.

    `named` is the tensor in the user's words if `tensor` is a result of a branch or
    loop that computes it. Lowering binds the request to `buffers` and `calls` of the
    AOT main: the names of the buffers that hold the tensor and the operator indices of
    the calls that compute it. A constant is first bound to the `kernels` that read it,
    then to the buffers of its copies.
    """

    tensor: str
    device: str = ""
    pool: str = ""
    origin: RequestOrigin = RequestOrigin.TEXT
    named: str = ""
    buffers: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, RequestOrigin, str]:
        """The request itself, without the places to which lowering bound it."""
        return self.tensor, self.device, self.pool, self.origin, self.named

    @property
    def reason(self) -> str:
        """The user's words, for messages."""
        tensor = self.named or self.tensor
        match self.origin:
            case RequestOrigin.TEXT:
                return "its own text"
            case RequestOrigin.DEVICE_OPTION:
                place = ":".join(filter(None, (self.device, self.pool)))
                return f"--assign-device {tensor}={place}"
            case RequestOrigin.POOL_OPTION:
                return f"--assign-pool {tensor}={self.pool}"
