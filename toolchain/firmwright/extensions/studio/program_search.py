"""The search for programs that no other beats, in a process of its own.

It takes a minute, so the page sees its progress, can end it, and goes on meanwhile.
"""

from dataclasses import dataclass
from functools import partial

from firmwright.base.errors import FirmwrightError, ToolFailedError
from firmwright.base.process_pool import ReportingProcess, Send
from firmwright.flows.model.compilation import compile_for, options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import load_model
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.flows.predict.program_front import find_program_front
from firmwright.report.pareto_front import ParetoProgram


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far a search is: `total` is 0 while the limits of RAM are searched.

    `programs` is None until it is done; `error` is why it has failed.
    """

    done: int = 0
    total: int = 0
    programs: tuple[ParetoProgram, ...] | None = None
    error: str = ""


class FrontSearch:
    """A search that runs until it is done, or `end` is called."""

    def __init__(self, file: str, options: OptionValues) -> None:
        work = partial(search_programs, file, options)
        self._process: ReportingProcess[SearchState] = ReportingProcess(work)
        self._state = SearchState()

    def state(self) -> SearchState:
        """Return the latest state; raise FirmwrightError if the search has failed."""
        is_running = self._process.is_running  # before its last messages are read
        for message in self._process.messages():
            self._state = message
        if self._state.error:
            raise ToolFailedError(self._state.error)
        if self._state.programs is None and not is_running:
            raise ToolFailedError("the process of the search has ended too early.")
        return self._state

    def end(self) -> None:
        self._process.end()


def search_programs(file: str, options: OptionValues, send: Send[SearchState]) -> None:
    """Send the states of a search for the programs of the model in `file`."""
    try:
        model = load_model(file)
        compiled = compile_for(model, **options)
        tradeoffs = pareto_rows(model.module, options_for(model.module, options))

        def watch(done: int, total: int) -> None:
            send(SearchState(done, total))

        programs = find_program_front(compiled, file, tradeoffs, watch)
    except FirmwrightError as error:
        send(SearchState(error=str(error)))
    else:
        send(SearchState(programs=programs))
