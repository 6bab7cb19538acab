"""The build stage, which turns a source tree and a board into a linked image with SCons."""

from firmwright.build.scons_runner import build_project, read_project_board

__all__ = ["build_project", "read_project_board"]
