"""The only door to other processes: it determines program, folder, environment and end.

A program is sought in the absolute folders of PATH, never in the current folder. It
runs in the folder that the caller names, or in an empty one, so no configuration file
that happens to be near a model is read. Paths in a command are therefore `Path`s, which
become absolute. The environment is explicit: the variables in child_environment.txt and
those that extensions name. Python runs isolated, with the import path of this process.

On POSIX, a child leads its own process group, which is killed with it, unless it has
the terminal. On Linux, the kernel also kills the child when this process dies. Output
is kept up to a limit.
"""

import atexit
import contextlib
import ctypes
import fnmatch
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TypeAlias, TypedDict

from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.extensions import extensions
from firmwright.base.import_path import python_path, trusted_import_path
from firmwright.base.resource_limits import RAISED_BY, scaled_limit

Word: TypeAlias = str | Path
Pipe: TypeAlias = int | IO[str] | IO[bytes] | None
"""A pipe or file of a child, as Popen takes it."""
PASSED_VARIABLES: Final = "FIRMWRIGHT_PASS_ENV"
"""The variable that names more variables for child processes, separated as in PATH."""
IMPORT_PATH_VARIABLE: Final = "FIRMWRIGHT_IMPORT_PATH"
_PATHS: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OPENOCD_SCRIPTS")
"""Lists of folders; an empty or relative element would mean the current folder."""
_START_FILE: Final = Path(__file__).with_name("python_start.py")
_PR_SET_PDEATHSIG: Final = 1
OUTPUT_BYTES_MAX: Final = 1 << 27
"""The output of a program; that of a disassembler is some MB."""
_PIECE_BYTES: Final = 1 << 16


