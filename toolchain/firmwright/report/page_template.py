"""Renders the templates of HTML pages, which share the style sheet and some names."""

from importlib.resources import files

from markupsafe import Markup

from firmwright.base.templates import template_environment, to_unicode
from firmwright.report.text_shortening import shorten


def report_file(name: str) -> str:
    """Return the text of a file beside the templates, such as the style sheet."""
    return (files("firmwright.report") / "templates" / name).read_text(encoding="utf-8")


def render_report_template(template: str, **values: object) -> str:
    """Return the rendered template, in which `style` is the style sheet.

    The filter `shorten(N)` shortens a text to N letters.
    """
    environment = template_environment("firmwright.report", autoescape=True)
    environment.filters["shorten"] = shorten
    style = Markup(report_file("report.css"))
    return to_unicode(environment.get_template(template).render(style=style, **values))
