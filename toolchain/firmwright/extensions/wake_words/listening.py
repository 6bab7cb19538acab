"""wake_words.c and its header: the C that listens, around the models of a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import UsageError
from firmwright.base.templates import template_environment
from firmwright.codegen.c_writer import escape_comment, format_c_string
from firmwright.compilation_summary import CompilationSummary
from firmwright.extensions.wake_words.front_end import (
    FEATURES,
    FRONT_END,
    samples_of_step,
)
from firmwright.extensions.wake_words.manifest import WakeWord
from firmwright.package.export_input import NO_METADATA, ExportInput
from firmwright.package.template_values import (
    ModelValues,
    model_values,
    template_values,
)
from firmwright.pipeline import Bundle

PREFIX = "wake_words"
"""The prefix of the functions, which no model can have."""
_ROWS_TO_WAIT = 100
"""Rows with a low probability before a word is heard, as ESPHome waits."""
_CORE = "firmwright.package"


@dataclass(frozen=True, slots=True)
class _Listener:
    """A word for templates: its model, rows of a run, and the phrase in C."""

    word: WakeWord
    model: ModelValues
    stride: int
    c_phrase: str


@dataclass(frozen=True, slots=True)
class Listening:
    """The words of a package, whose models are in a bundle with the front end."""

    words: Sequence[WakeWord]

    def values(self, exported: ExportInput) -> dict[str, object]:
        """Return the names that the templates of this package know."""
        models: dict[str, ModelValues] = {}
        for summary in exported.models:
            name = to_model_identifier(summary.model)
            models[name] = model_values(summary, exported.devices)
        listeners: list[_Listener] = []
        for word in self.words:
            model = models[word.identifier]
            stride = rows_of_run(model.summary)
            phrase = format_c_string(word.phrase)
            listeners.append(_Listener(word, model, stride, phrase))
        spoken = [f'"{word.phrase}"' for word in self.words if not word.is_voice]
        voices = [listener for listener in listeners if listener.word.is_voice]
        return {
            **template_values(exported),
            "front": models[FRONT_END],
            "words": [item for item in listeners if not item.word.is_voice] + voices,
            "voice": voices[0] if voices else None,
            "phrases": escape_comment(", ".join(spoken)),
            "features": FEATURES,
            "rows_to_wait": _ROWS_TO_WAIT,
            "step_ms": self.words[0].step_ms,
            "step_samples": samples_of_step(self.words[0].step_ms),
            "longest": max(listener.stride for listener in listeners),
        }

    def add_sources(self, compiled: Bundle) -> Bundle:
        """Return the bundle with wake_words.c and wake_words.h among its sources."""
        values = self.values(ExportInput(compiled.tree, compiled.summary, NO_METADATA))
        environment = template_environment(__package__, _CORE)
        files: dict[str, str | bytes] = {}
        for suffix in ("c", "h"):
            template = environment.get_template(f"{PREFIX}.{suffix}.j2")
            files[f"model/{PREFIX}.{suffix}"] = template.render(values)
        return replace(compiled, tree=compiled.tree.merged(SourceTree(files)))


def rows_of_run(model: CompilationSummary) -> int:
    """Return how many rows a wake word's model takes in a run.

    Raises:
        UsageError: the model does not take int8 [1, rows, 40], or does not return
            uint8 [1, 1].
    """
    inputs, outputs = model.io.inputs, model.io.outputs
    hint = "a streaming model of microWakeWord."
    if len(inputs) != 1 or len(outputs) != 1:
        what = "the model has more than one input or output."
        raise UsageError(what, where=model.model, hint=hint)
    given, made = inputs[0], outputs[0]
    shape = list(given.shape)
    if (
        given.dtype != "int8"
        or len(shape) != 3
        or [shape[0], shape[2]] != [1, FEATURES]
    ):
        what = f"the model takes {given.dtype} {shape}, not int8 [1, rows, {FEATURES}]."
        raise UsageError(what, where=model.model, hint=hint)
    if made.dtype != "uint8" or list(made.shape) != [1, 1]:
        what = f"the model returns {made.dtype} {list(made.shape)}, not uint8 [1, 1]."
        raise UsageError(what, where=model.model, hint=hint)
    return shape[1]
