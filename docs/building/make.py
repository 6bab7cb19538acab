"""Build the documentation site; a warning is an error.

    python docs/building/make.py [FOLDER]   # default build/docs; the site is in site/

The staged Markdown pages are in FOLDER/pages. Needs the extra `docs`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def render(pages: Path, site: Path) -> None:
    """Render a folder of pages as HTML; raise SystemExit if Sphinx warns or fails."""
    options = ["--quiet", "--nitpicky", "--fail-on-warning", "--keep-going"]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        "-c",
        str(HERE),
        str(pages),
        str(site),
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"the site cannot be made:\n{done.stderr.strip()}")


def main() -> None:
    """Stage and render the site."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1] / "build/docs")
    subprocess.run([sys.executable, HERE / "stage.py", folder / "pages"], check=True)
    render(folder / "pages", folder / "site")
    print(f"{folder / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
