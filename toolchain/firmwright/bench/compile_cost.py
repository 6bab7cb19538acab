"""CPU time and memory of compilations, each in a new process."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from firmwright.base.errors import DoesNotFitError, UnsupportedError, UsageError
from firmwright.base.process_pool import open_process_pool
from firmwright.flows.executors import ProcessExecutor, run_calls
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model


@dataclass(frozen=True, slots=True)
class CompileCost:
    """The cost of loading and compiling a model, or the `problem` that prevented it.

    `model_bytes` is the size of the file, or of the constants if these are larger.
    `peak_bytes` excludes the memory of the program itself.
    """

    model: str
    board: str
    operators: int = 0
    model_bytes: int = 0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    problem: str = ""

    @property
    def seconds_per_operator(self) -> float:
        return self.cpu_seconds / max(self.operators, 1)

    @property
    def memory_ratio(self) -> float:
        return self.peak_bytes / max(self.model_bytes, 1)


def measure_compile_costs(
    models: Sequence[Path], boards: Sequence[str]
) -> list[CompileCost]:
    """Compile each model for each board; raise UsageError on Windows."""
    if sys.platform == "win32":
        raise UsageError("Windows does not report the peak memory of a process.")
    calls = [partial(_measure, path, board) for path, board in product(models, boards)]
    # A process that this one spawned would begin with its peak.
    with open_process_pool(1, "forkserver", tasks_per_child=1) as pool:
        return run_calls(ProcessExecutor(pool), calls)


def _measure(path: Path, board: str) -> CompileCost:
    before, start = _peak_bytes(), time.process_time()
    try:
        compiled = compile_for(load_model(path), board)
    except (DoesNotFitError, UnsupportedError) as error:
        return CompileCost(path.name, board, problem=str(error))
    seconds = time.process_time() - start
    peak_bytes = _peak_bytes() - before
    constants = sum(item.size_bytes for item in compiled.imported.constants.values())
    model_bytes = max(path.stat().st_size, constants)
    operators = len(compiled.summary.operators)
    return CompileCost(
        path.name, board, operators, model_bytes, round(seconds, 2), peak_bytes
    )


def _peak_bytes() -> int:
    import resource  # missing on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
