"""The signal library of TFLM: spectra, filter banks, and sample streams with state."""

from firmwright.base.extensions import Extension

_ATTRIBUTES = f"{__name__}.attributes"
_SCHEDULE_MODULES = (
    *("bank_schedules", "channel_schedules", "fft_schedules", "fft_vectors"),
    "float_fft_vectors",
    *("normalized_schedules", "root_schedules", "scale_schedules"),
    "window_schedules",
)
_OPERATOR_MODULES = ("fft", "filter_bank", "framing", "spectrum", "stft")

EXTENSION = Extension(
    name="tflm-signal",
    attributes={
        f"{_ATTRIBUTES}.FftAttrs": "irfft rfft",
        f"{_ATTRIBUTES}.StftAttrs": "stft",
        f"{_ATTRIBUTES}.WindowFunctionAttrs": "window",
        f"{_ATTRIBUTES}.SpectrumEnergyAttrs": "spectrum_energy",
        f"{_ATTRIBUTES}.FilterBankAttrs": "filter_bank",
        f"{_ATTRIBUTES}.SpectralSubtractionAttrs": "spectral_subtraction",
        f"{_ATTRIBUTES}.PcanAttrs": "pcan",
        f"{_ATTRIBUTES}.FilterBankLogAttrs": "filter_bank_log",
        f"{_ATTRIBUTES}.FramerAttrs": "framer",
        f"{_ATTRIBUTES}.StackerAttrs": "stacker",
        f"{_ATTRIBUTES}.OverlapAddAttrs": "overlap_add",
        f"{_ATTRIBUTES}.CircularBufferAttrs": "circular_buffer",
    },
    operators=tuple(f"{__name__}.{name}" for name in _OPERATOR_MODULES),
    schedules=tuple(f"{__name__}.{name}" for name in _SCHEDULE_MODULES),
    conformance_cases=(f"{__name__}.conformance_cases",),
    tflite_importers=(f"{__name__}.importers",),
    tflite_rewrites=(f"{__name__}.early_exits", f"{__name__}.spectrograms"),
)
