"""Programs that run to their end without input."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from firmwright.base.errors import ToolFailedError


def run_program(
    command: Sequence[str], title: str, *, timeout_s: float, where: str = "", hint: str = "",
    folder: Path | None = None, environment: Mapping[str, str] | None = None, failure: str = "",
) -> tuple[int, str]:  # fmt: skip
    """Return the exit status and the output; `environment` is added to the inherited one.

    Raises:
        ToolFailedError: the program, which messages name by `title`, exceeds `timeout_s`; or, if
            `failure` describes that, ends with a status other than 0.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        what = f"{title} did not finish within {timeout_s:g} s."
        raise ToolFailedError(what, command=command, where=where, hint=hint) from error
    status, output = done.returncode, done.stdout.decode("utf-8", "replace")
    if failure and status:
        raise ToolFailedError(
            failure, command=command, exit_status=status, output=output, where=where, hint=hint
        )
    return status, output
