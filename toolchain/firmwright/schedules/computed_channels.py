"""Integer layers, and those of their channels that kernels compute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from firmwright.base.dtypes import INT8, Array, DType
from firmwright.base.rounding import round_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import channel_weights
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules.epilogue import (
    AddendSource,
    BindGroup,
    FormPreference,
    accumulator_bounds,
    fold_zero_point_into_bias,
    layer_requantization,
    make_epilogue,
)
from firmwright.schedules.skip_constant_channels import (
    ChannelOrder,
    ConstantChannels,
    constant_channel_values,
    no_constant_channels,
    order_computed_channels,
    select_channels,
    skip_channels,
)

_SMALL_SUM = 1 << 22
"""Sums up to this suit the kernels that pair channels (24 bits)."""


@dataclass(frozen=True)
class IntegerLayer:
    """A layer with `weights` [channel, tap] relative to their zero point.

    The input's zero point is part of the bias. Raw sums have no requantization.
    """

    weights: Array
    bias: Array
    requantization: Requantization | None
    input_dtype: DType = INT8

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Return the least and the greatest sum of each channel."""
        kind = self.input_dtype
        return accumulator_bounds(self.bias, self.weights, kind.min, kind.max)

    @cached_property
    def constant_channels(self) -> Mapping[int, int]:
        """Return the values of the channels whose outputs are all equal."""
        params = self.requantization
        return {} if params is None else constant_channel_values(params, *self.bounds)


@lru_cache(maxsize=8)  # all schedules of a layer ask for it, with each configuration
def integer_layer(op: OpCall) -> IntegerLayer:
    """Return the layer of a convolution or a fully connected operator."""
    weights = channel_weights(op).astype(np.int64)
    bias = fold_zero_point_into_bias(op, weights)
    for shared in (weights, bias):
        shared.flags.writeable = False
    return IntegerLayer(weights, bias, layer_requantization(op), op.input(0).dtype)


def raw_layer(weights: Array, bias: Array | None = None) -> IntegerLayer:
    """Return a layer whose sums, which begin at 0 or `bias`, are not requantized."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    starts = np.zeros(len(flat), np.int64) if bias is None else bias.astype(np.int64)
    return IntegerLayer(flat, starts, None)


@dataclass(frozen=True, slots=True)
class ComputedChannels:
    """The channels of a layer that a kernel computes: a table row for each.

    Rows are in groups of `group` channels. `weights` are [row, tap].
    """

    weights: Array
    bias: Array
    bounds: tuple[Array, Array]
    requantization: Requantization | None
    group: int
    order: ChannelOrder
    constants: ConstantChannels

    @property
    def params(self) -> Requantization:
        assert self.requantization is not None
        return self.requantization

    @property
    def taps(self) -> int:
        return int(self.weights.shape[1])

    def requantize(
        self,
        b: Kernel,
        odd_shift: int = 0,
        preference: FormPreference = FormPreference.FITTED,
        addends: AddendSource = AddendSource.TABLE,
    ) -> BindGroup:
        """Make the epilogue of the rows; see `make_epilogue`."""
        epilogue = make_epilogue(
            b,
            self.params,
            self.bounds,
            INT8,
            len(self.bias),
            odd_shift=odd_shift,
            preference=preference,
            addends=addends,
        )
        return epilogue.bind_group


def _suits_all(
    bounds: tuple[Array, Array],
    constant: Sequence[int],
    group_for: Callable[[int], int],
) -> bool:
    """Return whether to compute `constant` channels like the others.

    That is so if the others alone take as many groups, and the sums of the constant
    ones are small, so that no kernel with a limit of sums is lost.
    """
    low, high = bounds
    computed = len(low) - len(constant)
    if not computed or round_up(computed, group_for(computed)) < len(low):
        return False
    greatest = max(-low[constant].min(), high[constant].max())
    return bool(greatest < _SMALL_SUM)


def count_computed(op: OpCall) -> int:
    """Return how many channels of an int8 layer are not constant."""
    layer = integer_layer(op)
    return len(layer.weights) - len(_skippable_channels(op, layer))


def _skippable_channels(op: OpCall, layer: IntegerLayer) -> dict[int, int]:
    """Return the values of constant channels; none if the code must suit them all."""
    if op.any_weights or op.all_channels:
        return {}
    return dict(layer.constant_channels)


def computed_channels(
    b: Kernel,
    layer: IntegerLayer,
    group_for: Callable[[int], int] = lambda computed: 1,
    *,
    only_if_many: bool = False,
) -> ComputedChannels:
    """Order the channels of a layer that are not constant.

    `group_for` returns the channels of a group for a number of computed channels.
    Constant channels are computed, too, if that takes no more groups or, with
    `only_if_many`, if they are few.
    """
    low, high = layer.bounds
    params = layer.requantization
    outputs = len(layer.weights)
    constants = no_constant_channels(outputs)
    if layer.input_dtype == INT8:
        values = _skippable_channels(b.call, layer)
        if values and not _suits_all((low, high), list(values), group_for):
            constants = skip_channels(b, values, outputs, only_if_many=only_if_many)
    group = group_for(outputs - len(constants.values) or 1)
    order = order_computed_channels(b, constants, group)
    rows = list(order.rows)
    return ComputedChannels(
        weights=layer.weights[rows],
        bias=layer.bias[rows],
        bounds=(low[rows], high[rows]),
        requantization=None if params is None else select_channels(params, rows),
        group=group,
        order=order,
        constants=constants,
    )
