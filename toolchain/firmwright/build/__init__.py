"""The build stage: a source tree and a board become a linked image by SCons.

The names below are imported when they are first used, since a compilation needs of this
package only the files of a project.
"""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.build.scons_runner import build_project as build_project
    from firmwright.build.scons_runner import read_project_board as read_project_board

__getattr__ = export_on_use(
    __name__, {"scons_runner": ["build_project", "read_project_board"]}
)
