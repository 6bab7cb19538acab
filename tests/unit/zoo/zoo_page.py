"""The page docs/zoo.md, written from the catalog of public models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from firmwright.boards import Board, load_board
from firmwright.zoo.catalog import ZooModel
from firmwright.zoo.needs import run_time_of

_TIMED = {
    "nucleo-l4r5zi": "Cortex-M4 at 120 MHz (`nucleo-l4r5zi`)",
    "rpi-pico": "Cortex-M0+ at 125 MHz (`rpi-pico`)",
    "mps3-an547": "Cortex-M55 at 32 MHz (`mps3-an547`)",
}
_MAIN = "nucleo-l4r5zi"
_SMALL = "microbit"
_PAGE = """\
# Public models

> **Status.** Generated from the catalog in `toolchain/firmwright/zoo`; a test keeps this page up to date, and another
> predicts rows anew. Every listed model computes what its reference runtime does: integers bit for bit, floats within the
> stated tolerance. RAM, flash and time are predicted as by [`fit`](fit.md); times are modeled, not measured.

{summary} Firmwright contains none of these files: each name leads to the place where its author publishes the model, under the author's
license. `firmwright zoo` answers the same questions offline:

```sh
firmwright zoo --board rpi-pico --task 'wake word'    # models that fit your board
firmwright zoo --board stm32g474re --ram 16384 --flash 65536
firmwright zoo mlperf-tiny-kws-int8                   # one model: every board, address, commands
firmwright zoo --find .                               # the models that are in this folder, by their SHA-256
```

`--board` takes [any board or chip](boards.md): its figures are those of a board whose core has the same instructions, and its
own memory decides what fits. With the file, `firmwright fit FILE --board B` predicts the figures of exactly that board, `firmwright verify
FILE` compares all values, and `firmwright compile FILE --board B -o DIR` writes the C. A model in a C file
(`.cc`, `.h`) needs no conversion: give the C file.

## How to read the tables

RAM (the workspace, without stack) and flash (code and constants) are bytes on a Cortex-M4; other cores differ by little, and
`firmwright zoo NAME` has them all. Milliseconds are {times}. The last column is whether
the model fits a BBC micro:bit (Cortex-M0, 16 KB of RAM, 256 KB of flash).

{tables}
## Your own list

`firmwright census DIR --fit B,...` makes such a list from a folder of your own models, on your own boards. The catalog is made by
`python benchmarks/zoo.py DIR...`, from the folders that have the files, in a checkout. To add a public model, add its hash, name, task and
address to `toolchain/firmwright/zoo/sources.csv`, and run this script.
"""


def render_zoo_page(models: Sequence[ZooModel]) -> str:
    tasks = sorted({model.source.task for model in models}, key=_task_order)
    tables: list[str] = []
    for task in tasks:
        chosen = [model for model in models if model.source.task == task]
        tables.append(_table(task, chosen))
    exact = sum(model.facts.is_exact for model in models)
    repositories = {model.source.repository for model in models}
    summary = (
        f"{len(models)} models that are published in {len(repositories)} repositories, "
        f"{exact} of them with integer outputs."
    )
    names = list(_TIMED.values())
    times = f"those of a {', a '.join(names[:-1])} and a {names[-1]}"
    return _PAGE.format(summary=summary, times=times, tables="\n".join(tables))


def _task_order(task: str) -> tuple[bool, str]:
    """Order by name, with the tests of single operators last."""
    return task == "operator test", task


def _table(task: str, models: Sequence[ZooModel]) -> str:
    lines = [
        f"## {task.capitalize()}",
        "",
        "| model | input | RAM | flash | M4 ms | M0+ ms | M55 ms | micro:bit |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for model in models:
        lines.append(_row(model))
    return "\n".join([*lines, ""])


def _row(model: ZooModel) -> str:
    source, facts = model.source, model.facts
    inputs = facts.inputs.split("; ")
    more = f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""
    figures = model.figures[_MAIN]
    cells = [
        f"[{source.name}]({source.address})",
        inputs[0] + more,
        _number(figures.workspace_bytes),
        _number(figures.flash_bytes),
    ]
    for name in _TIMED:
        own = model.figures[name]
        time = run_time_of(own, _board(name)) if own.fits else None
        cells.append(time.milliseconds if time else "–")
    small = model.figures[_SMALL]
    cells.append("yes" if small.fits else "no")
    return f"| {' | '.join(cells)} |"


@cache
def _board(name: str) -> Board:
    return load_board(name)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
