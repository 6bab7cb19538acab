"""microWakeWord's manifests: a JSON file beside a model says how to listen with it.

The fields are those that ESPHome's component micro_wake_word reads, versions 1 and 2.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import ModelError, UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import parse_json
from firmwright.base.value_kinds import (
    OBJECT,
    Kind,
    is_integer,
    matching,
    one_of,
    wrong_values,
)

VOICE = "vad"
"""The phrase of a model of voice activity, which all words need."""
CUTOFF_MAX: Final = 255
"""The cutoff of the probability 1."""
_FIRST_VERSION_STEP_MS: Final = 20
_WINDOW_MAX: Final = 255
_STEPS_MS: Final = (10, 20, 30)
_HINT = "a manifest of microWakeWord, version 1 or 2."


def _is_share(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1


_PHRASE = Kind(
    "1 to 60 printable characters",
    lambda value: (
        isinstance(value, str) and value.isprintable() and 0 < len(value) <= 60
    ),
)
_FILE = matching(r"[\w. +-]+\.tflite", "the name of a .tflite file beside it")
_SHARE = Kind("a number from 0 to 1", _is_share)
_WINDOW = Kind(
    f"an integer from 1 to {_WINDOW_MAX}",
    lambda value: is_integer(value, 1, _WINDOW_MAX + 1),
)
_STEP = Kind(
    "10, 20 or 30 (milliseconds)",
    lambda value: is_integer(value, 0, 256) and value in _STEPS_MS,
)
_VERSION = Kind("1 or 2", lambda value: is_integer(value, 1, 3))
_ALL = {
    "type": one_of("micro"),
    "version": _VERSION,
    "wake_word": _PHRASE,
    "model": _FILE,
    "micro": OBJECT,
}
_SECOND = {
    "probability_cutoff": _SHARE,
    "sliding_window_size": _WINDOW,
    "feature_step_size": _STEP,
}
_FIRST = {"probability_cutoff": _SHARE, "sliding_window_average_size": _WINDOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeWord:
    """A model and how its probabilities become a detection.

    Attributes:
        phrase: What a speaker says, or `VOICE`.
        model: The .tflite file.
        cutoff: The mean probability above which the phrase was said, in 1 / 255.
        window: The number of last probabilities in the mean.
        step_ms: Milliseconds from one row of features to the next.
    """

    phrase: str
    model: Path
    cutoff: int
    window: int
    step_ms: int

    @property
    def identifier(self) -> str:
        """The name of the model in C."""
        return to_model_identifier(self.model.stem)

    @property
    def is_voice(self) -> bool:
        return self.phrase == VOICE


def read_manifest(path: Path) -> WakeWord:
    """Return the wake word of a manifest; ModelError if it is not a valid one."""
    if path.suffix.lower() != ".json":
        what = f"{path.name} is not a manifest of a wake word."
        raise UsageError(
            what, where=str(path), hint=f"the .json file beside it, {_HINT}"
        )
    try:
        values = parse_json(read_input_text(path))
    except (OSError, ValueError) as error:
        what = f"the manifest cannot be read: {error}."
        raise ModelError(what, where=str(path), hint=_HINT) from error
    if not isinstance(values, dict):
        what = "the manifest is not a JSON object."
        raise ModelError(what, where=str(path), hint=_HINT)
    _check(values, _ALL, "", path)
    micro = values["micro"]
    is_first = values["version"] == 1
    _check(micro, _FIRST if is_first else _SECOND, "micro.", path)
    window = "sliding_window_average_size" if is_first else "sliding_window_size"
    return WakeWord(
        phrase=values["wake_word"],
        model=path.parent / PurePosixPath(values["model"]),
        cutoff=int(micro["probability_cutoff"] * CUTOFF_MAX),
        window=micro[window],
        step_ms=_FIRST_VERSION_STEP_MS if is_first else micro["feature_step_size"],
    )


def _check(
    values: dict[str, object], kinds: dict[str, Kind], where: str, path: Path
) -> None:
    for wrong in wrong_values(values, kinds, where):
        raise ModelError(f"the manifest {wrong}.", where=str(path), hint=_HINT)
