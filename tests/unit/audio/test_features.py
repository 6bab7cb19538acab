"""Features of sound: numpy equals the firmware, TFLM, and nearly the definition."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from firmwright.audio import Features, FrameWindow, GainControl, NoiseReduction
from firmwright.audio.batches import frames_of
from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from tests.recordings import Samples, recorded_sound

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "02_keyword"


def seconds(count: int, seed: int = 5) -> Samples:
    """Return noise, chirps and clipped sound, from silence to the greatest samples."""
    rng, parts = np.random.default_rng(seed), []
    for second in range(count):
        loud = (0, 1, 3, 40, 600, 9000, 32767)[second % 7]
        sound = rng.normal(0, loud / 2, 16_000)
        if second % 3 == 0:
            sound = loud * np.sin(np.cumsum(rng.uniform(0, 3, 16_000)))
        if second % 11 == 5:
            sound = np.where(rng.random(16_000) < 0.5, -32768, 32767)
        parts.append(np.clip(sound, -32768, 32767).astype(np.int16))
    return np.concatenate(parts)


SOUNDS: dict[str, Callable[[], Samples]] = {
    "random": lambda: seconds(12),
    "recorded": lambda: recorded_sound(Features().hop),
}
OTHERS = {
    "no_gain": Features(gain=None),
    "no_noise": Features(noise=None, gain=None, channels=13, log_scale=64),
    "odd_channels": Features(channels=33, highest_hz=8_000, zero_point=0, scale=0.125),
    "mfcc": Features(coefficients=13, scale=0.5, zero_point=0),
    "no_overlap": Features(frame=256, hop=256, length=256, channels=20),
    "long": Features(
        sample_rate=8_000,
        frame=1_600,
        hop=800,
        length=2_048,
        window=FrameWindow.HAMMING,
        lowest_hz=0,
        highest_hz=4_000,
    ),
}


@pytest.mark.host_c
@pytest.mark.parametrize("name", ["default", *OTHERS])
def test_rows_equal_the_firmware(name: str) -> None:
    features = OTHERS.get(name, Features())
    hops = seconds(12)[: 64_000 // features.hop * features.hop * 2]
    compiled = compile_for(features.model())
    with open_session(compiled, in_process=True) as session:
        rows = session.run(hops.reshape(-1, 1, features.hop))
    expected = features.compute(hops)
    assert np.array_equal(np.asarray(rows).reshape(expected.shape), expected)
    assert len(np.unique(expected)) > 40


@pytest.mark.host_c
def test_rows_of_recorded_speech_equal_the_firmware() -> None:
    features = Features()
    sound = recorded_sound(features.hop)
    with open_session(compile_for(features.model()), in_process=True) as session:
        rows = np.asarray(session.run(sound.reshape(-1, 1, features.hop)))
    expected = features.compute(sound)
    assert np.array_equal(rows.reshape(expected.shape), expected)


def test_streams_of_a_batch_are_independent() -> None:
    streams = seconds(6).reshape(2, 3, 16_000)
    rows = Features().compute(streams)
    assert rows.shape == (2, 3, 50, 40)
    for index in np.ndindex(2, 3):
        assert np.array_equal(rows[index], Features().compute(streams[index]))
    begun = Features().compute(streams[..., :5_000])
    assert np.array_equal(begun, rows[..., :15, :])
    assert Features().compute(streams[..., :319]).shape == (2, 3, 0, 40)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The writer of example 02's model, which has TFLM's operators in the same order."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("speech", "network"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import network

    monkeypatch.delitem(sys.modules, "network")
    return network


@pytest.mark.parametrize("sound_of", SOUNDS)
def test_rows_equal_tflm(
    sound_of: str, network: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
    # The file has the shares of noise reduction rounded to nearest.
    features = Features(noise=NoiseReduction(even=410.5 / 16384))
    constants = features.model().module.constants

    def table(name: str) -> np.ndarray[Any, Any]:
        return constants[f"features/{name}"].array()

    names = ("weights", "unweights", "bins", "places", "widths")
    monkeypatch.setattr(network, "hann", lambda: table("window"))
    monkeypatch.setattr(network, "mel_bank", lambda: [table(name) for name in names])
    monkeypatch.setattr(network, "gain_table", lambda: table("gains"))
    tflm = runtime.Interpreter.from_bytes(network.build(), arena_size=1 << 20)
    sound, rows = SOUNDS[sound_of](), []
    for hop in sound.reshape(-1, 1, features.hop):
        tflm.set_input(hop, 0)
        tflm.invoke()
        rows.append(tflm.get_output(0).reshape(40).copy())
    assert np.array_equal(features.compute(sound), np.stack(rows))


def test_tables_are_those_of_tflm_up_to_its_math_library() -> None:
    """TFLM computes its tables by float32 functions of the machine on which it runs."""
    constants = Features().model().module.constants
    mel = np.float32(1127) * np.log1p(np.arange(257, dtype=np.float32) * 31.25 / 700)
    lowest, highest = (1127 * np.log1p(np.float32(hz) / 700) for hz in (125, 7500))
    step = (highest - lowest) / 41
    # The bins above the first corner, one triangle's falling side after the other.
    places = (mel[5:241] - lowest) / step
    weights = np.ceil(places) - places
    falling = constants["features/weights"].array()
    near = np.abs(falling - 4096 * weights)
    assert np.minimum(near, 4096 - near).max() < 1.6
    assert np.ptp(falling + constants["features/unweights"].array()) <= 1
    gains = constants["features/gains"].array()
    assert gains[:2].tolist() == [round((1 << 21) * 80**-0.95), 32633]


def definition(features: Features, samples: Samples) -> np.ndarray[Any, Any]:
    """Return the amplitudes of the channels of each frame in float64."""
    frames = frames_of(samples[None], features.frame, features.hop)[0].astype(float)
    angle = 2 * np.pi * (np.arange(features.frame) + 0.5) / features.frame
    first = features.window.value
    window = first - (1 - first) * np.cos(angle)
    energy = np.abs(np.fft.rfft(frames * window, features.length)) ** 2
    ends = np.array([features.lowest_hz, features.highest_hz])
    ends = np.log1p(ends / 700)
    corners = np.linspace(*ends, features.channels + 2)
    hertz = np.arange(features.length // 2 + 1) * features.sample_rate / features.length
    place, step = np.log1p(hertz / 700)[:, None], corners[1] - corners[0]
    triangles = np.maximum(1 - np.abs(place - corners[1:-1]) / step, 0)
    return np.asarray(np.sqrt(energy @ triangles))


@pytest.mark.parametrize("loud", [10, 100, 1_000, 10_000, 32_767])
@pytest.mark.parametrize("window", FrameWindow)
def test_error_is_within_the_stated_bound(window: FrameWindow, loud: float) -> None:
    features = Features(noise=None, gain=None, window=window)
    n, rng = np.arange(16_000), np.random.default_rng(int(loud))
    for sound in (
        rng.normal(0, loud / 3, 16_000),
        loud * np.sin(0.4 * n),
        loud * np.sin(5e-5 * n**2),
        loud * np.sign(np.sin(0.06 * n)) * np.exp(-(n % 4_000) / 1_500),
    ):
        samples = np.clip(np.round(sound), -32768, 32767).astype(np.int16)
        amplitudes = definition(features, samples)
        frames = frames_of(samples[None], features.frame, features.hop)[0]
        peak = np.abs(frames.astype(int)).max(axis=1, keepdims=True)
        bound = features.length * peak / 2048 + features.frame / 4 + amplitudes / 200
        values = features.to_float(features.compute(samples))
        step = features.scale / 2 + 1 / features.log_scale
        lower = np.log(np.maximum(amplitudes - bound, 1)) - step
        upper = np.log(np.maximum(amplitudes + bound, 1)) + step
        assert np.all(lower <= values)
        assert np.all(values <= upper)


def test_coefficients_are_the_cosine_transform_of_the_logarithms() -> None:
    logs = Features(log_scale=1_600)
    mfcc = Features(coefficients=13, scale=0.25, zero_point=0)
    sound = seconds(8)
    k, i = np.arange(13)[:, None], np.arange(40)
    cosines = np.cos(np.pi * k * (i + 0.5) / 40) * np.sqrt(2 / 40)
    cosines[0] /= np.sqrt(2)
    expected = logs.to_float(logs.compute(sound)) @ cosines.T
    # The logarithms here are rounded to int8, and each may be off by half of a step.
    bound = np.abs(cosines).sum(axis=1) * logs.scale / 2 + mfcc.scale / 2 + 0.1
    values = mfcc.to_float(mfcc.compute(sound))
    fits = np.abs(expected) < 31
    assert np.all(
        np.abs(values - expected)[fits] <= np.broadcast_to(bound, fits.shape)[fits]
    )
    assert fits.mean() > 0.9


def classifier(shape: tuple[int, ...], *, scale: float, zero_point: int) -> Model:
    rng, g = np.random.default_rng(7), GraphBuilder("net")
    # A name that the front end has, too.
    x = g.input("samples", shape, scale=scale, zero_point=zero_point)
    flat = g.call("reshape", x, shape=(1, x.type.elements))
    weights = rng.integers(-127, 128, (4, x.type.elements)).astype(np.int8)
    bias = g.constant(np.zeros(4, np.int32), name="features/window")
    scores = g.call(
        "fully_connected",
        flat,
        g.constant(weights, scale=0.01),
        bias,
        scale=0.8,
        activation="none",
        keep_dims=False,
    )
    return g.model(scores)


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("rows", "scale", "zero_point"),
    [(10, 0.0625, -128), (1, 0.0625, -128), (6, 0.0917, -100)],
)
def test_network_takes_the_last_rows(rows: int, scale: float, zero_point: int) -> None:
    features = Features()
    network = classifier((1, rows, 40, 1), scale=scale, zero_point=zero_point)
    joined = compile_for(features.before(network))
    alone = compile_for(network)
    sound = seconds(7)
    windows = features.windows(sound, rows)
    assert windows.shape == (350, rows, 40)
    if scale != features.scale:
        steps = features.to_float(windows) / np.float32(scale)
        rounded = np.floor(steps.astype(np.float64) + 0.5) + zero_point
        windows = np.clip(rounded, -128, 127).astype(np.int8)
    hops = sound.reshape(-1, 1, 320)
    with open_session(joined, in_process=True) as session:
        actual = session.run(hops)
    with open_session(alone, in_process=True) as session:
        expected = session.run(windows.reshape(-1, 1, rows, 40, 1))
    assert np.array_equal(np.asarray(actual), np.asarray(expected))
    assert verify(joined, samples=5).exact


@pytest.mark.host_c
@pytest.mark.parametrize("stride", [2, 3])
def test_network_runs_after_each_nth_hop(stride: int) -> None:
    features = Features(channels=8, gain=None)
    network = classifier((1, 6, 8), scale=0.0625, zero_point=-128)
    joined = compile_for(features.before(network, stride=stride))
    sound = seconds(6)
    windows = features.windows(sound, 6, stride=stride)
    assert windows.shape == (300 // stride, 6, 8)
    every = features.windows(sound, 6)[stride - 1 :: stride]
    assert np.array_equal(windows, every)
    with open_session(compile_for(network), in_process=True) as session:
        rows = np.asarray(session.run(windows.reshape(-1, 1, 6, 8)))
    kept = np.repeat(rows, stride, axis=0)
    before = np.zeros((stride - 1, *rows.shape[1:]), np.int8)
    expected = np.concatenate([before, kept])[:300]
    with open_session(joined, in_process=True) as session:
        actual = np.asarray(session.run(sound.reshape(-1, 1, 320)))
    assert np.array_equal(actual, expected)
    assert verify(joined, samples=7).exact


def network_with_state() -> Model:
    """Return the sum of a row and the one two runs ago, which is also returned."""
    g = GraphBuilder("net")
    x = g.input("x", (1, 1, 8), scale=0.0625, zero_point=-128)
    zeros = np.full((1, 1, 8), -128, np.int8)
    last, older = (
        g.state(name, zeros, scale=0.0625, zero_point=-128)
        for name in ("last", "older")
    )
    g.set_next_state(last, x)
    g.set_next_state(older, g.call("reshape", last, shape=(1, 1, 8)))
    total = g.call("add", x, older, scale=0.125, zero_point=-128, activation="none")
    return g.model(total, g.call("reshape", older, shape=(1, 8)))


@pytest.mark.host_c
def test_state_of_a_network_changes_when_it_runs() -> None:
    features, sound = Features(channels=8, gain=None), seconds(3)
    joined = compile_for(features.before(network_with_state(), stride=3))
    rows = features.windows(sound, 1, stride=3).reshape(-1, 1, 1, 8)
    with open_session(compile_for(network_with_state()), in_process=True) as session:
        wanted = session.run(rows)
    with open_session(joined, in_process=True) as session:
        actual = session.run(sound.reshape(-1, 1, 320))
    assert isinstance(wanted, dict)
    assert isinstance(actual, dict)
    assert len(wanted) == 2
    for name, expected in wanted.items():
        assert np.array_equal(actual[name][2::3], expected)
        assert np.array_equal(actual[name][4::3], expected[: len(actual[name][4::3])])


@pytest.mark.host_c
def test_network_of_floats_receives_the_values_of_rows() -> None:
    features = Features(hop=160)
    g = GraphBuilder("net")
    x = g.input("x", (1, 3, 40), "float32")
    doubled = g.call("add", x, x, name="y", activation="none")
    compiled = compile_for(features.before(g.model(doubled)))
    sound = seconds(3)
    with open_session(compiled, in_process=True) as session:
        actual = np.asarray(session.run(sound.reshape(-1, 1, 160)))
    expected = 2 * features.to_float(features.windows(sound, 3))
    assert np.array_equal(actual.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"length": 500}, "500 samples of a transform is not possible.*64, 128"),
        ({"frame": 600}, "a frame of 600 samples.*up to 512"),
        ({"hop": 0}, "a hop of 0"),
        ({"highest_hz": 9_000}, "to 9000 Hz.*8000"),
        ({"channels": 100}, "without a frequency.*fewer channels"),
        ({"channels": 0}, "0 channels"),
        ({"coefficients": 41}, "41 coefficients is not possible.*1 to 40"),
        ({"noise": None}, "a gain without an estimate"),
        ({"scale": 0}, "the scale 0"),
        ({"log_scale": 0}, "the scale of logarithms"),
        ({"zero_point": 200}, "the zero point 200"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Features(**wrong)


def test_shares_gains_samples_and_networks_are_checked() -> None:
    with pytest.raises(UsageError, match=r"the share 1.5"):
        NoiseReduction(even=1.5)
    with pytest.raises(UsageError, match="no value without noise"):
        GainControl(offset=0)
    with pytest.raises(UsageError, match=r"a gain as steep as .*strength=2"):
        Features(gain=GainControl(offset=1, strength=2)).model()
    with pytest.raises(UsageError, match="a window of 0 rows"):
        Features().windows(np.zeros(400, np.int16), 0)
    with pytest.raises(UsageError, match="a stride of 0 hops is not possible"):
        Features().windows(np.zeros(400, np.int16), 1, stride=0)
    half: Any = 2.5
    with pytest.raises(UsageError, match=r"a stride of 2.5 hops is not possible"):
        Features().windows(np.zeros(400, np.int16), 1, stride=half)
    with pytest.raises(UsageError, match="a stride of -1 hops is not possible"):
        Features().before(classifier((1, 40), scale=0.1, zero_point=0), stride=-1)
    with pytest.raises(UsageError, match=r"samples of float64.*astype"):
        Features().compute(np.zeros(400))
    with pytest.raises(UsageError, match=r"does not consist of rows of 40"):
        Features().before(classifier((1, 41), scale=0.1, zero_point=0))
    g = GraphBuilder("net")
    total = g.call(
        "add",
        *(g.input(n, (1, 40), scale=0.1) for n in "ab"),
        scale=0.1,
        activation="none",
    )
    with pytest.raises(UsageError, match="has the inputs a, b"):
        Features().before(g.model(total))
