"""Write tables of figures, sessions and single figures into the pages.

    python docs/readme_figures.py MODELS     # the folder of the MLPerf Tiny models

Each block follows a marker, `<!-- session: demo -->`, and ends at the next blank line
(the session's at its fence). A figure is between two comments; the first has a command
and a key of its `--json` output: `<!-- figure: compile kws_ref_model.tflite:
workspace_bytes -->8,576<!-- end -->`. Review the diff before you commit it;
`tests/test_docs.py` compares.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "kws_ref_model": "kws, keyword spotting",
    "vww_96_int8": "vww, visual wake words",
    "pretrainedResnet_quant": "ic, image classification",
    "ad01_int8": "ad, anomaly detection",
    "str_ww_ref_model": "ww, streaming wake word",
}
TIMED = "nucleo-l4r5zi"
DIGITS = ROOT / "examples/01_digits"
OTHERS = "kws_ref_model"
BY_ROWS = ("kws_ref_model", "vww_96_int8", "pretrainedResnet_quant")
BOARDS = (
    "mps2-an385",
    "mps2-an386",
    "mps2-an500",
    "mps2-an505",
    "mps3-an547",
    "qemu-riscv32-virt",
    "qemu-riscv32-virt-v",
)


def firmwright(*words: str) -> str:
    """Run the command and return its output; exit if it fails."""
    command = [sys.executable, "-P", "-m", "firmwright", *words]
    print("firmwright", *words, file=sys.stderr)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def rows(*words: str) -> list[Mapping[str, Any]]:
    """Return the rows of `bench`."""
    found: list[Mapping[str, Any]] = json.loads(firmwright("bench", *words, "--json"))[
        "rows"
    ]
    return found


def table(head: tuple[str, ...], words: int, cells: list[tuple[str | int, ...]]) -> str:
    """Return a Markdown table with `words` columns of text, then columns of figures."""
    lines = [head, tuple("---" if n < words else "--:" for n in range(len(head)))]
    lines += [
        tuple(f"{c:,}" if isinstance(c, int) else c for c in row) for row in cells
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def session(shown: str, *words: str) -> str:
    """Return a block with the command as `shown` and the output of `words`."""
    told = "\n".join(line.rstrip() for line in firmwright(*words).strip().splitlines())
    return f"```text\n$ {shown}\n{told}\n```"


def fit_session() -> str:
    shown = "firmwright fit digits.tflite --board stm32g474re"
    words = shown.replace("digits.tflite", str(DIGITS / "digits.tflite")).split()
    return session(shown, *words[1:])


def milliseconds(models: Path) -> str:
    """Return predicted times beside the best published ones on the same chip."""
    with (ROOT / "benchmarks/peers.csv").open(encoding="utf-8") as file:
        published = {
            row["model"]: int(row["value"])
            for row in csv.DictReader(file)
            if (row["peer"], row["core"]) == ("best published", "cortex-m4")
        }
    cells: list[tuple[str | int, ...]] = []
    for name, title in MODELS.items():
        words = ("fit", str(models / f"{name}.tflite"), "--board", TIMED, "--json")
        time = json.loads(firmwright(*words))["milliseconds"]
        cycles = published.get(f"{name}.tflite")
        best = f"{1000 * cycles / time['clock_hz']:.1f}" if cycles else "–"
        cells.append((title, f"{time['least']:.1f} to {time['most']:.1f}", best))
    return table(("model", "modeled, ms", "best published, ms"), 1, cells)


def beside_the_rival(models: Path) -> str:
    cells: list[tuple[str | int, ...]] = []
    for row in rows(*(str(models / f"{name}.tflite") for name in MODELS)):
        name, rival = row["model"].removesuffix(".tflite"), row["rival"]
        ours, theirs = row["instructions"], rival["instructions"]
        cells.append(
            (
                f"{MODELS[name]} (`{name}`)",
                ours,
                theirs,
                f"{100 * ours / theirs:.0f} %",
                row["workspace_bytes"],
                rival["workspace_bytes"],
                row["model_flash_bytes"],
                rival["flash_bytes"],
            )
        )
    head = (
        "model",
        "instructions",
        "TFLM",
        "ratio",
        "workspace",
        "TFLM",
        "flash",
        "TFLM",
    )
    return table(head, 1, cells)


def memory(models: Path) -> str:
    """Return the memory table; the modes with row input need images or features."""
    cells: list[tuple[str | int, ...]] = []
    for name in MODELS:
        path, streams = str(models / f"{name}.tflite"), name in BY_ROWS
        modes = ["balanced", "ram", *(["ram+rows"] if streams else [])]
        found = rows(path, "--modes", ",".join(modes))
        pairs = [(row["workspace_bytes"], row["instructions"]) for row in found]
        arena = found[0]["rival"]["workspace_bytes"]
        missing = [] if streams else ["–", "–"]
        figures = [figure for pair in pairs for figure in pair]
        cells.append((f"`{name}`", arena, *figures, *missing))
    head = (
        "model",
        "TFLM",
        "balanced",
        "instr.",
        "`ram`",
        "instr.",
        "`ram`, by rows",
        "instr.",
    )
    return table(head, 1, cells)


def on_other_boards(models: Path) -> str:
    cores: dict[str, str] = {}
    for board in known_boards():
        length = re.search(r"VLEN \d+", board["description"])
        core = board["core"]
        cores[board["name"]] = f"{core}, {length[0]}" if length else core
    cells: list[tuple[str | int, ...]] = [
        (
            row["board"],
            cores[row["board"]],
            row["instructions"],
            row["workspace_bytes"],
            row["model_flash_bytes"],
        )
        for row in rows(str(models / f"{OTHERS}.tflite"), "--boards", ",".join(BOARDS))
    ]
    return table(("board", "core", "instructions", "workspace", "flash"), 2, cells)


def known_boards() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = json.loads(firmwright("boards", "--json"))[
        "boards"
    ]
    return found


def boards() -> str:
    return "\n".join(
        f"- `{board['name']}`: {board['description']}" for board in known_boards()
    )


def replaced(text: str, marker: str, block: str) -> str:
    """Replace the block after `marker` in `text`."""
    start = f"<!-- {marker} -->\n"
    before, found, after = text.partition(start)
    if not found:
        raise SystemExit(f"the page has no marker {marker}")
    end = "\n```\n" if after.startswith("```") else "\n\n"
    ending = after.find(end)  # a table may also end with the page
    rest = "\n" if ending < 0 else after[ending + len(end.rstrip("\n")) :]
    return f"{before}{start}{block}{rest}"


FIGURE = re.compile(r"<!-- figure: (.*?): (\S+) -->(.*?)<!-- end -->", re.DOTALL)


def with_figures(text: str, models: Path) -> str:
    """Fill in the figures of a page; names of model files are those in `models`."""

    def figure(match: re.Match[str]) -> str:
        words = [
            str(models / w) if w.endswith(".tflite") else w for w in match[1].split()
        ]
        value = json.loads(firmwright(*words, "--json"))
        for key in match[2].split("."):
            value = value[key]
        return match[0].replace(f"-->{match[3]}<!--", f"-->{value:,}<!--")

    return FIGURE.sub(figure, text)


def main() -> None:
    """Update the pages."""
    models = Path(sys.argv[1]).resolve()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = with_figures(before, models)
        if after != before:
            page.write_text(after, encoding="utf-8")
    blocks: Mapping[tuple[str, str], Callable[[], str]] = {
        ("README.md", "figures: mps2-an386"): lambda: beside_the_rival(models),
        ("README.md", "figures: milliseconds"): lambda: milliseconds(models),
        ("docs/start.md", "session: demo"): lambda: session("./fw demo", "demo"),
        ("docs/fit.md", "session: fit"): fit_session,
        ("docs/smaller-faster.md", "figures: memory"): lambda: memory(models),
        ("docs/boards.md", f"figures: {OTHERS}"): lambda: on_other_boards(models),
        ("docs/boards.md", "list: boards"): boards,
    }
    for page, marker in blocks:  # before the first command: all together take minutes
        replaced((ROOT / page).read_text(encoding="utf-8"), marker, "")
    for (page, marker), block in blocks.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(replaced(text, marker, block()), encoding="utf-8")


if __name__ == "__main__":
    main()
