"""Chains of sensors' samples: numpy equals the firmware, and nearly SciPy's float64."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from firmwright.audio import FrameWindow
from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.sensors import (
    Biquads,
    Center,
    Decimate,
    Fir,
    Join,
    Magnitude,
    Normalize,
    SensorChain,
    Spectrum,
    Start,
    Statistic,
    Statistics,
    StreamWindow,
)
from tests.unit.sensors.chains import ALL, CHAINS, ROWS, SOS, recordings

CHAINS_RARELY = sorted(set(CHAINS) - {"stream", "windows"})
"""Chains that only deep tests run; `integers` runs on an emulated board, too."""
Table = np.ndarray[Any, Any]


@pytest.fixture
def signal() -> ModuleType:
    """Return SciPy's filters, whose import takes a second."""
    found: ModuleType = pytest.importorskip(
        "scipy.signal", reason="SciPy is not installed"
    )
    return found


@pytest.mark.host_c
@pytest.mark.parametrize(
    "name",
    [
        *("stream", "windows"),
        *(pytest.param(name, marks=pytest.mark.deep) for name in CHAINS_RARELY),
    ],
)
def test_values_equal_the_firmware(name: str) -> None:
    chain, runs = CHAINS[name], 12
    samples = recordings(chain, runs)
    expected = chain.compute(samples)
    compiled = compile_for(chain.model())
    with open_session(compiled, in_process=True) as session:
        shape = (runs, 1, chain.samples, chain.channels)
        rows = session.run(samples.reshape(shape))
    assert np.array_equal(np.asarray(rows).reshape(expected.shape), expected)
    assert expected.shape == (runs, chain.rows, chain.width)
    assert len(np.unique(expected)) > 10


@pytest.mark.parametrize("name", CHAINS)
def test_streams_of_a_batch_are_independent(name: str) -> None:
    chain = CHAINS[name]
    streams = np.stack([recordings(chain, 5, seed) for seed in range(6)])
    streams = streams.reshape(2, 3, *streams.shape[1:])
    together = chain.compute(streams)
    for index in np.ndindex(2, 3):
        assert np.array_equal(together[index], chain.compute(streams[index]))
    part = 3 * chain.samples + chain.samples // 2
    begun = chain.compute(streams[..., :part, :])
    assert np.array_equal(begun, together[..., :3, :, :])
    assert chain.compute(streams[..., :0, :]).shape[2] == 0


@pytest.mark.parametrize("order", [1, 2, 5, 14])
def test_filters_equal_those_of_scipy_in_float32(
    order: int, signal: ModuleType
) -> None:
    sos = signal.butter(order, (0.2, 0.5), "bandpass", output="sos")
    chain = SensorChain(channels=3, samples=16, steps=(Biquads(sos), StreamWindow(16)))
    samples = recordings(chain, 20)
    expected = signal.sosfilt(sos.astype(np.float32), samples, axis=0)
    assert expected.dtype == np.float32
    assert np.array_equal(chain.compute(samples).reshape(-1, 3), expected)


def near(actual: Table, expected: Table, tolerance: float = 1e-5) -> bool:
    scale = np.abs(expected).max(axis=tuple(range(expected.ndim - 1)), keepdims=True)
    return bool(np.all(np.abs(actual - expected) <= tolerance * scale))


def test_filtered_and_decimated_samples_are_near_those_of_scipy(
    signal: ModuleType,
) -> None:
    taps = signal.firwin(33, 0.3)
    steps = (Biquads(SOS), Decimate(2), Fir(taps), Decimate(4), StreamWindow(8))
    chain = SensorChain(channels=2, samples=64, steps=steps)
    samples = recordings(chain, 20)
    filtered = signal.sosfilt(SOS, samples.astype(float), axis=0)[::2]
    expected = signal.lfilter(taps, 1, filtered, axis=0)[::4]
    assert near(chain.compute(samples).reshape(-1, 2), expected)


def test_a_settled_filter_begins_as_scipys(signal: ModuleType) -> None:
    sos = signal.butter(3, 0.1, "highpass", output="sos")
    steps = (Biquads(sos, Start.SETTLED),)
    chain = SensorChain(channels=3, samples=50, steps=steps)
    samples = recordings(chain, 1) + 500
    initial = signal.sosfilt_zi(sos)[..., None] * samples[0].astype(float)
    expected, _ = signal.sosfilt(sos, samples.astype(float), axis=0, zi=initial)
    assert near(chain.compute(samples)[0], expected, 1e-4)


