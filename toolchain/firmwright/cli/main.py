"""The command line: run the verb, print the outcome, and return the exit code.

Exit codes: 0 success; 1 the work failed; 2 invalid usage or input; 70 internal error;
130 interrupted. With `--json`, stdout is exactly one object. Progress is written to
stderr on terminals only; `--verbose` writes it as lines.
"""

import argparse
import contextlib
import difflib
import errno
import importlib
import io
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path

from firmwright.base import errors
from firmwright.base.plugin_calls import plugin_call
from firmwright.base.version import JSON_VERSION, VERSION
from firmwright.cli.options import add_arguments, describe_verb
from firmwright.cli.printing import open_closed_streams, print_text, write_traceback
from firmwright.cli.progress import show_progress
from firmwright.cli.project_file import find_project_file, parse_with_project
from firmwright.cli.verb import CliParser, Outcome
from firmwright.cli.verb_texts import command_packages, format_examples, format_verbs

OUTPUT_FLAGS = ("--json", "--verbose", "-v", "--debug")
EXIT_INTERRUPTED = 130
WITHOUT_PROJECT = ("init",)
EXIT_TERMINATED = 143
_AGAIN_S = 0.1


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which ends a command like an interrupt and cleans up as well."""


class _InterruptionError(errors.FirmwrightError):
    """The result of a command that was interrupted."""

    code = "interrupted"


def verbs(words: Sequence[str] = ()) -> list[str]:
    """Return the names of the verbs, or only the one that `words` name."""
    names = sorted(command_packages())
    first = _first_verb(words)
    if not first or first in names:
        return [first] if first else names
    near = difflib.get_close_matches(first, names, n=1)
    hint = "firmwright --help, which lists the verbs."
    if near:
        hint = f"firmwright {near[0]}."
    raise errors.UsageError(f"there is no verb {first!r}.", hint=hint)


def _first_verb(words: Sequence[str]) -> str:
    for word in words:
        if not word.startswith("-"):
            return word
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    # Options of the verbs are also accepted first.
    while words and words[0] in OUTPUT_FLAGS:
        words.append(words.pop(0))
        if all(word in OUTPUT_FLAGS for word in words):
            break
    # Found before parsing, since usage errors are printed as JSON, too.
    as_json, debug, name = "--json" in words, "--debug" in words, ""
    try:
        if "_ARGCOMPLETE" in os.environ:  # called by the shell's completion
            import argcomplete

            typed = os.environ["COMP_LINE"].split()[1:]
            argcomplete.autocomplete(_parser(verbs(typed if len(typed) > 1 else ())))
        names = [] if words[:1] == ["--version"] else verbs(words)
        name = next((word for word in words if word in names), "")
        with _terminable(), _own_environment():
            return _run(names, words, as_json=as_json)
    except errors.FirmwrightError as error:
        if debug or isinstance(error, errors.InternalError):
            write_traceback()
        return _print_outcome(Outcome(error=error), name, as_json=as_json)
    except KeyboardInterrupt as stop:
        if debug:
            write_traceback()
        interruption = _InterruptionError("interrupted.")
        _print_outcome(Outcome(error=interruption), name, as_json=as_json)
        is_terminated = isinstance(stop, _TerminatedError)
        return EXIT_TERMINATED if is_terminated else EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe; keep the interpreter from flushing to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.EXIT_FAILED
    except MemoryError as error:
        if debug:
            write_traceback()
        what = f"the memory of this computer is not enough ({error})."
        failure = errors.FirmwrightError(what)
        return _print_outcome(Outcome(error=failure), name, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - any other exception is a bug
        if _is_about_a_path(error):
            what = f"a path cannot be used: {error}."
            usage = errors.UsageError(what, hint="another path.")
            return _print_outcome(Outcome(error=usage), name, as_json=as_json)
        write_traceback()
        what = f"{type(error).__name__}: {error}."
        hint = "report it with the traceback above and, if possible, the model."
        bug = errors.InternalError(what, hint=hint)
        return _print_outcome(Outcome(error=bug), name, as_json=as_json)


def _is_about_a_path(error: Exception) -> bool:
    """Return whether the system refuses a path, as too long or with a NUL character."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return isinstance(error, ValueError) and "embedded null" in str(error)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, hook = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Undo an option's changes to the environment, if the caller goes on."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeat an interrupt that came in a finalizer, where exceptions are ignored."""
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        is_termination = isinstance(ignored.exc_value, _TerminatedError)
        number = signal.SIGTERM if is_termination else signal.SIGINT
        # Later, as an exception in this hook would be ignored, too.
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number)).start()
    else:
        sys.__unraisablehook__(ignored)


def _run(names: Sequence[str], words: Sequence[str], *, as_json: bool) -> int:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            args = _parse(names, words)
            args.words = tuple(words)
    except SystemExit:
        # --help and --version print and exit.
        text = printed.getvalue()
        outcome = Outcome({"text": text}, text.rstrip())
        return _print_outcome(outcome, "", as_json=as_json)
    with show_progress(quiet=as_json, verbose=args.verbose):
        outcome = _run_verb(args)
    return _print_outcome(outcome, args.verb, as_json=as_json)


def _run_verb(args: argparse.Namespace) -> Outcome:
    """Run the verb's module; exceptions of another package are its errors."""
    package = command_packages()[args.verb].name
    context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if not package.startswith("firmwright."):
        context = plugin_call(f"the verb {args.verb} of {package}")
    with context:
        verb = importlib.import_module(f"{package}.{args.verb}")
        outcome: Outcome = verb.run(args)
    return outcome


