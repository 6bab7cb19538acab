"""Conformance cases of the signal library."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firmwright.conformance.case import TFLM, CaseTable, CaseTensor, ConformanceCase
from firmwright.ops.fft import ELEMENT_TYPE_CODES
from firmwright.ops.signal_filter_bank import GAIN_LUT_SIZE, SUBTRACTION_OPTIONS, UINT32_MASK


def _rfft_cases() -> Iterator[ConformanceCase]:
    for dtype, shape, length in (
        ("int16", (24,), 32),
        ("int16", (2, 128), 128),
        ("int32", (3, 32), 32),
        ("int32", (8,), 8),
        ("float32", (2, 50), 64),
    ):
        x, y = CaseTensor(shape, dtype), CaseTensor((*shape[:-1], length + 2), dtype)
        options = {"T": ELEMENT_TYPE_CODES[dtype], "fft_length": length}
        yield ConformanceCase(f"{dtype}_{length}", "custom:SignalRfft", (x,), (y,), options, TFLM)


def _irfft_cases() -> Iterator[ConformanceCase]:
    for dtype, rows, length in (("int16", (), 32), ("int16", (2,), 64), ("int32", (3,), 16)):
        x, y = CaseTensor((*rows, length + 2), dtype), CaseTensor((*rows, length), dtype)
        options = {"T": ELEMENT_TYPE_CODES[dtype], "fft_length": length}
        yield ConformanceCase(f"{dtype}_{length}", "custom:SignalIrfft", (x,), (y,), options, TFLM)
    x, y = CaseTensor((66,), "float32"), CaseTensor((64,), "float32")
    options = {"T": 0, "fft_length": 64}
    yield ConformanceCase("float32_64", "custom:SignalIrfft", (x,), (y,), options, TFLM)


def _filter_bank_cases() -> Iterator[ConformanceCase]:
    widths = np.array([3, 4, 0, 5, 6], np.int16)
    bins = np.array([1, 4, 8, 8, 13], np.int16)
    places = np.array([0, 4, 8, 8, 16], np.int16)
    weights = (np.arange(22) * 193 - 2000).astype(np.int16)
    tables = (weights, (4096 - weights).astype(np.int16), bins, places, widths)
    constants = tuple(CaseTensor(table.shape, "int16", data=table) for table in tables)
    x, y = CaseTensor((19,), "uint32"), CaseTensor((4,), "uint64")
    options = {"num_channels": 4}
    yield ConformanceCase("four", "custom:SignalFilterBank", (x, *constants), (y,), options, TFLM)


def _root_cases() -> Iterator[ConformanceCase]:
    squares = [0, 1, 2, 3, 6, 7, (1 << 32) - 1, (1 << 32) - (1 << 16), 1 << 32, (1 << 32) + 65536]
    squares += [(1 << 64) - 1, ((1 << 32) - 1) ** 2, ((1 << 31) + 5) ** 2 + (1 << 31) + 5]
    x = CaseTensor((40,), "uint64")
    bits = CaseTensor((), "int32", value_range=(0, 15))
    y = CaseTensor((40,), "uint32")
    yield ConformanceCase("forty", "custom:SignalFilterBankSquareRoot", (x, bits), (y,), {}, TFLM)
    x = CaseTensor((len(squares),), "uint64", data=np.array(squares, np.uint64))
    y = CaseTensor(x.shape, "uint32")
    yield ConformanceCase("edges", "custom:SignalFilterBankSquareRoot", (x, bits), (y,), {}, TFLM)


def _subtraction_cases() -> Iterator[ConformanceCase]:
    values = dict(
        zip(SUBTRACTION_OPTIONS, (15729, 655, 0, 819, 7, 15729, 655, 10, 14), strict=True)
    )
    for name, changed, limits in (
        ("alike", {}, (0, 1 << 20)),
        ("alternating_clamped", {"alternate_smoothing": 9000, "clamping": 1}, None),
    ):
        x, y = CaseTensor((7,), "uint32", value_range=limits), CaseTensor((7,), "uint32")
        builtin = "custom:SignalFilterBankSpectralSubtraction"
        yield ConformanceCase(name, builtin, (x,), (y, y), {**values, **changed}, TFLM)


def _pcan_cases() -> Iterator[ConformanceCase]:
    falling = (32000 * 0.93 ** np.arange(GAIN_LUT_SIZE)).astype(np.int16)
    falling[1::4] *= -1
    gains = CaseTensor(falling.shape, "int16", data=falling)
    x = CaseTensor((9,), "uint32")
    for name, limits in (("loud", None), ("quiet", (0, 40)), ("between", (900, 5000))):
        noise, y = CaseTensor((9,), "uint32", value_range=limits), CaseTensor((9,), "uint32")
        inputs, options = (x, noise, gains), {"snr_shift": 6}
        yield ConformanceCase(name, "custom:SignalPCAN", inputs, (y,), options, TFLM)


def _log_cases() -> Iterator[ConformanceCase]:
    edges = [0, 1, 2, 3, 511, 512, 513, 65535, 65536, 65537, (1 << 31) - 1, 1 << 31, UINT32_MASK]
    edge_values = CaseTensor((13,), "uint32", data=np.array(edges, np.uint32))
    for name, x, shift, scale in (
        ("any", CaseTensor((50,), "uint32"), 0, 1600),
        ("small", CaseTensor((50,), "uint32", value_range=(0, 3000)), 3, 1600),
        ("edges", edge_values, 0, 65536),
    ):
        options = {"input_correction_bits": shift, "output_scale": scale}
        y = CaseTensor(x.shape, "int16")
        yield ConformanceCase(name, "custom:SignalFilterBankLog", (x,), (y,), options, TFLM)


def _framer_cases() -> Iterator[ConformanceCase]:
    for name, shape, size, step in (
        ("one_a_run", (16,), 40, 16),
        ("many_a_run", (2, 30), 14, 10),
        ("apart", (24,), 8, 8),
    ):
        x = CaseTensor(shape, "int16")
        y = CaseTensor((*shape[:-1], shape[-1] // step, size), "int16")
        options = {"frame_size": size, "frame_step": step, "prefill": True}
        yield ConformanceCase(name, "custom:SignalFramer", (x,), (y, _FLAG), options, TFLM)


_FLAG = CaseTensor((), "bool")


def _stacker_cases() -> Iterator[ConformanceCase]:
    for name, left, right, step in (("past", 2, 0, 1), ("alone", 0, 0, 1)):
        x, y = CaseTensor((5,), "int16"), CaseTensor((5 * (left + right + 1),), "int16")
        options = {
            "num_channels": 5, "stacker_left_context": left, "stacker_right_context": right,
            "stacker_step": step,
        }  # fmt: skip
        yield ConformanceCase(name, "custom:SignalStacker", (x,), (y, _FLAG), options, TFLM)


def _delay_cases() -> Iterator[ConformanceCase]:
    for name, shape, length in (("short", (2, 12), 5), ("long", (6,), 17), ("alike", (6,), 6)):
        x, options = CaseTensor(shape, "int16"), {"delay_length": length}
        yield ConformanceCase(name, "custom:SignalDelay", (x,), (x,), options, TFLM)


def _overlap_cases() -> Iterator[ConformanceCase]:
    for name, dtype, shape, step in (
        ("half", "int16", (3, 8), 4),
        ("little", "int16", (2, 2, 9), 2),
        ("much", "int16", (2, 9), 7),
        ("none", "int16", (2, 5), 5),
        ("floats", "float32", (3, 8), 3),
    ):
        x = CaseTensor(shape, dtype)
        y = CaseTensor((*shape[:-2], shape[-2] * step), dtype)
        options = {"T": 7 if dtype == "int16" else 0, "frame_step": step}
        yield ConformanceCase(name, "custom:SignalOverlapAdd", (x,), (y,), options, TFLM)


def _window_cases() -> Iterator[ConformanceCase]:
    hann = np.round(4095 * np.sin(np.pi * (np.arange(25) + 0.5) / 25) ** 2).astype(np.int16)
    for name, shape, shift in (("frame", (25,), 12), ("frames_cut", (2, 3, 25), 9)):
        x = CaseTensor(shape, "int16")
        weights = CaseTensor((25,), "int16", data=hann)
        yield ConformanceCase(
            name, "custom:SignalWindow", (x, weights), (x,), {"shift": shift}, TFLM
        )


def _auto_scale_cases() -> Iterator[ConformanceCase]:
    for name, limits in (("whole_range", None), ("quiet", (-37, 36)), ("silence", (0, 0))):
        x = CaseTensor((33,), "int16", value_range=limits)
        y = CaseTensor((33,), "int16")
        bits = CaseTensor((), "int32")
        yield ConformanceCase(name, "custom:SignalFftAutoScale", (x,), (y, bits), {}, TFLM)


def _energy_cases() -> Iterator[ConformanceCase]:
    x, y = CaseTensor((34,), "int16"), CaseTensor((17,), "uint32")
    options = {"start_index": 0, "end_index": 17}
    yield ConformanceCase("all_bins", "custom:SignalEnergy", (x,), (y,), options, TFLM)


CASES: CaseTable = {
    "rfft": _rfft_cases,
    "irfft": _irfft_cases,
    "filter_bank": _filter_bank_cases,
    "filter_bank_square_root": _root_cases,
    "spectral_subtraction": _subtraction_cases,
    "pcan": _pcan_cases,
    "filter_bank_log": _log_cases,
    "framer": _framer_cases,
    "stacker": _stacker_cases,
    "delay": _delay_cases,
    "overlap_add": _overlap_cases,
    "window": _window_cases,
    "fft_auto_scale": _auto_scale_cases,
    "spectrum_energy": _energy_cases,
}
