"""Pipelines of scikit-learn that begin with a chain, as one model of raw samples."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import FirmwrightError, ModelError, UsageError
from firmwright.cli.main import main
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from tests.unit.sensors.chains import CHAINS

if find_spec("skl2onnx") is None:
    pytest.skip("scikit-learn and skl2onnx are not installed", allow_module_level=True)

from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from firmwright.sensors.pipelines import SensorFeatures

Table = np.ndarray[Any, Any]
CHAIN = CHAINS["windows"]
COUNT = 400


def gestures() -> tuple[Table, Table]:
    """Return windows of swings of three speeds in noise, and the index of the speed."""
    rng = np.random.default_rng(4)
    speed, t = rng.integers(0, 3, COUNT), np.arange(100) / 50
    phase = rng.uniform(0, 6, (COUNT, 1, 3))
    angle = 2 * np.pi * (1 + speed[:, None, None]) * t[:, None] * (1, 1.2, 1.4) + phase
    noise = rng.normal(size=(COUNT, 100, 3)) * 2
    return (np.sin(angle) * 2 + noise).astype(np.float32), speed


def fitted(*steps: Any) -> Any:
    windows, speed = gestures()
    pipeline = make_pipeline(SensorFeatures(CHAIN), *steps)
    return pipeline.fit(windows[: COUNT // 2], speed[: COUNT // 2])


@pytest.mark.host_c
@pytest.mark.parametrize("kind", ["forest", "logistic"])
def test_predictions_equal_the_pipelines(kind: str) -> None:
    forest = RandomForestClassifier(6, max_depth=5, random_state=0)
    scaled = (StandardScaler(), LogisticRegression(max_iter=2_000))
    pipeline = fitted(*((forest,) if kind == "forest" else scaled))
    windows, speed = gestures()
    expected = pipeline.predict(windows)
    assert (expected == speed).mean() > 0.9
    in_lines = windows.reshape(COUNT, -1)
    assert np.array_equal(pipeline.predict(in_lines), expected)
    model = load_model(pipeline, name="gestures")
    assert model.name == "gestures"
    with open_session(compile_for(model), in_process=True) as session:
        labels = np.asarray(session.run(windows[:, None])["label"])
    assert np.array_equal(labels.reshape(-1), expected)


def test_pickles_are_read_with_trust_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import joblib

    forest = RandomForestClassifier(2, max_depth=3, random_state=0)
    plain, compressed = tmp_path / "gestures.joblib", tmp_path / "zip.joblib"
    joblib.dump(fitted(forest), plain)
    joblib.dump(forest, compressed, compress=3)
    for file in (plain, compressed):
        with pytest.raises(UsageError, match="runs code of its own") as error:
            load_model(file)
        assert f"add --trust {file}, which" in error.value.hint
    monkeypatch.setenv("FIRMWRIGHT_TRUST", str(plain))
    model = load_model(plain)
    (samples,) = model.module.entry_graph.params
    assert samples.type.shape == (1, CHAIN.samples, CHAIN.channels)
    assert main(["inspect", str(plain)]) == 0
    estimator = load_model(compressed, trust=True)
    assert estimator.source is not None


class Evil:
    """An object whose pickle writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["m.pkl", "m.onnx", "m"])
def test_no_pickle_runs_code_without_trust(tmp_path: Path, name: str) -> None:
    file, written = tmp_path / name, tmp_path / "written"
    file.write_bytes(pickle.dumps(Evil(written)))
    for verb in ("inspect", "compile", "verify"):
        assert main([verb, str(file)]) != 0
    assert not written.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x04broken", "the pickle cannot be read"),
        (pickle.dumps([1, 2]), "holds an object of list"),
        (pickle.dumps(LogisticRegression()), "LogisticRegression is not fitted"),
        (b"", "the pickle cannot be read"),
    ],
)
def test_pickles_without_an_estimator_are_refused(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "m.pkl"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=said):
        load_model(file, trust=True)


def test_other_objects_and_recordings_are_refused() -> None:
    wrong: Any = 3
    with pytest.raises(UsageError, match="an object of int is no model"):
        load_model(wrong)
    with pytest.raises(FirmwrightError, match="is not fitted"):
        load_model(RandomForestClassifier())
    with pytest.raises(UsageError, match=r"recordings of shape \[4, 299\]"):
        SensorFeatures(CHAIN).fit(np.zeros((4, 299)))
    features = SensorFeatures(CHAIN)
    assert features.get_params() == {"chain": CHAIN}
    assert load_model(features).module.entry_graph.params[0].name == "samples"
