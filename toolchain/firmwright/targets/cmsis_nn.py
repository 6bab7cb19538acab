"""Backend cmsis-nn: kernels of Arm's library for int8 and int16.

Each operator becomes a C function that calls the library (decision 0041). The context buffer is
planned workspace of the size that `*_get_buffer_size` returns for the core (`dsp`, `mve` or
neither). The library rounds like TFLM; layers with other rounding (some with `--numerics litert`)
stay on the core.

The user's copy of the library is located by `--cmsis-nn PATH` or CMSIS_NN_PATH; the files of the
called functions are copied to the project. Source of signatures, buffer sizes and semantics: the
public header arm_nnfunctions.h.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firmwright.base.dtypes import INT8, INT16
from firmwright.base.errors import UsageError
from firmwright.base.quant import Rounding
from firmwright.ir.core import Target
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.graph.patterns import Match, constant, op, wildcard
from firmwright.ops.int16x8 import has_int64_sum
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.targets import cmsis_nn_weighted as layers
from firmwright.targets import cmsis_nn_weightless as values
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.library_sources import collect_needed_files

PATH_VARIABLE = "CMSIS_NN_PATH"
HEADER = "Include/arm_nnfunctions.h"
_WRITERS: Mapping[str, Callable[[BackendKernel, OpCall], None]] = {
    "conv2d": layers.write_convolution,
    "depthwise_conv2d": layers.write_convolution,
    "fully_connected": layers.write_fully_connected,
    "transpose_conv": layers.write_transpose_conv,
    "svdf": layers.write_svdf,
    "lstm": layers.write_lstm,
    "average_pool2d": values.write_pool,
    "max_pool2d": values.write_pool,
    "softmax": values.write_softmax,
    "add": values.write_add,
    "mul": values.write_mul,
    "batch_matmul": values.write_batch_matmul,
}
_WEIGHTED = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv")


class CmsisNn(Backend):
    """CMSIS-NN kernels for int8 and int16 layers on Cortex-M."""

    name = "cmsis-nn"
    doc = "CMSIS-NN, Arm's library of int8 and int16 kernels for Cortex-M"

    def patterns(self) -> Sequence[PatternEntry]:
        weighted = (wildcard(), constant(), constant(absent=True))
        rows = [
            PatternEntry(name, op(name, *weighted), _supports_weighted_layer) for name in _WEIGHTED
        ]
        others = [name for name in _WRITERS if name not in _WEIGHTED]
        return [*rows, *(PatternEntry(name, op(name), _supports_call) for name in others)]

    def generate(self, kernel: BackendKernel) -> None:
        (call,) = kernel.ops
        _WRITERS[call.op](kernel, call)

    def c_files(self, target: Target, symbols: frozenset[str]) -> Mapping[str, bytes]:
        return collect_needed_files(_library(), ("Include",), "Source", symbols)

    def library(self, target: Target) -> str:
        return hashlib.sha256((_library() / HEADER).read_bytes()).hexdigest()[:12]


def _library() -> Path:
    path = Path(os.environ.get(PATH_VARIABLE, ""))
    if not os.environ.get(PATH_VARIABLE) or not (path / HEADER).is_file():
        where = f"{path}" if os.environ.get(PATH_VARIABLE) else ""
        raise UsageError(
            f"the backend cmsis-nn needs a copy of the library that contains {HEADER}.",
            where=where,
            hint=f"--cmsis-nn PATH or the variable {PATH_VARIABLE}.",
        )
    return path


# ---- predicates ----------------------------------------------------------------------------------


def _supports_call(match: Match) -> bool:
    (call,) = match.ops
    if call.op == "svdf":
        kinds = [call.input(index).dtype for index in (0, 1, 2, 4)]
        return kinds == [INT8, INT8, INT16, INT16]
    if call.op == "lstm":
        return layers.supports_lstm(call)
    kinds = [kind.dtype for kind in (*call.inputs, call.output) if kind is not None]
    if kinds[0] not in (INT8, INT16) or len(set(kinds)) > 1:
        return False
    match call.op:
        case "softmax":
            return call.numerics == "tflm" or kinds[0] == INT16
        case "add" | "mul":
            variable = all(constant_value is None for constant_value in call.constants)
            return variable and call.input(0).shape == call.input(1).shape
        case "batch_matmul":
            return _supports_batch_matmul(call)
        case _:
            return call.ints_attr("dilation") == (1, 1) and not call.attrs.get("unsigned")


def _supports_batch_matmul(call: OpCall) -> bool:
    x, other = call.input(0).shape, call.input(1).shape
    if call.constant(0) is not None or call.int_attr("adj_x") or len(x) != len(other):
        return False
    turned = call.constant(1) is not None or bool(call.int_attr("adj_y"))
    return turned and len(x) <= 4 and x[:-2] == other[:-2]


def _supports_weighted_layer(match: Match) -> bool:
    (call,) = match.ops
    x, w = call.input(0), call.input(1)
    if x.dtype not in (INT8, INT16) or w.dtype != INT8 or call.output.dtype != x.dtype:
        return False
    if has_weight_zero_point(call):
        return False
    step = layers.requantize_step(call)
    if step is None or (x.dtype == INT16 and not _supports_int16_layer(call)):
        return False
    narrow = not has_int64_sum(call)
    if step.rounding != (Rounding.TWICE if narrow else Rounding.ONCE):
        return False
    return call.op != "conv2d" or w.shape[3] == x.shape[3]


def _supports_int16_layer(call: OpCall) -> bool:
    """Return whether the library supports an int16 layer; only conv2d may have a 32-bit bias."""
    if call.op == "transpose_conv":
        return False
    one_scale = call.op != "fully_connected" or len(layers.weight_scales(call)) == 1
    return one_scale and (call.op == "conv2d" or has_int64_sum(call))
