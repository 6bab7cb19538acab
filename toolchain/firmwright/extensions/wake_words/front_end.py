"""The features of microWakeWord: TFLM's front end, and int8 as ESPHome computes them.

The settings are those with which all of microWakeWord's models are trained. A logarithm
`v`, in steps of 1/64, becomes (256 v + 333) / 666 - 128 in integers.
"""

from firmwright.audio.features import Features, FrontEnd
from firmwright.flows.model.model import Model

SAMPLE_RATE = 16_000
FRONT_END = "audio_features"
"""The name of its model."""
FEATURES = 40
"""The values of a row."""
_FRAME_MS = 30
_FORMULA = "int8(min((int32(a) * 256 + 333) / 666, 255) - 128)"


def samples_of_step(step_ms: int) -> int:
    return SAMPLE_RATE * step_ms // 1_000


def _settings(step_ms: int) -> Features:
    return Features(
        frame=SAMPLE_RATE * _FRAME_MS // 1_000,
        hop=samples_of_step(step_ms),
        channels=FEATURES,
        log_scale=64,
    )


def make_front_end(step_ms: int) -> Model:
    """Return the model of `samples`, int16 [1, step], to a row, int8 [1, 40]."""
    front = FrontEnd(_settings(step_ms))
    logs = front.logarithms(front.channels(front.spectrum()))
    row = front.g.call("expression", logs, name="row", dtype="int8", formula=_FORMULA)
    return Model(front.g.module(row))
