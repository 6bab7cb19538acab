"""The export format `esphome`: an external component of ESPHome, and plain C in it."""

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.base.templates import template_environment
from firmwright.extensions.wake_words.listening import Listening
from firmwright.package.export_format import Content, ExportFormat
from firmwright.package.export_input import ExportInput

COMPONENT = "firmwright_wake_words"
_FOLDER = f"components/{COMPONENT}"
_TEMPLATES: Mapping[str, str] = {
    "component.py.j2": f"{_FOLDER}/__init__.py",
    "component.h.j2": f"{_FOLDER}/{COMPONENT}.h",
    "component.cpp.j2": f"{_FOLDER}/{COMPONENT}.cpp",
    "example.yaml.j2": "example.yaml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EsphomeFormat(ExportFormat):
    """The component that listens for the words of `listening`."""

    listening: Listening
    takes_tests: bool = False

    @property
    def sources_folder(self) -> str:
        return _FOLDER

    def make_files(self, exported: ExportInput) -> Content:
        values = {"component": COMPONENT, **self.listening.values(exported)}
        environment = template_environment(*self.template_packages)
        content: Content = {}
        for template, path in _TEMPLATES.items():
            content[path] = environment.get_template(template).render(values)
        for packaged in exported.files:
            if packaged.flags or packaged.is_object:
                what = f"{packaged.path} needs a build of its own"
                what = f"{what}; ESPHome compiles plain sources only."
                raise UsageError(what, where="export", hint="omit the backend.")
            content[f"{_FOLDER}/{packaged.name}"] = packaged.data
        return content
