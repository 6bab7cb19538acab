"""The front door: finds the verb, runs it, says what came out, and sets the exit code.

Exit codes: 0 ok; 1 the work failed; 2 bad usage or bad input; 70 a bug of ours; 130 interrupted.
With `--json` stdout is exactly one object in every case. Progress goes to stderr, on a terminal
only; `--verbose` writes it as lines.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, cast

from firmwright import cli
from firmwright.base.errors import (
    EXIT_FAILED,
    EXIT_OK,
    DoesNotFitError,
    FirmwrightError,
    InternalError,
    UnsupportedError,
)
from firmwright.base.version import JSON_VERSION, VERSION
from firmwright.cli.progress import show_progress
from firmwright.cli.verb import CliParser, Outcome, Verb

SCHEMA = JSON_VERSION
OUTPUT_FLAGS = ("--json", "--verbose", "-v", "--debug")
EXIT_INTERRUPTED = 130


def verbs(words: Sequence[str] = ()) -> dict[str, Verb]:
    """Every module of this package that is a verb, by name; where `words` name one, that alone.

    A verb's module is called as the verb is. Others take a while to import.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(cli.__path__))
    asked = next((word for word in words if not word.startswith("-")), "")
    for wanted in ([asked] if asked in names else [], names):
        modules = [importlib.import_module(f"{cli.__name__}.{name}") for name in wanted]
        found = [cast(Verb, module) for module in modules if hasattr(module, "NAME")]
        if found:
            break
    return {verb.NAME: verb for verb in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    while words and words[0] in OUTPUT_FLAGS:  # they belong to verbs, but many write them first
        words.append(words.pop(0))
        if all(word in OUTPUT_FLAGS for word in words):
            break
    known = {} if words[:1] == ["--version"] else verbs(words)
    name = next((word for word in words if word in known), "")
    # Before the words are parsed: their errors too must be an object where one is asked for.
    as_json, debug = "--json" in words, "--debug" in words
    try:
        return _run(known, words, as_json=as_json)
    except FirmwrightError as error:
        _show_traceback(debug or isinstance(error, InternalError))
        return _print_outcome(Outcome(error=error), name, as_json=as_json)
    except KeyboardInterrupt:
        _show_traceback(debug)
        return _interrupted(name, as_json=as_json)
    except BrokenPipeError:
        # Who read our output has seen enough; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - the last stop: whatever arrives here is our bug
        _show_traceback(True)
        what = f"{type(error).__name__}: {error}."
        hint = "report it with the traceback above and the model, if you may share it."
        return _print_outcome(Outcome(error=InternalError(what, hint=hint)), name, as_json=as_json)


def _run(known: Mapping[str, Verb], words: Sequence[str], *, as_json: bool) -> int:
    parser = _parser(known)
    spoken = io.StringIO()
    try:
        with contextlib.redirect_stdout(spoken):
            args = parser.parse_args(words)
    except SystemExit:
        # --help and --version print and leave.
        return _print_outcome(
            Outcome({"text": spoken.getvalue()}, spoken.getvalue().rstrip()), "", as_json=as_json
        )
    with show_progress(quiet=as_json, verbose=args.verbose):
        outcome = known[args.verb].run(args)
    return _print_outcome(outcome, args.verb, as_json=as_json)


def _parser(known: Mapping[str, Verb]) -> argparse.ArgumentParser:
    common = CliParser(add_help=False)
    group = common.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout")
    group.add_argument("--verbose", "-v", action="store_true", help="say what is being done")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = CliParser(
        prog="firmwright",
        description="Turns a trained network into bit-exact, heap-free C firmware.",
        epilog="firmwright VERB --help explains a verb.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"firmwright {VERSION}")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in known.items():
        sub = commands.add_parser(
            name, help=verb.HELP, description=f"{verb.HELP}.", parents=[common], allow_abbrev=False
        )
        verb.add_arguments(sub)
    return parser


# ---- saying it ---------------------------------------------------------------------------------


def _print_outcome(outcome: Outcome, verb: str, *, as_json: bool) -> int:
    error = outcome.error
    if as_json:
        head = {"schema": SCHEMA, "verb": verb, "ok": error is None}
        failure = {} if error is None else {"error": error_object(error)}
        print(json.dumps(to_json_value({**head, **failure, **outcome.data}), indent=2), flush=True)
    else:
        if outcome.text:
            print(outcome.text, flush=True)
        if error is not None:
            print(f"firmwright: {error}", file=sys.stderr)
    return EXIT_OK if error is None else error.exit_code


def error_object(error: FirmwrightError) -> dict[str, Any]:
    """The `error` of the JSON contract."""
    found: dict[str, Any] = {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
    }
    match error:
        case DoesNotFitError():
            found["regions"] = [
                {"name": r.name, "need_bytes": r.need_bytes, "have_bytes": r.have_bytes}
                for r in error.regions
            ]
            found["lowest_bytes"] = error.lowest_bytes
            found["peak"] = [{"buffer": name, "bytes": size} for name, size in error.peak]
        case UnsupportedError():
            found["items"] = [{"op": i.op, "where": i.where, "why": i.why} for i in error.items]
        case _:
            pass
    return found


def to_json_value(value: Any) -> Any:
    """`value` as JSON can say it: a number that is not finite becomes null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
        case _:
            return value


def _interrupted(verb: str, *, as_json: bool) -> int:
    if as_json:
        error = {"code": "interrupted", "what": "interrupted.", "where": "", "hint": ""}
        print(json.dumps({"schema": SCHEMA, "verb": verb, "ok": False, "error": error}, indent=2))
    else:
        print("firmwright: interrupted.", file=sys.stderr)
    return EXIT_INTERRUPTED


def _show_traceback(wanted: bool) -> None:
    if wanted:
        traceback.print_exc()
