"""`firmwright zoo`: list public models with their needs on a board, or show one."""

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.boards import Board, load_board
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.cli.verb_texts import WIDTH
from firmwright.cli.zoo_model import (
    describe_model,
    format_model,
    need_to_json,
    source_to_json,
)
from firmwright.zoo.catalog import ZooModel, read_catalog
from firmwright.zoo.needs import ModelNeed, needs_on, reference_board
from firmwright.zoo.recognition import find_models, model_digest

_HASH_LENGTH_MIN = 6


def run(args: argparse.Namespace) -> Outcome:
    models: Sequence[ZooModel] = read_catalog()
    board = load_board(args.board, args.board_dirs or ())
    if args.which:
        file = Path(args.which) if Path(args.which).is_file() else None
        model = find_model(models, args.which, file)
        if model is not None:
            data = describe_model(model, board.name, file)
            return Outcome(data, format_model(model, board.name, file))
        models = models_with(models, args.which)
    return _list(args, board, models)


def _list(
    args: argparse.Namespace, board: Board, models: Sequence[ZooModel]
) -> Outcome:
    _check_task(args.task, models)
    reference = reference_board(board, models)
    files: Mapping[str, Path] = {}
    if args.find:
        files = find_models(args.find, [model.source.sha256 for model in models])
    needs: list[ModelNeed] = []
    for need in needs_on(board, reference, models):
        if _is_chosen(need, args, files):
            needs.append(need)
    listed = [need for need in needs if need.fits or args.all]
    rows: list[dict[str, object]] = []
    for need in listed:
        file = files.get(need.model.source.sha256)
        own = {"file": str(file) if file else None}
        rows.append({**source_to_json(need.model), **need_to_json(need), **own})
    data = {"board": board.name, "figures_of": reference.name, "models": rows}
    parts = [_format_needs(listed, files), _format_count(needs, board.name, args.all)]
    if reference.name != board.name:
        parts.append(_format_reference(reference.name, board.name))
    return Outcome(data, "\n\n".join(filter(None, parts)))


def find_model(
    models: Sequence[ZooModel], which: str, file: Path | None
) -> ZooModel | None:
    """Return the model with this name, hash or file, or None.

    Raise UsageError for a file that is none of the models.
    """
    wanted = model_digest(file) if file else which.lower()
    is_hash = len(wanted) >= _HASH_LENGTH_MIN
    for model in models:
        source = model.source
        if source.name == wanted or (is_hash and source.sha256.startswith(wanted)):
            return model
    if file is None:
        return None
    what = "this file is none of the models of the catalog."
    hint = f"firmwright fit {file} --board B, which predicts what it needs."
    raise UsageError(what, where=which, hint=hint)


def models_with(models: Sequence[ZooModel], words: str) -> list[ZooModel]:
    """Return the models with `words` in their name or origin; UsageError if none."""
    found: list[ZooModel] = []
    for model in models:
        source = model.source
        texts = (source.name, source.task, source.repository, source.path)
        if any(words.lower() in text.lower() for text in texts):
            found.append(model)
    if not found:
        names = [model.source.name for model in models]
        what = f"the catalog has no model with {words!r} in its name or origin."
        raise UsageError(what, hint=f"{suggest_name(words.lower(), names)}.")
    return found


def _check_task(task: str, models: Sequence[ZooModel]) -> None:
    tasks = {model.source.task for model in models}
    if task and task not in tasks:
        what = f"no model has the task {task!r}."
        raise UsageError(what, where="--task", hint=f"{suggest_name(task, tasks)}.")


def _is_chosen(
    need: ModelNeed, args: argparse.Namespace, files: Mapping[str, Path]
) -> bool:
    source, figures = need.model.source, need.figures
    if (args.task and source.task != args.task) or (
        args.find and source.sha256 not in files
    ):
        return False
    limits = (
        (args.ram_bytes, figures.workspace_bytes),
        (args.flash_bytes, figures.flash_bytes),
    )
    for limit, size in limits:
        if limit is not None and (size is None or size > limit):
            return False
    return True


def _format_needs(needs: Sequence[ModelNeed], files: Mapping[str, Path]) -> str:
    """Format the list; without the time on this board, the instructions are last."""
    if not needs:
        return ""
    columns: dict[str, Callable[[ModelNeed], Cell]] = {
        "model": lambda need: need.model.source.name,
        "task": lambda need: need.model.source.task,
    }
    if not all(need.fits for need in needs):
        columns["fits"] = lambda need: _verdict(need.fits)
    columns["RAM"] = lambda need: need.figures.workspace_bytes
    columns["flash"] = lambda need: need.figures.flash_bytes
    if any(need.time for need in needs):
        columns["modeled ms"] = _milliseconds
    else:
        columns["instructions"] = lambda need: need.figures.instructions
    if files:
        columns["file"] = lambda need: str(files[need.model.source.sha256])
    rows: list[Sequence[Cell]] = []
    for need in needs:
        rows.append([cell_of(need) for cell_of in columns.values()])
    return format_table(list(columns), rows, drop=("task",))


def _milliseconds(need: ModelNeed) -> Cell:
    return need.time.milliseconds if need.time else None


def _verdict(fits: bool | None) -> str:
    return "see fit" if fits is None else "yes" if fits else "no"


def _format_reference(reference: str, board: str) -> str:
    text = (
        f"RAM, flash and instructions are those of {reference}, whose core has the "
        f"same instructions. firmwright fit FILE --board {board} predicts those of "
        "this board, and the time."
    )
    return textwrap.fill(text, WIDTH)


def _format_count(needs: Sequence[ModelNeed], board: str, is_all: bool) -> str:
    fitting = sum(need.fits is True for need in needs)
    open_count = sum(need.fits is None for need in needs)
    text = f"{fitting} of {len(needs)} models fit {board}."
    if open_count:
        text += (
            f" {open_count} more need a smaller program than that of the figures, "
            "which fit searches."
        )
    if fitting < len(needs) and not is_all:
        text += " --all lists the others, too."
    return textwrap.fill(text, WIDTH)
