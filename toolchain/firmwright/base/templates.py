"""The settings of all Jinja2 templates, in the folders `templates` of packages.

Jinja2 is imported when a template is rendered, since few verbs do that.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def template_environment(*packages: str, autoescape: bool = False) -> "Environment":
    """Return the settings for packages' templates; the first with a template counts.

    The filter `n` groups the digits of a number, `signed` also has its sign.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(package, "templates") for package in packages]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["n"] = lambda value: "" if value is None else f"{value:,}"
    environment.filters["signed"] = lambda value: f"{value:+,}"
    return environment


def render_template(package: str, template: str, **values: object) -> str:
    return template_environment(package).get_template(template).render(**values)


def template_errors() -> tuple[type[Exception], ...]:
    """Return the errors of values that do not suit a template."""
    from jinja2 import UndefinedError

    return TypeError, UndefinedError


def to_unicode(text: str) -> str:
    """Return a text that can be stored: bytes that are not UTF-8 become escapes.

    File names may contain such bytes.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
