"""Options from `firmwright.toml` in the current folder or above it.

Keys at the top are options of all verbs that have them, those in a table [VERB] of one
verb; `model` is MODEL. The command line takes precedence. Paths are relative to the
file's folder. Options that run code or write elsewhere require that the user trusts the
file.
"""

import argparse
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.extensions import extensions
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import Json, JsonObject, as_object
from firmwright.base.suggestions import suggest_name
from firmwright.base.trust import trusts_path, untrusted_error
from firmwright.base.value_kinds import shortened
from firmwright.cli.verb import CliParser

PROJECT_FILE = "firmwright.toml"
_PATHS = (
    "CSV",
    "DIR",
    "FILE",
    "FILE.pem",
    "FILE.py",
    "FLOAT_MODEL",
    "FOLDER",
    "HTML",
    "JSON",
    "LOG",
    "NPZ",
    "OLD",
    "OUT",
    "PATH",
)
"""The placeholders of values that are paths."""
_CODE_KEYS = (
    "address",
    "custom-op",
    "flash-command",
    "main",
    "other-version",
    "pass",
    "scheduler",
)
"""Those of the core; extensions name theirs."""
_GENERATOR = ".py:"
"""A part of the value of --data that names a Python function."""
_OUTPUT_KEYS = (
    "dump-dir",
    "evidence",
    "node-data",
    "out",
    "output",
    "partition-log",
    "save-partition",
    "trace",
    "write",
)
_COMMAND_LINE_KEYS = frozenset({"debug", "help", "json", "trust"})
"""Options that determine how a command line and its errors are reported, and trust."""
_OTHER_KEYS = (
    "give it on the command line; keys are the other long options of the verbs."
)
_HINTS = {
    **dict.fromkeys(("debug", "help", "json"), _OTHER_KEYS),
    "trust": "give it on the command line, since a folder must not trust itself.",
    "output": "put it into the table of a verb, such as [compile].",
}


def code_keys() -> frozenset[str]:
    """Return the options that name programs, code for programs, or their arguments."""
    names = set(_CODE_KEYS)
    for extension in extensions():
        names.update(extension.code_options)
    return frozenset(names)


def find_project_file(folder: Path) -> Path | None:
    """Return the nearest file; above `folder`, files of other users do not count."""
    users = (os.getuid(), folder.stat().st_uid)
    for parent in (folder, *folder.parents):
        file = parent / PROJECT_FILE
        if file.is_file() and file.stat().st_uid in users:
            return file
    return None


def parse_with_project(
    file: Path, words: Sequence[str], parser: CliParser
) -> tuple[argparse.Namespace, list[str]]:
    """Parse a command line with the file's options for its verb; return the keys used.

    Their names in the namespace are in `from_project`. Raise UsageError for wrong keys
    and values.
    """
    verb, *own_words = words
    table = _read(file)
    _check_tables(file, table, parser.verbs)
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    values = {**shared, **as_object(table.get(verb, {}))}
    arguments = _arguments(parser.verbs[verb])
    typed_options = {word.partition("=")[0] for word in own_words}
    applied: list[str] = []
    more: list[str] = []
    for key, value in values.items():
        action = arguments.get(key)
        if action and typed_options.isdisjoint(action.option_strings):
            applied.append(key)
            more += _words(file, key, value, action)
    destinations = frozenset(arguments[key].dest for key in applied)
    parser.verbs[verb].set_defaults(from_project=destinations)
    try:
        args = parser.parse_args([verb, *more, *own_words])
    except UsageError as error:
        if any(error.what.startswith(f"argument --{key}") for key in applied):
            error.where = str(file)
        raise
    _check_trust(file, values, applied)
    if "model" in applied and (chosen := getattr(args, arguments["model"].dest)):
        paths = [chosen] if isinstance(chosen, str) else chosen
        if all(Path(path).is_dir() for path in paths):
            return args, []  # a project, whose options are fixed
        if chosen != arguments["model"].default:
            applied.remove("model")
    return args, applied


def _check_trust(file: Path, values: JsonObject, applied: Collection[str]) -> None:
    """Raise UsageError if a file that is not trusted runs code or writes elsewhere."""
    for key in applied:
        value = values[key]
        for item in value if isinstance(value, list) else [value]:
            problem = _trust_problem(file, key, str(item))
            if problem and not trusts_path(file):
                raise untrusted_error(f"{key} = {value!r} {problem}.", file)


def _trust_problem(file: Path, key: str, value: str) -> str:
    """Return what requires trust in the option, or ""."""
    if key in code_keys() or (key == "data" and _GENERATOR in value):
        return "runs code or programs"
    if key == "port" and "://" in value:
        return "connects to other places than a serial port"
    if key in _OUTPUT_KEYS:
        folder = file.parent.resolve()
        path = (folder / value).resolve()
        if not path.is_relative_to(folder):
            return "writes outside of the project's folder"
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            return "writes to a hidden file or folder"
    return ""


def _read(file: Path) -> JsonObject:
    try:
        return tomllib.loads(read_input_text(file))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = f"the file cannot be read: {error}."
        raise UsageError(what, where=str(file)) from error


def _arguments(parser: CliParser) -> dict[str, argparse.Action]:
    """Return options by their long names, and MODEL."""
    actions: dict[str, argparse.Action] = {}
    for action in parser._actions:
        for option in action.option_strings:
            if option.startswith("--"):
                actions[option.removeprefix("--")] = action
        if action.metavar == "MODEL":
            actions["model"] = action
    return actions


def _check_tables(
    file: Path, table: JsonObject, verbs: Mapping[str, CliParser]
) -> None:
    names: dict[str, set[str]] = {}
    for name, parser in verbs.items():
        names[name] = _arguments(parser).keys() - _COMMAND_LINE_KEYS
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    shared = frozenset[str]().union(*names.values()) - {"output"}
    _check_names(str(file), "a shared option", table.keys() - tables, shared)
    _check_names(str(file), "a verb", tables, verbs)
    for name, values in tables.items():
        _check_names(f"{file}: [{name}]", f"an option of {name}", values, names[name])


def _check_names(
    where: str, kind: str, names: Iterable[str], known: Collection[str]
) -> None:
    for name in sorted(set(names) - set(known)):
        hint = _HINTS.get(name) or f"{suggest_name(name, known)}."
        raise UsageError(f"{name!r} is not {kind}.", where=where, hint=hint)


def _words(file: Path, key: str, value: Json, action: argparse.Action) -> list[str]:
    """Return an option's words; none for MODEL, which gets the value as a default."""
    where = f"{file}: {key}"
    if action.nargs == 0:
        if not isinstance(value, bool):
            what = f"the option is true or false, not {value!r}."
            raise UsageError(what, where=where)
        return [f"--{key}"] * value
    items = value if isinstance(value, list) else [value]
    values = [_word(item, where) for item in items]
    if key == "model" or action.metavar in _PATHS:
        for index, path in enumerate(values):
            if path:
                values[index] = os.path.relpath(file.parent / path)
    if key == "model":
        several = action.nargs is not None
        if not values or not all(value.strip() for value in values):
            raise UsageError("the value is empty.", where=where)
        action.nargs, action.required = ("*" if several else "?"), False
        action.default = values if several else values[0]
        return []
    if len(values) != 1 and not isinstance(action.default, list):
        raise UsageError("the option takes one value.", where=where)
    return [f"--{key}={value}" for value in values]


def _word(value: Json, where: str) -> str:
    """Return the word of a string or number; raise UsageError for other values."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        what = f"the option takes a string or number, not {shortened(value)}."
        raise UsageError(what, where=where)
    return str(value)
