"""The server for agents, through the protocol's own client over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firmwright.extensions.mcp.command_runner import (
    CommandRunner,
    ToolCallError,
    find_result,
)
from firmwright.extensions.mcp.tools import (
    NEXT_STEPS,
    error_classes,
    explain,
)

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")
ROOT = Path(__file__).parents[3]
TOOLS = {
    "explain_error",
    "fit",
    "inspect",
    "list_boards",
    "list_models",
    "profile",
    "verify",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A root with a model, a damaged one, and a link that leaves it."""
    root = tmp_path / "models"
    root.mkdir()
    digits = ROOT / "examples" / "01_digits" / "digits.tflite"
    shutil.copy(digits, root / "digits.tflite")
    (root / "broken.tflite").write_bytes(digits.read_bytes()[:1000])
    shutil.copy(digits, tmp_path / "secret.tflite")
    (root / "link.tflite").symlink_to(tmp_path / "secret.tflite")
    return root


def session(root: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Run `talk` with a client of a server that was started as agents start it."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "firmwright", "mcp", str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
    )

    async def run() -> None:
        async with Client(server) as client:
            await talk(client)

    asyncio.run(run())


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    return await client.call_tool(tool, arguments)


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content)


@pytest.mark.host_c
def test_an_agent_asks_about_a_model(folder: Path) -> None:
    async def talk(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == TOOLS
        assert all(tool.annotations.read_only_hint for tool in listed)
        assert all(tool.description for tool in listed)
        models = await call(client, "list_models")
        assert "digits.tflite" in models.structured_content["models"]
        seen = await call(client, "inspect", model="digits.tflite")
        assert not seen.is_error, text_of(seen)
        assert seen.structured_content["verb"] == "inspect"
        fits = await call(client, "fit", model="digits.tflite", board="mps2-an386")
        assert not fits.is_error, text_of(fits)
        assert fits.structured_content["fits"] is True
        verified = await call(client, "verify", model="digits.tflite", samples=2)
        assert verified.structured_content["mismatches"] == 0
        boards = await call(client, "list_boards")
        names = [row["name"] for row in boards.structured_content["boards"]]
        assert "nucleo-l4r5zi" in names

    session(folder, talk)


def test_what_an_agent_may_not_do_is_refused_with_a_reason(folder: Path) -> None:
    async def talk(client: Client) -> None:
        for path in ("../secret.tflite", "link.tflite"):
            refused = await call(client, "inspect", model=path)
            assert refused.is_error
            assert "outside of the server's root folder" in text_of(refused)
        missing = await call(client, "inspect", model="absent.tflite")
        assert "there is no such file" in text_of(missing)
        real = await call(client, "verify", model="digits.tflite", board="rpi-pico")
        assert "needs hardware" in text_of(real)
        option = await call(client, "verify", model="digits.tflite", board="--port=x")
        assert option.is_error
        many = await call(client, "verify", model="digits.tflite", samples=10**9)
        assert many.is_error
        broken = await call(client, "inspect", model="broken.tflite")
        assert broken.is_error
        assert "bad_model: " in text_of(broken)
        why = await call(client, "explain_error", code="bad_model")
        assert "malformed" in why.structured_content["meaning"]

    session(folder, talk)
    assert sorted(path.name for path in folder.iterdir()) == [
        "broken.tflite",
        "digits.tflite",
        "link.tflite",
    ]


def test_every_code_of_an_error_is_explained() -> None:
    assert set(error_classes()) == set(NEXT_STEPS)
    for code in NEXT_STEPS:
        explanation = explain(code)
        assert explanation["meaning"]
        assert explanation["next_step"]
    with pytest.raises(ToolCallError, match="is not a code"):
        explain("E42")


def test_a_call_ends_after_its_time(folder: Path) -> None:
    runner = CommandRunner(folder, timeout_s=0.05)
    with pytest.raises(ToolCallError, match=r"did not finish within 0\.05 s"):
        runner.run("inspect", runner.model("digits.tflite"))


def test_results_are_found_behind_messages() -> None:
    result = {"verb": "inspect", "ok": True}
    output = f"INFO: {{x}} of {{}}\n{json.dumps(result, indent=1)}\n"
    assert find_result(output) == result
