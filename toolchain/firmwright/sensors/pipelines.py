"""Chains of sensors' samples as the first step of a scikit-learn pipeline.

pipeline = make_pipeline(SensorFeatures(chain), StandardScaler(), SVC())
pipeline.fit(windows, labels)
model = fw.load(pipeline)       # takes the samples of a run, returns the predictions
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from firmwright.base.errors import UsageError
from firmwright.flows.model.model import Model, load_estimator
from firmwright.ir.printer import print_module
from firmwright.sensors.chain import SensorChain


class SensorFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The values of a chain as features, a transformer of scikit-learn.

    A row of X is a recording from a reset on, [samples, channels] or the same numbers
    in a line; its features are the values of the last run. Of a chain without a
    `StreamWindow`, a recording is usually a window of one run.
    """

    def __init__(self, chain: SensorChain) -> None:
        self.chain = chain

    def fit(self, X: npt.ArrayLike, y: object = None) -> SensorFeatures:
        """Check the recordings X [recordings, ...]; nothing is learned."""
        self.n_features_in_ = self._recordings(X)[0].size
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return the features float32 [recordings, rows * width]."""
        recordings = self._recordings(X)
        values = self.chain.compute(recordings)[:, -1]
        return values.reshape(len(recordings), -1)

    def _recordings(self, given: npt.ArrayLike) -> npt.NDArray[Any]:
        array, channels = np.asarray(given), self.chain.channels
        if array.ndim == 2 and array.shape[1] % channels == 0:
            array = array.reshape(len(array), -1, channels)
        is_valid = array.ndim == 3 and array.shape[2] == channels and len(array) > 0
        if not is_valid or array.shape[1] < self.chain.samples:
            what = f"recordings of shape {list(array.shape)} for the features."
            hint = f"[recordings, {self.chain.samples} samples or more, {channels}]."
            raise UsageError(what, hint=hint)
        return array

    def model_of(self, pipeline: Any, name: str = "pipeline") -> Model:
        """Return the model of a fitted pipeline whose first step this is.

        It takes the samples of a run, and returns the results of the last step.
        """
        steps = pipeline.steps if pipeline is not self else []
        if len(steps) < 2:
            return self.chain.model()
        rest = type(pipeline)(steps[1:])
        features = self.chain.rows * self.chain.width
        return self.chain.before(load_estimator(rest, name, features))

    def module_text(self, pipeline: Any, name: str) -> bytes:
        """Return the model of a fitted pipeline as module text."""
        return print_module(self.model_of(pipeline, name).module).encode()
