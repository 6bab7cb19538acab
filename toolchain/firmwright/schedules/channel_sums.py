"""Sums over all axes but the last: each element is added to the sum of its channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.attributes.values import AxesAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig

_LANES = 4
"""The fewest channels of integers for which vectors are worth a call."""


@dataclass(frozen=True, slots=True)
class ChannelSums:
    """Images of `pixels` that are added, with `channels` adjacent elements each."""

    images: int
    pixels: int
    channels: int


def find_channel_sums(
    shape: Sequence[int], axes: Sequence[int], least: int
) -> ChannelSums | None:
    """Return the sums of a tensor over `axes` if they are of at least `least` channels.

    The axes that are kept before them count images.
    """
    sized = [axis for axis, n in enumerate(shape) if n > 1]
    reduced = [axis for axis in sized if axis in axes]
    kept = [axis for axis in sized if axis not in axes]
    first = min(reduced, default=0)
    images = [axis for axis in kept if axis < first]
    channels = prod(shape[axis] for axis in kept if axis > first)
    is_inner = all(axis > max(reduced, default=0) for axis in kept if axis > first)
    if not reduced or not is_inner or channels < least:
        return None
    pixels = prod(shape[axis] for axis in reduced)
    return ChannelSums(prod(shape[axis] for axis in images), pixels, channels)


def integer_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration for a mean or sum of int8 in one image."""
    x, attrs = op.input(0), op.attributes(AxesAttrs)
    if x.dtype != INT8 or attrs.float_order:
        return ()
    sums = find_channel_sums(x.shape, attrs.axes, _LANES)
    fits = sums is not None and (sums.images, sums.channels) == (1, x.shape[-1])
    return (NO_CONFIG,) if fits else ()