def definitions(x: Table) -> dict[Statistic, Table]:
    """Return the statistics of windows [..., samples, channels] in float64."""
    from scipy import stats

    distance = x - x.mean(axis=-2, keepdims=True)

    def crossings(values: Table) -> Table:
        return np.asarray(np.diff(values < 0, axis=-2).sum(axis=-2))

    return {
        Statistic.MEAN: x.mean(axis=-2),
        Statistic.RMS: np.sqrt((x**2).mean(axis=-2)),
        Statistic.STANDARD_DEVIATION: x.std(axis=-2),
        Statistic.MINIMUM: x.min(axis=-2),
        Statistic.MAXIMUM: x.max(axis=-2),
        Statistic.RANGE: np.ptp(x, axis=-2),
        Statistic.PEAK: np.abs(x).max(axis=-2),
        Statistic.MEAN_ABSOLUTE: np.abs(x).mean(axis=-2),
        Statistic.PATH: np.abs(np.diff(x, axis=-2)).sum(axis=-2),
        Statistic.ZERO_CROSSINGS: crossings(x),
        Statistic.MEAN_CROSSINGS: crossings(distance),
        Statistic.SKEWNESS: np.nan_to_num(stats.skew(x, axis=-2)),
        Statistic.KURTOSIS: np.nan_to_num(stats.kurtosis(x, axis=-2, fisher=False)),
    }


def test_statistics_are_near_their_definitions() -> None:
    chain = SensorChain(channels=2, samples=60, steps=(ALL,))
    samples = recordings(chain, 200)
    expected = definitions(samples.astype(float).reshape(200, 60, 2))
    assert set(expected) == set(Statistic)
    values = chain.compute(samples).reshape(200, len(Statistic), 2)
    for index, (name, wanted) in enumerate(expected.items()):
        assert near(values[:, index], np.asarray(wanted, float)), name


def test_statistics_of_equal_samples_have_no_quotient_by_zero() -> None:
    chain = SensorChain(channels=1, samples=8, steps=(ALL,))
    values = dict(
        zip(Statistic, chain.compute(np.full((8, 1), -2.5)).flat, strict=True)
    )
    assert values.pop(Statistic.PEAK) == values.pop(Statistic.RMS) == 2.5
    assert values.pop(Statistic.MEAN_ABSOLUTE) == 2.5
    for name in (Statistic.MEAN, Statistic.MINIMUM, Statistic.MAXIMUM):
        assert values.pop(name) == -2.5
    assert set(values.values()) == {0}


@pytest.mark.parametrize("window", FrameWindow)
@pytest.mark.parametrize("count", [64, 100])
def test_bands_are_sums_of_a_periodogram(
    window: FrameWindow, count: int, signal: ModuleType
) -> None:
    edges = (0, 3, 7.5, 20, 50)
    steps = (Spectrum(edges, window),)
    chain = SensorChain(channels=2, samples=count, rate=100, steps=steps)
    samples = recordings(chain, 30)
    length = chain.model().module.entry_graph.body[-1].inputs[0].type.shape[2] - 2
    assert length == 1 << (count - 1).bit_length()
    weights = Spectrum(edges, window)._weights(count).astype(float)
    windows = samples.astype(float).reshape(30, count, 2)
    hertz, density = signal.periodogram(
        windows, 100, weights, length, detrend=False, axis=1
    )
    bands = np.clip(np.searchsorted(edges, hertz, "right") - 1, 0, 3)
    expected = np.stack(
        [density[:, bands == band].sum(axis=1) * 100 / length for band in range(4)], 1
    )
    assert near(chain.compute(samples).reshape(30, 4, 2), expected)
    if window == FrameWindow.RECTANGLE:
        squares = (windows**2).mean(axis=1)
        assert near(chain.compute(samples).reshape(30, 4, 2).sum(axis=1), squares)


def test_center_magnitude_and_normalize_are_their_definitions() -> None:
    steps = (Normalize((1, 2, 3), 0.01), Center(), Magnitude())
    chain = SensorChain(channels=3, samples=40, steps=steps)
    samples = recordings(chain, 10)
    windows = ((samples.astype(float) - (1, 2, 3)) * 0.01).reshape(10, 40, 3)
    centered = windows - windows.mean(axis=1, keepdims=True)
    expected = np.sqrt((centered**2).sum(axis=2, keepdims=True))
    assert near(chain.compute(samples), expected)


