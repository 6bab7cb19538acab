"""The export format `esphome`: an external component of ESPHome, and plain C in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import UsageError
from firmwright.base.templates import template_environment
from firmwright.codegen.c_writer import escape_comment, format_c_string
from firmwright.compilation_summary import CompilationSummary
from firmwright.extensions.wake_words.front_end import FEATURES, samples_of_step
from firmwright.extensions.wake_words.manifest import WakeWord
from firmwright.package.export_format import Content, ExportFormat
from firmwright.package.export_input import ExportInput
from firmwright.package.template_values import (
    ModelValues,
    model_values,
    template_values,
)

COMPONENT = "firmwright_wake_words"
_ROWS_TO_WAIT = 100
"""Rows with a low probability before a word is heard, as ESPHome waits."""
_FOLDER = f"components/{COMPONENT}"
_CORE = "firmwright.package"
_TEMPLATES: Mapping[str, str] = {
    "wake_words.h.j2": "wake_words.h",
    "wake_words.c.j2": "wake_words.c",
    "component.py.j2": "__init__.py",
    "component.h.j2": f"{COMPONENT}.h",
    "component.cpp.j2": f"{COMPONENT}.cpp",
}


@dataclass(frozen=True, slots=True)
class _Listener:
    """A word for templates: its model, rows of a run, and the phrase in C."""

    word: WakeWord
    model: ModelValues
    stride: int
    c_phrase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeWordsFormat(ExportFormat):
    """The component for `words`, whose models follow the front end in the export."""

    words: Sequence[WakeWord]
    front_end: str
    takes_tests: bool = False

    @property
    def sources_folder(self) -> str:
        return _FOLDER

    def make_files(self, exported: ExportInput) -> Content:
        values = self._values(exported)
        environment = template_environment(self.package, _CORE)
        content: Content = {}
        for template, file in _TEMPLATES.items():
            text = environment.get_template(template).render(values)
            content[f"{_FOLDER}/{file}"] = text
        example = environment.get_template("example.yaml.j2").render(values)
        content["example.yaml"] = example
        for packaged in exported.files:
            if packaged.flags or packaged.is_object:
                what = f"{packaged.path} needs a build of its own"
                what = f"{what}; ESPHome compiles plain sources only."
                raise UsageError(what, where="export", hint="omit the backend.")
            content[f"{_FOLDER}/{packaged.name}"] = packaged.data
        return content

    def _values(self, exported: ExportInput) -> dict[str, object]:
        values = template_values(exported)
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
            **values,
            "form": self.name,
            "component": COMPONENT,
            "front": models[to_model_identifier(self.front_end)],
            "words": [item for item in listeners if not item.word.is_voice] + voices,
            "voice": voices[0] if voices else None,
            "phrases": escape_comment(", ".join(spoken)),
            "features": FEATURES,
            "rows_to_wait": _ROWS_TO_WAIT,
            "step_ms": self.words[0].step_ms,
            "step_samples": samples_of_step(self.words[0].step_ms),
            "longest": max(listener.stride for listener in listeners),
        }


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
