"""A server of the Model Context Protocol for agents: the verb `mcp`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(name="mcp", command_line=(__name__,))