def scores(shape: tuple[int, ...], past: str = "x", **kind: Any) -> Model:
    """Return a network with two names that the chain before it may have, too."""
    g = GraphBuilder("net")
    x = g.input("samples", shape, **kind)
    return g.model(g.call("maximum", x, x, name=past))


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("int8", "rows"),
        *(
            pytest.param(dtype, "stream", marks=pytest.mark.deep)
            for dtype in ("float32", "int8", "int16")
        ),
    ],
)
def test_network_receives_the_values(dtype: str, name: str) -> None:
    kind: dict[str, Any] = {"dtype": dtype}
    zero = 5 if dtype == "int8" else 0
    if dtype != "float32":
        kind |= {"scale": 4.0, "zero_point": zero}
    chain = CHAINS[name]
    past = chain.model().module.entry_graph.state[0].value.name
    network = scores((chain.rows * chain.width, 1), past, **kind)
    joined = compile_for(chain.before(network))
    samples = recordings(chain, 9)
    expected = chain.compute(samples).reshape(9, -1)
    if dtype != "float32":
        limits = np.iinfo(dtype)
        steps = expected.astype(float) / 4
        rounded = np.sign(steps) * np.floor(np.abs(steps) + 0.5) + zero
        expected = np.clip(rounded, limits.min, limits.max).astype(dtype)
    with open_session(joined, in_process=True) as session:
        shape = (9, 1, chain.samples, chain.channels)
        actual = np.asarray(session.run(samples.reshape(shape)))
    assert np.array_equal(actual.reshape(9, -1), expected)
    assert verify(joined, samples=5).exact


NAN = float("nan")
WRONG: dict[str, tuple[Any, str]] = {
    "columns": (lambda: Biquads([[1, 2, 3]]), "a section of 3 coefficients.*a0"),
    "a0": (lambda: Biquads([[1, 0, 0, 0, 0, 0]]), "a0 0 is not possible"),
    "small a0": (lambda: Biquads([[1, 0, 0, 1e-300, 0, 0]]), "beyond float32"),
    "none": (lambda: Biquads([]), "a filter without sections"),
    "words": (lambda: Fir("low"), "taps of shape|taps are not numbers"),
    "nan": (lambda: Fir([1, NAN]), "without a finite value"),
    "unstable": (lambda: Biquads([[1, 0, 0, 1, 0, 1.1]]), "grow without limit"),
    "factor": (lambda: Decimate(0), "a factor of 0"),
    "statistic": (lambda: Statistics(("rms",)), "members of `Statistic`"),
    "falling": (lambda: Spectrum((3, 2)), "rising edges"),
    "length": (lambda: Spectrum((1, 2), length=100), "one of 8, 16"),
    "window in join": (lambda: Join((StreamWindow(3),)), "the window before it"),
    "join": (lambda: Join(()), "a join of nothing"),
}
WRONG_CHAINS: dict[str, tuple[dict[str, Any], str]] = {
    "rate": ({"rate": 0}, "the rate is not possible"),
    "dtype": ({"dtype": "int8"}, "samples of int8"),
    "samples": ({"samples": 0}, "0 samples of 3 channels"),
    "half samples": ({"samples": 2.5}, "2.5 samples of 3 channels"),
    "a number": ({"steps": (3,)}, "3 as a step"),
    "divisor": ({"steps": (Biquads(SOS), Decimate(7))}, "one of 7 of 32 samples"),
    "short window": ({"steps": (StreamWindow(31),)}, "a window of at least 32"),
    "windows": ({"steps": (StreamWindow(64), StreamWindow(96))}, "a second window"),
    "taps": ({"steps": (Fir(np.ones(33)),)}, "33 taps on 32 samples"),
    "channels": ({"steps": (Normalize((1, 2)),)}, "2 numbers for 3 channels"),
    "band": ({"steps": (Spectrum((0.01, 0.02, 0.5)),)}, "without a bin from 0.01"),
    "too high": ({"steps": (Spectrum((0, 0.7)),)}, "a band up to 0.7 Hz"),
    "rows": (
        {"steps": (Join((Center(), Statistics((Statistic.MEAN,)))),)},
        "a join of 1, 32 rows",
    ),
    "settled stream": (
        {"steps": (Biquads(SOS, Start.SETTLED), StreamWindow(32))},
        "the filter after the window",
    ),
    "integrator": (
        {"steps": (Biquads([[1, 0, 0, 1, -1, 0]], Start.SETTLED),)},
        "a settled integrator",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_steps_without_a_meaning_are_refused(name: str) -> None:
    make, said = WRONG[name]
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize("name", WRONG_CHAINS)
def test_chains_without_a_meaning_are_refused(name: str) -> None:
    given, said = WRONG_CHAINS[name]
    with pytest.raises(UsageError, match=said):
        SensorChain(**{"channels": 3, "samples": 32, "steps": (), **given})


def test_samples_and_networks_are_checked() -> None:
    chain = CHAINS["integers"]
    with pytest.raises(UsageError, match=r"samples of float64 .*numbers of int16"):
        chain.compute(np.zeros((64, 2)))
    with pytest.raises(UsageError, match=r"axes are samples and 2 channels"):
        chain.compute(np.zeros((64, 3), np.int16))
    wrong = re.escape(f"samples [1, 5] does not have the 1 x {ROWS} values")
    with pytest.raises(UsageError, match=wrong):
        CHAINS["stream"].before(scores((1, 5), dtype="float32"))
