"""transpose_conv with several output channels at a time: each input element is loaded once."""

from collections.abc import Sequence

from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import lower_convolution
from firmwright.ops.kernel import Kernel
from firmwright.ops.transpose_conv import taps
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops

_LANES = 4
_TIME_MAX = 0.9


def _configs(op: OpCall) -> Sequence[Config]:
    return [{"lanes": _LANES}] if op.input(1).shape[0] >= _LANES else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    lower_convolution(op, b, taps=taps, lanes=int(config["lanes"]))
    b.transform = unroll_inner_loops


SCHEDULES = (
    Schedule(
        "scalar.transpose_conv.lanes", "transpose_conv", frozenset({"offsets"}), _configs, _build,
        disable_scheduling=True, takes_weight_zero_point=True, time_max=_TIME_MAX,
    ),
)  # fmt: skip
