"""Packages for other build systems: the values of `export --format`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="export-formats",
    command_line=(__name__,),
    export_formats=(f"{__name__}.model_library_format", f"{__name__}.formats"),
)
