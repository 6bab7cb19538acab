"""Run every documented command and program, page by page, in order.

Blocks are fenced `sh` or `python`, or text that begins with a command. Each page runs
in a separate folder with the example folders and models under the names that pages use.
A comment before a block marks exceptions:

    <!-- run: deep -->           takes long: run with --deep only, else its options are parsed
    <!-- not run: REASON -->     cannot be run here; REASON is one of REASONS, or `run by FILE`

Without --deep the bundled digits model replaces external models.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from firmwright.cli.main import _parser, main, verbs

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "boards/README.md")]
    + [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
)
BLOCK = re.compile(
    r"(?:^<!-- ((?:(?:not )?run|session): [^\n]*?) -->\n)?"
    r"^```([^\n]*)\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PROGRAMS = (
    "firmwright",
    "./fw",
    "python",
    "python3",
    "pip",
    "pytest",
    "make",
    "cc",
    "west",
    "dask",
    "qemu-system-arm",
    "timeout",
    "tail",
    "mkdir",
    "scons",
    "export",
    ".venv/bin/scons",
    ".venv/bin/pytest",
    "./digits",
    "./tasks",
    "jupyter",
    "cd",
)
"""The first words of lines that are commands."""
OURS = ("firmwright", "./fw")
REASONS = {
    "needs Docker": r"^docker ",
    "needs a key": r"ssh-keygen",
    "needs a board": r"--port|\bflash\b|nucleo",
    "needs a debugger's server": r"--address localhost",
    "waits for the runner": r"--serve",
    "serves until it is interrupted": r"firmwright studio",
    "needs PyTorch": r"torch\.",
    "needs TensorFlow": r"import tensorflow",
    "needs alsa-utils": r"/alsa/",
    "needs a cluster": r"dask|--scheduler",
    "needs Zephyr's west": r"^west ",
    "needs a copy of CMSIS-NN": r"--cmsis-nn",
    "needs a copy of ESP-NN": r"--esp-nn",
    "needs a file of Vela": r"_vela\.tflite",
    "needs the benchmark's samples": r"--dataset|--serve",
    "fetches from the network": r"pip install|fetch\.py",
    "installs a Debian": r"in_debian13\.sh",
    "is the whole test suite": r"\bfw test|scons check",
    "takes minutes for each board": r"bench .*--(?:predict|cycles)",
    "writes into the home folder": r"~/",
    "needs a folder of models": r"census ",
    "needs a model of the reader's": r"calc\.tflite|net\.onnx|person_detect\.tflite",
    "needs the package above installed": r"npu1",
    "needs an RTOS's headers": r"xTaskCreateStatic",
    "needs a terminal": r"make run",
    "needs CMSIS": r"SCB_",
    "needs a copy of FreeRTOS": r"FREERTOS_KERNEL_PATH",
}
"""The reasons for not running a block, and the text it must contain."""
MODELS = {
    "kws.tflite": "kws_ref_model.tflite",
    "kws_ref_model.tflite": "kws_ref_model.tflite",
    "pretrainedResnet_quant.tflite": "pretrainedResnet_quant.tflite",
}
"""Names that pages use for the benchmark's models."""
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Block:
    """A fence; `mark` is the comment in front of it, "" if there is none."""

    page: Path
    mark: str
    kind: str
    text: str

    @property
    def is_deep(self) -> bool:
        return self.mark == "run: deep"

    @property
    def reason(self) -> str:
        if self.mark.startswith("session: "):
            return "run by tests/test_docs.py"
        return (
            self.mark.removeprefix("not run: ")
            if self.mark.startswith("not run: ")
            else ""
        )

    def commands(self) -> tuple[str, ...]:
        """Return the commands alone; continued lines are joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            return tuple(line[2:] for line in lines if line.startswith("$ "))
        return tuple(_logical(lines))


def _logical(lines: list[str]) -> Iterator[str]:
    pending = ""
    for line in lines:
        pending = f"{pending}\n{line}" if pending else line
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:  # a quotation that goes on in the next line
            continue
        if words and _is_command(words):
            yield pending
        pending = ""
    assert not pending, f"no end of {pending!r}"


def _is_command(words: list[str]) -> bool:
    program = next(
        (word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)), ""
    )
    return program in PROGRAMS and not any(
        word.endswith(":") for word in words
    )  # no message


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that contain commands or programs."""
    found = []
    for mark, words, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        kind, *rest = words.split() or [""]
        block = Block(page, mark, kind, text)
        is_program = (kind == "python" and not rest) or kind == "py"
        first = shlex.split(
            re.split(r"['\"]", text)[0].removeprefix("$ "), comments=True
        )
        is_shell = kind == "sh" or (
            kind == "text" and bool(first) and _is_command(first)
        )
        if mark or is_program or (is_shell and block.commands()):
            found.append(block)
    return found


WITH_BLOCKS = {page: blocks for page in PAGES if (blocks := blocks_of(page))}
ALL = [block for blocks in WITH_BLOCKS.values() for block in blocks]


# ---- the marks -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT))
)
def test_blocks_that_are_not_run_have_a_reason(page: Path) -> None:
    for block in WITH_BLOCKS[page]:
        assert not block.mark or block.is_deep or block.reason, (
            f"unknown mark {block.mark!r}"
        )
        assert (
            block.reason in REASONS
            or not block.reason
            or block.reason.startswith("run by ")
        )
        if block.reason.startswith("run by "):
            judge = ROOT / block.reason.removeprefix("run by ")
            assert page.name in judge.read_text(encoding="utf-8"), (
                "the file no longer reads it"
            )
        elif block.reason:
            assert re.search(REASONS[block.reason], block.text, re.MULTILINE), (
                block.reason
            )


