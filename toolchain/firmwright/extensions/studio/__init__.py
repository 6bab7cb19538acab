"""A local page on which a person fits a model to a board: the verb `studio`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(name="studio", command_line=(__name__,))
