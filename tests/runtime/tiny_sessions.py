"""Sessions with the tiny firmware, which doubles its input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session

Build = Callable[..., Path]

X = "serving_default_x:0"
Y = "doubled/a name longer than one first frame of sixty-four bytes could carry"
SIZE = 600
MODEL_ID = bytes([*range(15), 255])
HANG, CRASH, FAIL = -128, -127, -126


def ramp(first: int = 1) -> dict[str, NDArray[Any]]:
    values = (np.arange(SIZE) % 60).astype(np.int8)
    values[0] = first
    return {X: values}


def doubled(inputs: dict[str, NDArray[Any]]) -> list[int]:
    return [int(value) * 2 for value in inputs[X]]


def open_session(program: Path, **options: Any) -> Session:
    return Session(ProcessTransport([program]), **options)
