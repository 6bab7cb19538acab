"""C text of CMSIS-NN calls and their workspace sizes.

One function per kernel fills the library's structs. Workspace sizes are those of its
`arm_*_get_buffer_size` compiled by gcc or upstream clang. Source of names, members and
sizes: the public headers arm_nnfunctions.h and arm_nn_types.h.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import INT16, INT32, DType
from firmwright.base.rounding import divide_up, round_up
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.attributes.layers import TransposeConvAttrs, WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.targets.cores import CORE_KINDS
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.library_calls import write_library_call


def core_features(kernel: BackendKernel) -> frozenset[str]:
    core = kernel.module.targets.get("cpu", Target("c"))
    if core.kind != "cortex-m":
        return frozenset()
    return CORE_KINDS["cortex-m"].features(core)


def dtype_suffix(dtype: DType) -> str:
    """Return the suffix of the library's functions for activations of `dtype`."""
    return "s16" if dtype == INT16 else "s8"


def activation_pointer_type(dtype: DType) -> str:
    return "int16_t *" if dtype == INT16 else "int8_t *"


def c_shape(shape: Sequence[int]) -> str:
    """Return the cmsis_nn_dims initializer of a shape of at most four dimensions."""
    ones = [1] * (4 - len(shape))
    sizes = ", ".join(map(str, [*ones, *shape]))
    return f"{{{sizes}}}"


def c_tile(values: Sequence[int]) -> str:
    """Return the initializer of a cmsis_nn_tile (width, height) for (rows, columns)."""
    return f"{{{values[1]}, {values[0]}}}"


def write_wrapper_function(
    kernel: BackendKernel,
    params: Sequence[str],
    statements: str,
    arguments: Sequence[tir.Buffer],
) -> None:
    write_library_call(kernel, "arm_nnfunctions.h", params, statements, arguments)


def workspace_context(
    kernel: BackendKernel, size_bytes: int, name: str = "workspace"
) -> tuple[list[str], str, list[tir.Buffer]]:
    """Return the parameters, initializer and arguments for a cmsis_nn_context."""
    if not size_bytes:
        return [], "{NULL, 0}", []
    # Words: the library keeps int16 and int32 there.
    workspace = kernel.workspace(name, divide_up(size_bytes, 4), INT32)
    return [f"int32_t *{name}"], f"{{{name}, {size_bytes}}}", [workspace]


_MVE_LANES = 16
_MVE_CHANNELS = 124
"""Channels that the depthwise function for MVE processes at once."""
_FAST_TAPS = 512
"""The fast int16 depthwise function requires fewer taps than this."""
_REVERSED_CHANNELS = 16
"""With more channels, a transposed convolution convolves with the reversed kernel."""
_ONE_CHANNEL_OUTPUTS = 1
"""With MVE, one input channel with more outputs than this is a plain convolution."""


def conv_workspace_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Return the size for arm_convolve_wrapper_s8 or _s16."""
    outputs, height, width, depth = call.input(1).shape
    if call.input(0).dtype == INT16:
        column = height * width * depth
        return round_up(column, 8) * 8 if "mve" in features else 4 * column
    return _conv_bytes(call, (outputs, height, width, depth), features)


def _conv_bytes(
    call: OpCall, kernel: tuple[int, int, int, int], features: frozenset[str]
) -> int:
    attrs = call.attributes(WindowAttrs)
    _, height, width, depth = kernel
    padding, stride = attrs.padding, attrs.stride
    _, rows, _, channels = call.input(0).shape
    no_dilation = attrs.dilation == (1, 1)
    no_padding = padding[0] == padding[2] == 0
    is_point = (height, width) == (1, 1) and no_dilation and no_padding
    if is_point and depth == channels:
        return 0
    columns = height * width * channels
    if "mve" not in features:
        return 4 * round_up(columns, 4)
    whole = 4 * round_up(columns, _MVE_LANES)
    is_row = rows == 1 and height == 1 and no_dilation
    if is_row and stride[1] * channels % 4 == 0:
        return max(_row_bytes(call, width), whole)
    return whole


def _row_bytes(call: OpCall, width: int) -> int:
    """Return the size for the one-row function, which copies padded row ends."""
    attrs = call.attributes(WindowAttrs)
    depth = call.input(0).shape[3]
    left = attrs.padding[2]
    return (width + max(left, attrs.padding[3])) * depth


def depthwise_workspace_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Return the size for arm_depthwise_conv_wrapper_s8 or _s16."""
    attrs = call.attributes(WindowAttrs)
    batch, _, _, depth = call.input(0).shape
    _, height, width, outputs = call.input(1).shape
    if call.input(0).dtype == INT16:
        return _depthwise_int16_bytes(call, features)
    if "mve" in features and depth == 1 and outputs > _ONE_CHANNEL_OUTPUTS:
        plain = _conv_bytes(call, (outputs, height, width, 1), features)
        return plain + outputs * height * width
    if depth != outputs or batch != 1 or attrs.dilation != (1, 1):
        return 0
    if "mve" in features:
        return 4 * _MVE_CHANNELS * width * height
    padding = attrs.padding
    if (height, width) == (3, 3) and padding[0] <= 1 and padding[2] <= 1:
        return 0
    return 2 * depth * width * height if "dsp" in features else 0


def _depthwise_int16_bytes(call: OpCall, features: frozenset[str]) -> int:
    _, height, width, outputs = call.input(1).shape
    column = height * width * outputs
    if call.attributes(WindowAttrs).dilation != (1, 1):
        return 0
    if outputs != call.input(0).shape[3] or height * width >= _FAST_TAPS:
        return 0
    if "mve" in features:
        return 8 * column + 8
    return 2 * column if "dsp" in features else 0


def transpose_conv_workspace_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Return the size for arm_transpose_conv_wrapper_s8."""
    outputs, height, width, depth = call.input(1).shape
    if reversed_weights_bytes(call):
        column = height * width * depth
        if "mve" in features:
            return 4 * round_up(column, _MVE_LANES)
        return 4 * round_up(column, 4)
    down, right = call.attributes(TransposeConvAttrs).stride
    row = (call.input(0).shape[2] - 1) * right + max(width, down, right)
    return 4 * outputs * row * max(height, down)


def reversed_weights_bytes(call: OpCall) -> int:
    """Return the size of arm_transpose_conv_wrapper_s8's reversed weights, or 0."""
    outputs, height, width, depth = call.input(1).shape
    stride = call.attributes(TransposeConvAttrs).stride
    is_convolution = max(stride) <= 2 and depth > _REVERSED_CHANNELS
    return outputs * height * width * depth if is_convolution else 0


def average_pool_workspace_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Return the size for arm_avgpool_s8 or _s16."""
    if "dsp" not in features or "mve" in features:
        return 0
    return 4 * call.input(0).shape[3]
