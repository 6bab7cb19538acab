"""microTVM's project API for projects of Firmwright, and its C runtime's interface.

`template_project` is the counterpart of TVM's `get_microtvm_template_projects`.
"""

from pathlib import Path


def template_project() -> Path:
    """Return the folder to give to TVM as a template project."""
    return Path(__file__).parent / "template_project"