def _parse(names: Sequence[str], words: Sequence[str]) -> argparse.Namespace:
    """Parse the words; options of the project file are added and named on stderr."""
    project = find_project_file(Path.cwd())
    is_help = words[0][:1] == "-" or not {"-h", "--help"}.isdisjoint(words)
    if project is None or is_help or words[0] in WITHOUT_PROJECT:
        return _parser(names).parse_args(words)
    args, applied = parse_with_project(project, words, _parser(verbs()))
    if applied and not args.json:
        source = os.path.relpath(project)
        text = f"firmwright: {', '.join(applied)} from {source}"
        print_text(text, sys.stderr, is_colored=True)
    return args


def _parser(names: Sequence[str]) -> CliParser:
    common = CliParser(add_help=False)
    group = common.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="print one JSON object to stdout"
    )
    group.add_argument(
        "--verbose", "-v", action="store_true", help="print progress messages"
    )
    group.add_argument(
        "--debug", action="store_true", help="print the traceback of an error"
    )
    add_arguments(common, "trust")
    parser = CliParser(
        prog="firmwright",
        usage="firmwright [options] VERB ...",
        description=(
            "Compile trained neural networks to bit-exact, heap-free C firmware."
        ),
        epilog="Run firmwright VERB --help for the options and examples of a verb.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"firmwright {VERSION}")
    commands = parser.add_subparsers(
        dest="verb",
        metavar="VERB",
        required=True,
        prog="firmwright",
        help=argparse.SUPPRESS,
    )
    descriptions = {name: describe_verb(name) for name in names}
    parser.description = f"{parser.description}\n\n{format_verbs(descriptions)}"
    for name, text in descriptions.items():
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[:1].upper()}{text[1:]}.",
            epilog=format_examples(name),
            parents=[common],
            allow_abbrev=False,
        )
        add_arguments(sub, name)
        parser.verbs[name] = sub
    return parser


# ---- output --------------------------------------------------------------------------


def _print_outcome(outcome: Outcome, verb: str, *, as_json: bool) -> int:
    error = outcome.error
    if as_json:
        head = {"schema": JSON_VERSION, "verb": verb, "ok": error is None}
        failure = {} if error is None else {"error": error_object(error)}
        found = {**head, **failure, "warnings": outcome.warnings, **outcome.data}
        print_text(json.dumps(to_json_value(found), indent=2), sys.stdout)
    else:
        if outcome.text:
            print_text(outcome.text, sys.stdout, is_colored=True)
        for warning in outcome.warnings:
            print_text(f"firmwright: warning: {warning}", sys.stderr, is_colored=True)
        if error is not None:
            print_text(f"firmwright: {error}", sys.stderr, is_colored=True)
    return errors.EXIT_OK if error is None else error.exit_code


def error_object(error: errors.FirmwrightError) -> dict[str, object]:
    data: dict[str, object] = {
        "code": error.code,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
    }
    match error:
        case errors.DoesNotFitError():
            data["regions"] = [asdict(region) for region in error.regions]
            data["lowest_bytes"] = error.lowest_bytes
            peak: list[dict[str, object]] = []
            for name, size in error.peak:
                peak.append({"buffer": name, "bytes": size})
            data["peak"] = peak
        case errors.UnsupportedError():
            data["items"] = [asdict(item) for item in error.items]
        case errors.BoardFileError():
            data["errors"] = [error_object(part) for part in error.errors]
    return data


def to_json_value(value: object) -> object:
    """Convert `value`, also of records, to JSON; infinity and NaN become null."""
    if is_dataclass(value) and not isinstance(value, type):
        record = {field.name: getattr(value, field.name) for field in fields(value)}
        return to_json_value(record)
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): to_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
        case _:
            return value
