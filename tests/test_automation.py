"""The action, the Dockerfile and the skill: linted, and held against the project.

None of them can be run here. What they name is checked: options, inputs, folders.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from firmwright.base.errors import UsageError
from firmwright.cli.main import _parser, verbs

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action.yml"
DOCKERFILE = ROOT / "Dockerfile"
SKILL = ROOT / "docs" / "skills" / "firmwright" / "SKILL.md"


def linter(name: str, request: pytest.FixtureRequest) -> str:
    """Return the program beside this Python; without it, the test is skipped."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        reason = f"needs {name}, not found"
        if request.config.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return found


def parse(line: str) -> None:
    """Parse a command line of `firmwright`; shell variables are values."""
    words = shlex.split(re.sub(r"\$\w+", "3", line))
    assert words[0] == "firmwright"
    parser = _parser(verbs())
    assert words[1] in parser.verbs, line
    parser.verbs[words[1]].parse_args(words[2:])


# ---- linters -------------------------------------------------------------------------


def test_the_linter_of_actions_finds_nothing(request: pytest.FixtureRequest) -> None:
    program = linter("zizmor", request)
    files = [ACTION, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    words = [program, "--offline", "--config", str(ROOT / ".github" / "zizmor.yml")]
    said = subprocess.run(
        [*words, *map(str, files)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_linter_of_dockerfiles_finds_nothing(
    request: pytest.FixtureRequest,
) -> None:
    program = linter("hadolint", request)
    said = subprocess.run(
        [program, str(DOCKERFILE)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


# ---- the action ----------------------------------------------------------------------


def test_the_action_uses_exactly_the_inputs_that_it_declares(
    action: dict[str, Any],
) -> None:
    text = ACTION.read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == action["inputs"].keys()
    for name, declared in action["inputs"].items():
        assert declared["description"].endswith("."), name
        assert declared.get("required") or "default" in declared, name


def test_the_actions_scripts_take_values_from_the_environment_only(
    action: dict[str, Any],
) -> None:
    assert action["runs"]["using"] == "composite"
    scripts = [step for step in action["runs"]["steps"] if "run" in step]
    assert len(scripts) >= 5
    for step in scripts:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        used = set(re.findall(r"\$(\w+)", step["run"]))
        assert used == set(step.get("env", {})), step["name"]


def test_the_actions_commands_are_valid(action: dict[str, Any]) -> None:
    lines = []
    for step in action["runs"]["steps"]:
        script = step.get("run", "").replace("\\\n", " ")
        lines += [line for line in script.splitlines() if "firmwright " in line]
    assert {line.split()[1] for line in lines} == {"fit", "verify", "report"}
    for line in lines:
        parse(line.partition(" > ")[0])
    with pytest.raises(UsageError):
        parse("firmwright verify model --no-such-option")


# ---- the container -------------------------------------------------------------------


def test_the_container_has_all_that_the_wheel_includes() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    copied: set[str] = set()
    for line in re.findall(r"^COPY (.*) /src", text, re.MULTILINE):
        copied.update(line.split())
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["force-include"], *wheel["packages"], "pyproject.toml"}
    needed |= {project["project"]["readme"], *project["project"]["license-files"]}
    for name in needed:
        assert any(Path(name).is_relative_to(folder) for folder in copied), name
    (extras,) = re.findall(r'"/src\[([\w,-]+)\]"', text)
    assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()


# ---- the skill -----------------------------------------------------------------------


def test_the_skill_has_the_head_that_agents_read() -> None:
    _, head, body = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    facts = yaml.safe_load(head)
    assert facts.keys() == {"name", "description"}
    assert facts["name"] == SKILL.parent.name
    assert 50 < len(facts["description"]) <= 1024
    named = re.findall(r"`firmwright (\w+)", body)
    assert len(named) >= 8
    assert set(named) <= _parser(verbs()).verbs.keys()