def run_program(
    command: Sequence[Word],
    title: str,
    *,
    timeout_s: float,
    where: str = "",
    hint: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    failure: str = "",
    stdin: str = "",
    has_terminal: bool = False,
) -> tuple[int, str]:
    """Return exit status and output; `environment` is added to `child_environment`.

    The program and all that it starts end with an error; a program that `has_terminal`
    alone.

    Raises:
        ToolMissingError: the program cannot be started.
        ToolFailedError: the program, which messages name by `title`, exceeds
            `timeout_s` or prints too much; or, if `failure` describes that, ends with a
            status other than 0.
    """
    words = command_words(command, where=where, hint=hint)
    failed = functools.partial(ToolFailedError, command=words, where=where, hint=hint)
    options: _PopenOptions = {} if has_terminal else popen_options()
    try:
        process = subprocess.Popen(
            words,
            cwd=folder or empty_folder(),
            env=child_environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        )
    except OSError as error:
        raise _cannot_start(command, error, where, hint) from error
    limit = scaled_limit(OUTPUT_BYTES_MAX)
    try:
        printed = _communicate(process, stdin.encode(), limit, timeout_s)
        if len(printed) > limit:
            _end(process, is_group=not has_terminal)
        status = process.wait(timeout_s)
    except BaseException as error:
        _end(process, is_group=not has_terminal)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        what = f"{title} did not finish within {timeout_s:g} s."
        raise failed(what) from error
    output = printed.decode("utf-8", "replace")
    if len(printed) > limit:
        what = f"{title} printed more than {limit:,} bytes ({RAISED_BY})."
        raise failed(what, output=output)
    if failure and status:
        raise failed(failure, exit_status=status, output=output)
    return status, output


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes, limit: int, timeout_s: float
) -> bytes:
    """Return all that a process prints, or a little more than `limit` bytes of it.

    Raise TimeoutExpired if the process, or one that shares its output, does not end in
    time.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    printed = bytearray()

    def read(pipe: IO[bytes]) -> None:
        with pipe:
            while len(printed) <= limit:
                piece = os.read(pipe.fileno(), _PIECE_BYTES)
                if not piece:
                    return
                printed.extend(piece)

    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(stdin)
    reader.join(timeout_s)
    if reader.is_alive():
        raise subprocess.TimeoutExpired(process.args, timeout_s)
    return bytes(printed)


class _PopenOptions(TypedDict, total=False):
    """The arguments of Popen that depend on the platform."""

    creationflags: int
    start_new_session: bool
    preexec_fn: Callable[[], None] | None


def start_process(
    command: Sequence[Word],
    hint: str,
    where: str = "",
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: Pipe = None,
    stdout: Pipe = None,
    stderr: Pipe = None,
    bufsize: int = -1,
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in `folder` or an empty one; the rest are arguments of Popen.

    Raise ToolMissingError if that is impossible.
    """
    words = command_words(command, where=where, hint=hint)
    try:
        return subprocess.Popen(
            words,
            cwd=folder or empty_folder(),
            env=child_environment(environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=bufsize,
            pass_fds=pass_fds,
            **popen_options(),
        )
    except OSError as error:
        raise _cannot_start(command, error, where, hint) from error


def run_in_terminal(
    command: Sequence[Word],
    folder: Path,
    *,
    passes_everything: bool = False,
    stdout: Pipe = None,
) -> int:
    """Run a program with this terminal.

    With `passes_everything` it receives the user's whole environment.

    Return its exit status.
    """
    environment = {**os.environ, **child_environment()} if passes_everything else None
    return subprocess.call(
        command_words(command),
        cwd=folder,
        env=environment or child_environment(),
        stdout=stdout,
    )


# ---- program -------------------------------------------------------------------------


def find_program(name: str) -> str | None:
    """Return the absolute path of a program, or None.

    A relative path is the caller's own, and is not sought in PATH.
    """
    if os.path.dirname(name):
        return os.path.abspath(name) if _is_program(name) else None
    suffixes = [""]
    if sys.platform == "win32":
        suffixes += os.environ.get("PATHEXT", ".EXE").split(os.pathsep)
    for folder in _absolute_elements(os.environ.get("PATH", os.defpath)):
        for suffix in suffixes:
            path = os.path.join(folder, name + suffix)
            if _is_program(path):
                return path
    return None


def python_command(module: str, *arguments: Word) -> tuple[Word, ...]:
    """Return the command of an isolated `python -m module`.

    It finds the modules that this process finds.
    """
    encoding = ("-X", "utf8") if sys.flags.utf8_mode else ()
    return (sys.executable, "-I", *encoding, _START_FILE, module, *arguments)


def command_words(
    command: Sequence[Word], *, where: str = "", hint: str = ""
) -> list[str]:
    """Return words with absolute paths; ToolMissingError for a missing program."""
    words: list[str] = []
    for word in command:
        words.append(str(word.absolute()) if isinstance(word, Path) else word)
    program = find_program(words[0])
    if program is None:
        what = f"{command[0]} is not installed, or is not an executable file."
        raise ToolMissingError(what, where=where, hint=hint)
    return [program, *words[1:]]


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _cannot_start(
    command: Sequence[Word], error: OSError, where: str, hint: str
) -> ToolMissingError:
    what = f"cannot start {command[0]}: {error.strerror}."
    return ToolMissingError(what, where=where, hint=hint)


# ---- folder and environment ----------------------------------------------------------


def private_folder(purpose: str) -> Path:
    """Return a new folder of this user that exists until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"firmwright-{purpose}-")).absolute()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.lru_cache(maxsize=1)
def empty_folder() -> Path:
    return private_folder("empty")


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a child receives: those of the list, and `more`."""
    named = os.environ.get(PASSED_VARIABLES, "").split(os.pathsep)
    passed: dict[str, str] = {}
    for name, value in os.environ.items():
        if name in named or _is_passed(name):
            passed[name] = value
    for name in passed.keys() & {*_PATHS}:
        passed[name] = os.pathsep.join(_absolute_elements(passed[name]))
    if folders := python_path():
        passed["PYTHONPATH"] = os.pathsep.join(folders)
    passed[IMPORT_PATH_VARIABLE] = os.pathsep.join(trusted_import_path())
    return passed | dict(more or {})


def _is_passed(variable: str) -> bool:
    return any(fnmatch.fnmatchcase(variable, pattern) for pattern in _passed())


@functools.lru_cache(maxsize=1)
def _passed() -> tuple[str, ...]:
    text = Path(__file__).with_name("child_environment.txt").read_text(encoding="utf-8")
    patterns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            patterns += line.split()
    for extension in extensions():
        patterns += extension.passed_variables
    return tuple(patterns)


def _absolute_elements(paths: str) -> list[str]:
    return [folder for folder in paths.split(os.pathsep) if os.path.isabs(folder)]


# ---- end -----------------------------------------------------------------------------


def popen_options(platform: str = sys.platform) -> _PopenOptions:
    """Return the arguments of Popen for this platform, except command and pipes."""
    if platform == "win32":
        # CREATE_NEW_PROCESS_GROUP keeps interrupts away from the child.
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}
    dies = _die_with_parent() if platform.startswith("linux") else None
    return {"start_new_session": True, "preexec_fn": dies}


def kill_process(process: subprocess.Popen[bytes], system: str = os.name) -> None:
    if process.poll() is not None:
        return
    if system == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def end_process(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """Terminate a process, which may end its own processes first, then kill it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    kill_process(process)


def _end(process: subprocess.Popen[bytes], *, is_group: bool) -> None:
    """End a process; with `is_group`, also all that it has started.

    Those are ended even if the process itself has ended.
    """
    if is_group and os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _die_with_parent() -> Callable[[], None]:
    """Return a `preexec_fn` that has the kernel kill the child with its parent."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the request took effect

    return before_exec
