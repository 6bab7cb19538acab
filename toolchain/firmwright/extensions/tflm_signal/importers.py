"""Importers of TFLM's signal library, with the state that files do not contain."""

from collections.abc import Mapping

from firmwright.base.dtypes import INT16, INT32
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import round_up
from firmwright.extensions.tflm_signal.attributes import (
    CircularBufferAttrs,
    FftAttrs,
    FilterBankAttrs,
    FilterBankLogAttrs,
    FramerAttrs,
    OverlapAddAttrs,
    PcanAttrs,
    SpectralSubtractionAttrs,
    SpectrumEnergyAttrs,
    StackerAttrs,
    StftAttrs,
    WindowFunctionAttrs,
)
from firmwright.extensions.tflm_signal.framing import streams
from firmwright.frontends.tflite.node_context import (
    ImplicitState,
    ImportContext,
    ImportedCall,
    Importer,
    input_type,
    int_option,
    plain_importer,
    require_tensors,
)
from firmwright.ir.graph import TensorType
from firmwright.ir.graph.attributes.base import NO_ATTRS

_ELEMENT_TYPE_CODES = {"int16": 7, "int32": 2, "float32": 0}
"""Element type -> its code in the model file."""


def _transform_attrs(context: ImportContext) -> FftAttrs:
    type_number = context.node.options.get("T")
    if type_number != _ELEMENT_TYPE_CODES.get(input_type(context).dtype.name):
        raise NotSupportedError(f"a transform with element type number {type_number}")
    return FftAttrs(length=int_option(context, "fft_length"))


def _energy_attrs(context: ImportContext) -> SpectrumEnergyAttrs:
    return SpectrumEnergyAttrs(
        start_index=int_option(context, "start_index"),
        end_index=int_option(context, "end_index"),
    )


def _log_attrs(context: ImportContext) -> FilterBankLogAttrs:
    return FilterBankLogAttrs(
        input_correction_bits=int_option(context, "input_correction_bits"),
        output_scale=int_option(context, "output_scale"),
    )


