"""The settings of all Jinja2 templates, which are in the folder `templates` of a package."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment(package: str, *, autoescape: bool = False) -> Environment:
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_template(package: str, template: str, **values: object) -> str:
    return template_environment(package).get_template(template).render(**values)
