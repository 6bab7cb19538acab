"""An installed package with an entry point provides a planner to compile with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300
PLANNER = '''
from firmwright.usmp.heuristics import greedy_by_size
from dataclasses import replace

def last_first(buffers, conflicts, pools):
    """Largest first, and signed."""
    return replace(greedy_by_size(buffers, conflicts, pools), planner="last_first")
'''
ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: acme-planner\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": "[firmwright.planners]\nacme = acme_planner:last_first\n",
}


def a_wheel(folder: Path) -> Path:
    path = folder / "acme_planner-1.0-py3-none-any.whl"
    files = {"acme_planner.py": PLANNER}
    files |= {
        f"acme_planner-1.0.dist-info/{name}": text for name, text in ABOUT.items()
    }
    record = "".join(
        f"{name},,\n" for name in [*files, "acme_planner-1.0.dist-info/RECORD"]
    )
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {
            **files,
            "acme_planner-1.0.dist-info/RECORD": record,
        }.items():
            wheel.writestr(name, text)
    return path


def run(*command: str, path: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_planner_is_listed_and_compiles(
    tmp_path: Path, digits_path: Path
) -> None:
    place, toolchain = tmp_path / "site", str(ROOT / "toolchain")
    install = (
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        str(place),
    )
    run(*install, str(a_wheel(tmp_path)), path=toolchain)
    path = os.pathsep.join((toolchain, str(place)))
    listed = json.loads(run("firmwright", "planners", "--json", path=path))["planners"]
    assert {
        "name": "acme",
        "default": False,
        "doc": "Largest first, and signed.",
    } in listed
    compiling = (
        "firmwright",
        "compile",
        str(digits_path),
        "--planner",
        "acme",
        "--json",
    )
    result = json.loads(run(*compiling, path=path))
    assert result["plan"]["planner"] == "last_first"
    assert result["workspace_bytes"] >= result["lower_bound_bytes"] > 0
