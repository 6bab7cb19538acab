"""Rendering of the Jinja2 file templates; no IR node enters a template."""

from __future__ import annotations

from firmwright.base import templates


def render_template(template: str, **values: object) -> str:
    return templates.render_template("firmwright.codegen", template, **values)