def test_every_reason_is_still_needed() -> None:
    assert set(REASONS) == {
        b.reason for b in ALL if b.reason and "run by" not in b.reason
    }


def test_marks_precede_blocks_only() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        marks = re.findall(
            r"^<!-- (?:(?:not )?run|session): .* -->$", text, re.MULTILINE
        )
        assert len(marks) == sum(1 for mark, _, _ in BLOCK.findall(text) if mark), page


def test_indented_blocks_have_no_commands() -> None:
    hidden = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES
        for line in BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines()
        if line.startswith("    ") and line.split()[0:1] and line.split()[0] in PROGRAMS
    ]
    assert not hidden


# ---- running them --------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize(
    "page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT))
)
def test_documented_commands_work(
    page: Path, deep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepared(page, deep, tmp_path)
    monkeypatch.chdir(folder)
    if any("cache clear" in block.text for block in WITH_BLOCKS[page]):
        monkeypatch.setenv(
            "FIRMWRIGHT_CACHE", str(tmp_path / "cache")
        )  # not that of other tests
    for block in WITH_BLOCKS[page]:
        if block.reason or (block.is_deep and not deep):
            parse(block)
        elif block.kind == "python":
            bash(tmp_path, f"python - <<'END'\n{block.text}\nEND")
        else:
            for command in block.commands():
                run(tmp_path, command, fails=_is_told_to_fail(block, command))


def parse(block: Block) -> None:
    """Check the verbs and options in a block that is not run."""
    if block.kind in ("python", "py", "fwir"):
        return
    for command in block.commands():
        words = shlex.split(command, comments=True)
        if words[0] in OURS:
            _parser(verbs()).parse_args(words[1:])


def _is_told_to_fail(block: Block, command: str) -> bool:
    """Return whether the page shows an error as the output of the command."""
    _, found, behind = block.text.partition(f"$ {command}\n")
    return bool(found) and behind.startswith("firmwright: ")


def run(base: Path, command: str, *, fails: bool) -> None:
    """In this process where it is one command of ours alone, else in a shell."""
    words = shlex.split(command, comments=True)
    if words[0] in OURS and not re.search(r"[|<>;&]", command.split("#")[0]):
        assert bool(main(words[1:])) == fails, command
    else:
        bash(base, command)


def bash(base: Path, script: str) -> None:
    """Runs a script with our command and this Python first on its PATH."""
    tools = base / "tools"
    if not tools.is_dir():
        tools.mkdir()
        for name, module in (
            ("firmwright", " -m firmwright"),
            ("python", ""),
            ("python3", ""),
        ):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
            tool.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "toolchain"),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def prepared(page: Path, deep: bool, base: Path) -> Path:
    """A folder like the page's own: the project's root, or an example's."""
    root = base / "project"
    root.mkdir()
    shutil.copytree(
        ROOT / "examples", root / "examples", ignore=shutil.ignore_patterns("models")
    )
    for name in ("tests", "toolchain", "boards", "runtime_c", "docs", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    examples = root / "examples"
    folder = (
        examples / page.parent.name if page.parent.parent.name == "examples" else root
    )
    if folder is root:
        shutil.copy(examples / "01_digits/digits.tflite", root)
        shutil.copy(examples / "02_keyword/keyword.tflite", root)
        for name, model in MODELS.items():
            known = _models() / model
            source = known if deep and known.is_file() else root / "digits.tflite"
            shutil.copy(source, root / name)
    PREPARE.get(page.name, PREPARE.get(page.parent.name, lambda folder: None))(folder)
    return folder


def _models() -> Path:
    return Path(os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared/models"))


# ---- files that a page takes for granted ---------------------------------------------


def images(folder: Path) -> None:
    """The held-out digits as bytes."""
    held_out = np.load(ROOT / "examples/01_digits/digits_test.npz")["input_1"]
    (folder / "images.bin").write_bytes(held_out.tobytes())


def captured(folder: Path) -> None:
    """One input as a program would have written it down."""
    shutil.copy(folder / "digits.tflite", folder / "kws.tflite")
    held_out = np.load(ROOT / "examples/01_digits/digits_test.npz")["input_1"]
    np.savez(folder / "captured.npz", input_1=held_out[0])


def small_board(folder: Path) -> None:
    """The board that the page has as a whole."""
    page = (ROOT / "docs/boards.md").read_text(encoding="utf-8")
    (text,) = (text for _, kind, text in BLOCK.findall(page) if kind == "toml")
    place = folder / "my_boards" / tomllib.loads(text)["name"]
    place.mkdir(parents=True)
    (place / "board.toml").write_text(text, encoding="utf-8")


def speech(folder: Path) -> None:
    """The sound of example 02 without its head."""
    done = subprocess.run(
        [sys.executable, "listen.py", "--make", folder / "speech.wav"],
        cwd=folder.parent / "02_keyword",
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
    )
    assert done.returncode == 0
    (folder / "speech.raw").write_bytes((folder / "speech.wav").read_bytes()[44:])


def wake_words(folder: Path) -> None:
    """The public wake words that the page fetches."""
    package = pytest.importorskip("pymicro_wakeword", reason="needs its models")
    shutil.copytree(
        Path(package.__file__).parent / "models", folder, dirs_exist_ok=True
    )


PREPARE: dict[str, Callable[[Path], None]] = {
    "06_main_loop": images,
    "07_tasks": images,
    "04_uart_audio": speech,
    "debug.md": captured,
    "boards.md": small_board,
    "wake-words.md": wake_words,
}
