"""The signal library of TFLM: spectra, filter banks, and streams with state not in the file."""

from collections.abc import Mapping

from firmwright.base.dtypes import INT16, INT32
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import round_up
from firmwright.extensions.tflm_signal.framing import streams
from firmwright.frontends.tflite.node_context import (
    ImplicitState,
    ImportContext,
    ImportedCall,
    Importer,
    input_type,
    int_option,
    int_options,
    options_importer,
    plain_importer,
    require_tensors,
)
from firmwright.ir.core import Attrs
from firmwright.ir.graph import TensorType

_ELEMENT_TYPE_CODES = {"int16": 7, "int32": 2, "float32": 0}
"""Element type -> its code in the model file."""


def _transform_attrs(context: ImportContext) -> Attrs:
    type_number = context.node.options.get("T")
    if type_number != _ELEMENT_TYPE_CODES.get(input_type(context).dtype.name):
        raise NotSupportedError(f"a transform with element type number {type_number}")
    return {"length": int_option(context, "fft_length")}


_SUBTRACTION_OPTIONS = (
    "alternate_one_minus_smoothing",
    "alternate_smoothing",
    "clamping",
    "min_signal_remaining",
    "num_channels",
    "one_minus_smoothing",
    "smoothing",
    "smoothing_bits",
    "spectral_subtraction_bits",
)


def _spectral_subtraction(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    state = ImplicitState("estimate", context.outputs[1], next_output=1)
    return ImportedCall(
        "spectral_subtraction",
        int_options(context, *_SUBTRACTION_OPTIONS),
        (0,),
        implicit_state=(state,),
    )


def _framer(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    attrs = int_options(context, "frame_size", "frame_step")
    size, step = attrs["frame_size"], attrs["frame_step"]
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
    return ImportedCall("framer", attrs, (0,), implicit_state=tuple(memory))


def _stacker(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1, outputs=2)
    channels = int_option(context, "num_channels")
    left = int_option(context, "stacker_left_context")
    right = int_option(context, "stacker_right_context")
    step = int_option(context, "stacker_step")
    if min(channels, step) < 1 or min(left, right) < 0 or step > left + right + 1:
        raise NotSupportedError(f"{left} + 1 + {right} frames of {channels} every {step} runs")
    memory = [ImplicitState("wait", TensorType((1,), INT32), -1)]
    if left + right:
        memory.append(ImplicitState("past", TensorType((1, (left + right) * channels), INT16)))
    attrs = {"num_channels": channels, "left": left, "right": right, "step": step}
    return ImportedCall("stacker", attrs, (0,), implicit_state=tuple(memory))


def _delay(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    x, length = context.inputs[0], int_option(context, "delay_length")
    if x is None or length < 0:
        raise NotSupportedError(f"a delay of {length} samples")
    state = (ImplicitState("past", TensorType((streams(x)[0], length), INT16)),) if length else ()
    return ImportedCall("delay", {}, (0,), implicit_state=state)


def _overlap_add(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    x, step = context.inputs[0], int_option(context, "frame_step")
    if x is None or len(x.shape) < 2 or not 0 < step <= x.shape[-1]:
        raise NotSupportedError(f"frames with a step of {step} samples")
    rows, left = x.elements // (x.shape[-1] * x.shape[-2]), x.shape[-1] - step
    state = (ImplicitState("left", TensorType((rows, left), x.dtype)),) if left else ()
    return ImportedCall("overlap_add", {"frame_step": step}, (0,), implicit_state=state)


_SLOTS_FOR_EVERY_RUN = (5, 13, 25)
_SHAPE_BY_BUFFER_COUNT = (2, 96)


def _circular_buffer(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    y = context.outputs[0]
    cycles = _runs_per_execution(context, y.shape)
    zero = y.quantization.zero_points[0] if y.quantization else 0
    state = (ImplicitState("before", y, zero, next_output=0),)
    attrs = {"cycles": cycles} if cycles > 1 else {}
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


IMPORTERS: Mapping[str, Importer] = {
    "custom:CIRCULAR_BUFFER": Importer("circular_buffer", _circular_buffer),
    "custom:SignalDelay": Importer("delay", _delay),
    "custom:SignalEnergy": options_importer("spectrum_energy", 1, "start_index", "end_index"),
    "custom:SignalFftAutoScale": options_importer("fft_auto_scale", 1, outputs=2),
    "custom:SignalFilterBank": options_importer("filter_bank", 6, "num_channels"),
    "custom:SignalFilterBankLog": options_importer(
        "filter_bank_log", 1, "input_correction_bits", "output_scale"
    ),
    "custom:SignalFilterBankSpectralSubtraction": Importer(
        "spectral_subtraction", _spectral_subtraction
    ),
    "custom:SignalFilterBankSquareRoot": options_importer("filter_bank_square_root", 2),
    "custom:SignalFramer": Importer("framer", _framer),
    "custom:SignalIrfft": plain_importer("irfft", 1, _transform_attrs),
    "custom:SignalOverlapAdd": Importer("overlap_add", _overlap_add),
    "custom:SignalPCAN": options_importer("pcan", 3, "snr_shift"),
    "custom:SignalRfft": plain_importer("rfft", 1, _transform_attrs),
    "custom:SignalStacker": Importer("stacker", _stacker),
    "custom:SignalWindow": options_importer("window", 2, "shift"),
}
