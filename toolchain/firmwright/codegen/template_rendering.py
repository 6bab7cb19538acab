"""Rendering of the Jinja2 file templates; no IR node enters a template."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATES = "templates"


def render_template(template: str, **values: object) -> str:
    environment = Environment(
        loader=PackageLoader("firmwright.codegen", TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
