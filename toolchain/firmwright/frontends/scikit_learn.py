"""Fitted estimators of scikit-learn: their ONNX models by skl2onnx, and their pickles.

A pipeline that begins with `firmwright.sensors.pipelines.SensorFeatures` becomes module
text with the features before the model of the other steps. A pickle runs code while it
is read, so that it is read only if the user trusts the file.
"""

import io
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import ModelError, ToolMissingError, UsageError
from firmwright.base.trust import trusts_path, untrusted_error

_SUFFIXES = (".joblib", ".pkl", ".pickle")


class Estimator(Protocol):
    """The common method of all estimators of scikit-learn."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


def is_pickle(data: bytes, file: str) -> bool:
    """Detect a pickle by its first bytes, or a compressed one by the file's name."""
    # A flatbuffer may begin alike, but has its identifier at byte 4.
    is_plain = data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return (is_plain and data[4:8] != b"TFL3") or file.lower().endswith(_SUFFIXES)


def convert_pickle(data: bytes, path: Path, *, trust: bool = False) -> bytes:
    """Return the ONNX model or module text of a pickled estimator.

    Raise UsageError, before the pickle is read, if the user does not trust `path`, and
    ModelError if it holds no fitted estimator.
    """
    if not (trust or trusts_path(path)):
        raise untrusted_error("a pickle runs code of its own while it is read.", path)
    joblib = _package("joblib")
    try:
        estimator = joblib.load(io.BytesIO(data))
    except Exception as error:  # a pickle may raise anything
        what = f"the pickle cannot be read ({type(error).__name__}: {error!s:.80})."
        raise ModelError.broken(what, path.name) from error
    if not hasattr(estimator, "get_params"):
        what = f"the pickle holds an object of {type(estimator).__name__}."
        raise ModelError(what, where=path.name, hint="a fitted estimator.")
    return convert_estimator(estimator, path.name)


def convert_estimator(estimator: Estimator, file: str) -> bytes:
    """Return the ONNX model of a fitted estimator, or module text with its features.

    `file` names it in messages.
    """
    steps = getattr(estimator, "steps", None)
    first = steps[0][1] if steps else estimator
    if hasattr(first, "module_text"):
        name = to_model_identifier(Path(file).stem)
        text: bytes = first.module_text(estimator, name)
        return text
    return estimator_to_onnx(estimator, getattr(estimator, "n_features_in_", 0), file)


def estimator_to_onnx(estimator: Estimator, features: int, file: str) -> bytes:
    """Return the ONNX model of an estimator that takes float32 [1, features].

    The probabilities of a classifier are a tensor. Raise ModelError for an estimator
    that is not fitted, or that skl2onnx does not convert.
    """
    skl2onnx, base = _package("skl2onnx"), _package("sklearn.base")
    if not features:
        what = f"{type(estimator).__name__} is not fitted, or takes no numbers."
        raise ModelError(what, where=file, hint="the estimator after `fit`.")
    options = {}
    if base.is_classifier(estimator):
        options[id(estimator)] = {"zipmap": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sample = np.zeros((1, features), np.float32)
            model = skl2onnx.to_onnx(estimator, sample, options=options)
        except Exception as error:  # of any class, by the converter of each estimator
            what = f"skl2onnx does not convert {type(estimator).__name__}: "
            what += f"{' '.join(str(error).split())[:200]}."
            hint = "estimators that docs/models.md names."
            raise ModelError(what, where=file, hint=hint) from error
    data: bytes = model.SerializeToString()
    return data


def require_estimator(thing: object) -> Estimator:
    """Return `thing`; raise UsageError if it is no estimator."""
    if not hasattr(thing, "get_params"):
        what = f"an object of {type(thing).__name__} is no model."
        hint = "the path of a model file, or a fitted estimator of scikit-learn."
        raise UsageError(what, hint=hint)
    estimator: Estimator = thing
    return estimator


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        what = f"estimators of scikit-learn need {name.partition('.')[0]}."
        hint = "pip install 'firmwright[sklearn]'."
        raise ToolMissingError(what, hint=hint) from error
