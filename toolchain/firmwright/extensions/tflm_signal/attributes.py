"""Attributes of the operators of TFLM's signal library."""

from dataclasses import dataclass
from typing import Literal

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class FftAttrs(OpAttrs):
    length: int
    """Samples of the transform, a power of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StftAttrs(OpAttrs):
    length: int
    """Samples of a frame and of its transform, a power of two."""
    step: int
    """Samples from one frame to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFunctionAttrs(OpAttrs):
    shift: int
    """Bits that the products lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrumEnergyAttrs(OpAttrs):
    start_index: int
    """First bin whose energy is computed."""
    end_index: int
    """Bin after the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBankAttrs(OpAttrs):
    num_channels: int
    """Number of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectralSubtractionAttrs(OpAttrs):
    """Channels alternate between two factors of smoothing."""

    alternate_one_minus_smoothing: int
    """1 - smoothing of odd channels, in units of 2 ^ -spectral_subtraction_bits."""
    alternate_smoothing: int
    """Weight of a new value in odd channels, in the same units."""
    clamping: Literal[0, 1]
    """1 limits the estimate of the noise to the signal."""
    min_signal_remaining: int
    """Part of the signal that is left at least, in the same units."""
    num_channels: int
    """Number of channels."""
    one_minus_smoothing: int
    """1 - smoothing of even channels, in the same units."""
    smoothing: int
    """Weight of a new value in even channels, in the same units."""
    smoothing_bits: int
    """Bits that are added to the signal before smoothing."""
    spectral_subtraction_bits: int
    """Binary digits of the factors after the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcanAttrs(OpAttrs):
    snr_shift: int
    """Bits that the ratio of signal and noise loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBankLogAttrs(OpAttrs):
    input_correction_bits: int
    """Bits that are added to the input."""
    output_scale: int
    """Factor of the logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FramerAttrs(OpAttrs):
    frame_size: int
    """Samples of a frame."""
    frame_step: int
    """Samples from one frame to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackerAttrs(OpAttrs):
    num_channels: int
    """Values of a frame."""
    left: int
    """Frames before the current one in a stack."""
    right: int
    """Frames after the current one in a stack."""
    step: int
    """Frames from one stack to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapAddAttrs(OpAttrs):
    frame_step: int
    """Samples from one frame to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircularBufferAttrs(OpAttrs):
    cycles: int = 1
    """Runs from one execution of the operators behind the buffer to the next."""
