"""Conformance cases of custom operators: the signal library, detection and circular buffers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.conformance.case import (
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    constant,
    quantized,
)
from firmwright.ops.detection_postprocess import NAME
from firmwright.ops.fft import ELEMENT_TYPE_CODES
from firmwright.ops.signal_filter_bank import GAIN_LUT_SIZE, SUBTRACTION_OPTIONS, UINT32_MASK


def _signal_case(
    name: str,
    operator: str,
    inputs: Sequence[CaseTensor],
    outputs: Sequence[CaseTensor],
    options: Mapping[str, object] | None = None,
) -> ConformanceCase:
    builtin = f"custom:Signal{operator}"
    return ConformanceCase(name, builtin, tuple(inputs), tuple(outputs), options or {}, TFLM)


def _fft_cases() -> Iterator[ConformanceCase]:
    for dtype, shape, length in (
        ("int16", (24,), 32),
        ("int16", (2, 128), 128),
        ("int32", (3, 32), 32),
        ("int32", (8,), 8),
        ("float32", (2, 50), 64),
    ):
        x, y = CaseTensor(shape, dtype), CaseTensor((*shape[:-1], length + 2), dtype)
        options = {"T": ELEMENT_TYPE_CODES[dtype], "fft_length": length}
        yield _signal_case(f"{dtype}_{length}", "Rfft", [x], [y], options)


def _inverse_fft_cases() -> Iterator[ConformanceCase]:
    for dtype, rows, length in (
        ("int16", (), 32), ("int16", (2,), 64), ("int32", (3,), 16), ("float32", (), 64)
    ):  # fmt: skip
        x, y = CaseTensor((*rows, length + 2), dtype), CaseTensor((*rows, length), dtype)
        options = {"T": ELEMENT_TYPE_CODES[dtype], "fft_length": length}
        yield _signal_case(f"{dtype}_{length}", "Irfft", [x], [y], options)


def _filter_bank_cases() -> Iterator[ConformanceCase]:
    widths = np.array([3, 4, 0, 5, 6], np.int16)
    bins = np.array([1, 4, 8, 8, 13], np.int16)
    places = np.array([0, 4, 8, 8, 16], np.int16)
    weights = (np.arange(22) * 193 - 2000).astype(np.int16)
    tables = (weights, (4096 - weights).astype(np.int16), bins, places, widths)
    inputs = [CaseTensor((19,), "uint32"), *map(constant, tables)]
    yield _signal_case(
        "four", "FilterBank", inputs, [CaseTensor((4,), "uint64")], {"num_channels": 4}
    )


def _root_cases() -> Iterator[ConformanceCase]:
    squares = [0, 1, 2, 3, 6, 7, (1 << 32) - 1, (1 << 32) - (1 << 16), 1 << 32, (1 << 32) + 65536]
    squares += [(1 << 64) - 1, ((1 << 32) - 1) ** 2, ((1 << 31) + 5) ** 2 + (1 << 31) + 5]
    bits = CaseTensor((), "int32", value_range=(0, 15))
    for name, x in (
        ("forty", CaseTensor((40,), "uint64")), ("edges", constant(np.array(squares, np.uint64)))
    ):  # fmt: skip
        yield _signal_case(name, "FilterBankSquareRoot", [x, bits], [CaseTensor(x.shape, "uint32")])


def _subtraction_cases() -> Iterator[ConformanceCase]:
    values = (15729, 655, 0, 819, 7, 15729, 655, 10, 14)
    options = dict(zip(SUBTRACTION_OPTIONS, values, strict=True))
    for name, changed, limits in (
        ("alike", {}, (0, 1 << 20)),
        ("alternating_clamped", {"alternate_smoothing": 9000, "clamping": 1}, None),
    ):
        x, y = CaseTensor((7,), "uint32", value_range=limits), CaseTensor((7,), "uint32")
        operator = "FilterBankSpectralSubtraction"
        yield _signal_case(name, operator, [x], [y, y], {**options, **changed})


def _gain_cases() -> Iterator[ConformanceCase]:
    falling = (32000 * 0.93 ** np.arange(GAIN_LUT_SIZE)).astype(np.int16)
    falling[1::4] *= -1
    y = x = CaseTensor((9,), "uint32")
    for name, limits in (("loud", None), ("quiet", (0, 40)), ("between", (900, 5000))):
        noise = replace(x, value_range=limits)
        yield _signal_case(name, "PCAN", [x, noise, constant(falling)], [y], {"snr_shift": 6})


def _log_cases() -> Iterator[ConformanceCase]:
    edges = [0, 1, 2, 3, 511, 512, 513, 65535, 65536, 65537, (1 << 31) - 1, 1 << 31, UINT32_MASK]
    for name, x, shift, scale in (
        ("any", CaseTensor((50,), "uint32"), 0, 1600),
        ("small", CaseTensor((50,), "uint32", value_range=(0, 3000)), 3, 1600),
        ("edges", constant(np.array(edges, np.uint32)), 0, 65536),
    ):
        options = {"input_correction_bits": shift, "output_scale": scale}
        yield _signal_case(name, "FilterBankLog", [x], [CaseTensor(x.shape, "int16")], options)


_FLAG = CaseTensor((), "bool")


def _framer_cases() -> Iterator[ConformanceCase]:
    for name, shape, size, step in (
        ("one_a_run", (16,), 40, 16), ("many_a_run", (2, 30), 14, 10), ("apart", (24,), 8, 8)
    ):  # fmt: skip
        x = CaseTensor(shape, "int16")
        y = CaseTensor((*shape[:-1], shape[-1] // step, size), "int16")
        options = {"frame_size": size, "frame_step": step, "prefill": True}
        yield _signal_case(name, "Framer", [x], [y, _FLAG], options)


def _stacker_cases() -> Iterator[ConformanceCase]:
    for name, left in (("past", 2), ("alone", 0)):
        x, y = CaseTensor((5,), "int16"), CaseTensor((5 * (left + 1),), "int16")
        options = {
            "num_channels": 5, "stacker_left_context": left, "stacker_right_context": 0,
            "stacker_step": 1,
        }  # fmt: skip
        yield _signal_case(name, "Stacker", [x], [y, _FLAG], options)


def _delay_cases() -> Iterator[ConformanceCase]:
    for name, shape, length in (("short", (2, 12), 5), ("long", (6,), 17), ("alike", (6,), 6)):
        x = CaseTensor(shape, "int16")
        yield _signal_case(name, "Delay", [x], [x], {"delay_length": length})


def _overlap_cases() -> Iterator[ConformanceCase]:
    for name, dtype, shape, step in (
        ("half", "int16", (3, 8), 4),
        ("little", "int16", (2, 2, 9), 2),
        ("much", "int16", (2, 9), 7),
        ("none", "int16", (2, 5), 5),
        ("floats", "float32", (3, 8), 3),
    ):
        x, y = CaseTensor(shape, dtype), CaseTensor((*shape[:-2], shape[-2] * step), dtype)
        options = {"T": ELEMENT_TYPE_CODES[dtype], "frame_step": step}
        yield _signal_case(name, "OverlapAdd", [x], [y], options)


def _window_cases() -> Iterator[ConformanceCase]:
    hann = np.round(4095 * np.sin(np.pi * (np.arange(25) + 0.5) / 25) ** 2).astype(np.int16)
    for name, shape, shift in (("frame", (25,), 12), ("frames_cut", (2, 3, 25), 9)):
        x = CaseTensor(shape, "int16")
        yield _signal_case(name, "Window", [x, constant(hann)], [x], {"shift": shift})


def _auto_scale_cases() -> Iterator[ConformanceCase]:
    y, bits = CaseTensor((33,), "int16"), CaseTensor((), "int32")
    for name, limits in (("whole_range", None), ("quiet", (-37, 36)), ("silence", (0, 0))):
        yield _signal_case(name, "FftAutoScale", [replace(y, value_range=limits)], [y, bits])


def _energy_cases() -> Iterator[ConformanceCase]:
    x, y = CaseTensor((34,), "int16"), CaseTensor((17,), "uint32")
    yield _signal_case("all_bins", "Energy", [x], [y], {"start_index": 0, "end_index": 17})


def _overlapping_anchors(rng: np.random.Generator, count: int) -> Array:
    pairs = np.repeat(rng.uniform(0.2, 0.8, (count // 2, 4)), 2, axis=0)
    return (pairs + rng.uniform(0, 0.01, pairs.shape)).astype(np.float32)


def _detection_case(
    name: str, anchors: Array, classes: int, most: int, scores: Array | None, **changed: object
) -> ConformanceCase:
    """Return a case with at most `most` results; `scores` are sampled if None."""
    count = len(anchors)
    inputs = (
        CaseTensor((1, count, 4), "float32"),
        CaseTensor((1, count, classes + 1), "float32", data=scores),
        constant(anchors),
    )
    shapes = ((1, most, 4), (1, most), (1, most), (1,))
    options = {
        "max_detections": most, "max_classes_per_detection": 1, "detections_per_class": 100,
        "use_regular_nms": False, "nms_score_threshold": -100.0, "nms_iou_threshold": 0.5,
        "num_classes": classes, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        **changed,
    }  # fmt: skip
    outputs = tuple(CaseTensor(shape, "float32") for shape in shapes)
    return ConformanceCase(f"{name}_float32", NAME, inputs, outputs, options)


def _detection_cases() -> Iterator[ConformanceCase]:
    rng = np.random.default_rng(3)
    # More pairs of overlapping anchors than results, because the reference leaves unused results
    # undefined.
    for name, count, classes, most in (("few", 12, 3, 4), ("one", 6, 1, 2)):
        yield _detection_case(name, _overlapping_anchors(rng, count), classes, most, None)


def _detection_by_class_cases() -> Iterator[ConformanceCase]:
    """Generate cases with distinct scores, because the order of equal ones is undefined."""
    rng = np.random.default_rng(5)
    for name, boxes, classes, most, each, threshold in (
        ("few", 12, 3, 5, 3, -100.0), ("none", 4, 2, 3, 2, 2.0), ("open", 6, 3, 16, 4, 0.4)
    ):  # fmt: skip
        anchors = _overlapping_anchors(rng, boxes)
        scores = rng.permutation(boxes * (classes + 1)).reshape(1, boxes, classes + 1) / 64
        yield _detection_case(
            name, anchors, classes, most, scores.astype(np.float32),
            use_regular_nms=True, detections_per_class=each, nms_score_threshold=threshold,
        )  # fmt: skip


def _circular_buffer_cases() -> Iterator[ConformanceCase]:
    x = quantized((1, 1, 2, 3), "int8", 0.5, -7)
    for name, slots, options in (("told", 3, {"cycles_max": 1}), ("known", 5, {})):
        y = replace(x, shape=(1, slots, 2, 3), is_state=True)
        yield ConformanceCase(name, "custom:CIRCULAR_BUFFER", (x,), (y,), options, TFLM)


CASES: CaseTable = {
    "rfft": _fft_cases,
    "irfft": _inverse_fft_cases,
    "filter_bank": _filter_bank_cases,
    "filter_bank_square_root": _root_cases,
    "spectral_subtraction": _subtraction_cases,
    "pcan": _gain_cases,
    "filter_bank_log": _log_cases,
    "framer": _framer_cases,
    "stacker": _stacker_cases,
    "delay": _delay_cases,
    "overlap_add": _overlap_cases,
    "window": _window_cases,
    "fft_auto_scale": _auto_scale_cases,
    "spectrum_energy": _energy_cases,
    "detections": _detection_cases,
    "detections_by_class": _detection_by_class_cases,
    "circular_buffer": _circular_buffer_cases,
}
