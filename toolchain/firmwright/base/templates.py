"""The settings of all Jinja2 templates, which are in the folder `templates` of a package."""

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from jinja2 import UndefinedError as UndefinedError


@cache
def template_environment(*packages: str, autoescape: bool = False) -> Environment:
    """Return the settings for the templates of packages; the first with a template provides it.

    The filter `n` groups the digits of a number, `signed` also has its sign.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in packages]),
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


def to_unicode(text: str) -> str:
    """Return a text that can be stored: bytes of file names that are not UTF-8 become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