def _spectral_subtraction(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    state = ImplicitState("estimate", context.outputs[1], next_output=1)
    attrs = SpectralSubtractionAttrs(
        alternate_one_minus_smoothing=int_option(
            context, "alternate_one_minus_smoothing"
        ),
        alternate_smoothing=int_option(context, "alternate_smoothing"),
        clamping=1 if int_option(context, "clamping") else 0,
        min_signal_remaining=int_option(context, "min_signal_remaining"),
        num_channels=int_option(context, "num_channels"),
        one_minus_smoothing=int_option(context, "one_minus_smoothing"),
        smoothing=int_option(context, "smoothing"),
        smoothing_bits=int_option(context, "smoothing_bits"),
        spectral_subtraction_bits=int_option(context, "spectral_subtraction_bits"),
    )
    return ImportedCall("spectral_subtraction", attrs, (0,), implicit_state=(state,))


def _framer(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    size, step = int_option(context, "frame_size"), int_option(context, "frame_step")
    x = context.inputs[0]
    if x is None or not 0 < step <= size or not x.shape or x.shape[-1] % step:
        raise NotSupportedError(f"frames of {size} samples with a step of {step}")
    prefill = bool(int_option(context, "prefill"))
    # The samples from earlier runs that the frames of a run contain.
    reach = size - step if prefill else round_up(size, step) - step
    memory = []
    if reach:
        memory.append(ImplicitState("past", TensorType((streams(x)[0], reach), INT16)))
    if reach and not prefill:
        memory.append(ImplicitState("missing", TensorType((1,), INT32), reach // step))
    attrs = FramerAttrs(frame_size=size, frame_step=step)
    return ImportedCall("framer", attrs, (0,), implicit_state=tuple(memory))


def _stacker(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    channels = int_option(context, "num_channels")
    left = int_option(context, "stacker_left_context")
    right = int_option(context, "stacker_right_context")
    step = int_option(context, "stacker_step")
    if min(channels, step) < 1 or min(left, right) < 0 or step > left + right + 1:
        frames = f"{left} + 1 + {right} frames of {channels}"
        raise NotSupportedError(f"{frames} every {step} runs")
    memory = [ImplicitState("wait", TensorType((1,), INT32), -1)]
    if left + right:
        past = TensorType((1, (left + right) * channels), INT16)
        memory.append(ImplicitState("past", past))
    attrs = StackerAttrs(num_channels=channels, left=left, right=right, step=step)
    return ImportedCall("stacker", attrs, (0,), implicit_state=tuple(memory))


def _delay(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    x, length = context.inputs[0], int_option(context, "delay_length")
    if x is None or length < 0:
        raise NotSupportedError(f"a delay of {length} samples")
    state: list[ImplicitState] = []
    if length:
        past = TensorType((streams(x)[0], length), INT16)
        state.append(ImplicitState("past", past))
    return ImportedCall("delay", NO_ATTRS, (0,), implicit_state=tuple(state))


def _overlap_add(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    x, step = context.inputs[0], int_option(context, "frame_step")
    if x is None or len(x.shape) < 2 or not 0 < step <= x.shape[-1]:
        raise NotSupportedError(f"frames with a step of {step} samples")
    rows, left = x.elements // (x.shape[-1] * x.shape[-2]), x.shape[-1] - step
    state = (ImplicitState("left", TensorType((rows, left), x.dtype)),) if left else ()
    attrs = OverlapAddAttrs(frame_step=step)
    return ImportedCall("overlap_add", attrs, (0,), implicit_state=state)


_SLOTS_FOR_EVERY_RUN = (5, 13, 25)
_SHAPE_BY_BUFFER_COUNT = (2, 96)


def _circular_buffer(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    y = context.outputs[0]
    cycles = _runs_per_execution(context, y.shape)
    zero = y.quantization.zero_points[0] if y.quantization else 0
    state = (ImplicitState("before", y, zero, next_output=0),)
    attrs = CircularBufferAttrs(cycles=cycles)
    return ImportedCall("circular_buffer", attrs, (0,), (), state)


def _runs_per_execution(context: ImportContext, shape: tuple[int, ...]) -> int:
    cycles = context.node.options.get("cycles_max", 0)
    if isinstance(cycles, int) and cycles > 0:
        return cycles
    if len(shape) == 4 and shape[1] in _SLOTS_FOR_EVERY_RUN:
        return 1
    if not isinstance(cycles, int) or shape[2:] == _SHAPE_BY_BUFFER_COUNT:
        raise NotSupportedError("a circular buffer without cycles_max")
    return 2


def _bank_attrs(context: ImportContext) -> FilterBankAttrs:
    return FilterBankAttrs(num_channels=int_option(context, "num_channels"))


def _pcan_attrs(context: ImportContext) -> PcanAttrs:
    return PcanAttrs(snr_shift=int_option(context, "snr_shift"))


def _window_attrs(context: ImportContext) -> WindowFunctionAttrs:
    return WindowFunctionAttrs(shift=int_option(context, "shift"))


def _spectrogram(context: ImportContext) -> ImportedCall:
    """Return the transforms of a spectrogram, which spectrograms.py has rewritten."""
    if len(context.node.inputs) != 2 or "length" not in context.node.options:
        samples = "float32 [samples, channels] by windows of 17 to 16,384 samples"
        raise NotSupportedError(f"a spectrogram of other than {samples}")
    require_tensors(context, 2)
    length, step = int_option(context, "length"), int_option(context, "step")
    return ImportedCall("stft", StftAttrs(length=length, step=step), (0, 1))


IMPORTERS: Mapping[str, Importer] = {
    "custom:AudioSpectrogram": Importer("stft", _spectrogram),
    "custom:CIRCULAR_BUFFER": Importer("circular_buffer", _circular_buffer),
    "custom:SignalDelay": Importer("delay", _delay),
    "custom:SignalEnergy": plain_importer("spectrum_energy", 1, _energy_attrs),
    "custom:SignalFftAutoScale": plain_importer("fft_auto_scale", outputs=2),
    "custom:SignalFilterBank": plain_importer("filter_bank", 6, _bank_attrs),
    "custom:SignalFilterBankLog": plain_importer("filter_bank_log", 1, _log_attrs),
    "custom:SignalFilterBankSpectralSubtraction": Importer(
        "spectral_subtraction", _spectral_subtraction
    ),
    "custom:SignalFilterBankSquareRoot": plain_importer("filter_bank_square_root", 2),
    "custom:SignalFramer": Importer("framer", _framer),
    "custom:SignalIrfft": plain_importer("irfft", 1, _transform_attrs),
    "custom:SignalOverlapAdd": Importer("overlap_add", _overlap_add),
    "custom:SignalPCAN": plain_importer("pcan", 3, _pcan_attrs),
    "custom:SignalRfft": plain_importer("rfft", 1, _transform_attrs),
    "custom:SignalStacker": Importer("stacker", _stacker),
    "custom:SignalWindow": plain_importer("window", 2, _window_attrs),
}
