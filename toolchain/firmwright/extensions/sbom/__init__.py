"""The SBOM of a firmware project: the verb `sbom`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(name="sbom", command_line=(__name__,))
