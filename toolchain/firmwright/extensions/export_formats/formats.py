"""The formats that are templates around a model's C, each a folder of `templates/`."""

from collections.abc import Mapping
from functools import partial

from firmwright.package.export_format import Archive, ExportFormat, TemplateFormat
from firmwright.package.zip_archive import zip_tree

_format = partial(TemplateFormat, package=__package__)
_FORMATS = (
    _format(name="cmake", folder="model"),
    _format(name="makefile", folder="model"),
    _format(name="arduino", folder="src", sets_flags=False, links_objects=False),
    _format(name="platformio", folder="src", links_objects=False),
    _format(name="zephyr", folder="src"),
    _format(name="esp-idf", folder="src"),
    _format(
        name="cmsis-pack",
        folder="src",
        sets_flags=False,
        archive=Archive("{vendor}.{name}.{version}.pack", zip_tree),
    ),
)
EXPORT_FORMATS: Mapping[str, ExportFormat] = {form.name: form for form in _FORMATS}
