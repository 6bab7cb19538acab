"""Sphinx configuration: local resources only, warnings are errors."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "toolchain"))

from firmwright.base.version import VERSION

project = "Firmwright"
author = "The Firmwright authors"
project_copyright = author
release = VERSION
root_doc = "index"
exclude_patterns = ["source/**"]

extensions = ["myst_parser"]
smartquotes = False  # "--option" is no dash
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Firmwright {VERSION}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = os.path.join(os.path.dirname(__file__), "search_scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
html_last_updated_fmt = None
