"""The stage that turns a source tree and a board into a linked image, through SCons."""

from firmwright.build.project import write_project
from firmwright.build.run_scons import build_project, project_board

__all__ = ["build_project", "project_board", "write_project"]
