"""Values that are computed in the memory of the state that they update."""

from __future__ import annotations

from firmwright.choose.aliases import find_state_aliases
from firmwright.ir.graph.nodes import Function, State
from firmwright.ir.printer import parse_module


def graph(body: str, state: str = "%kept: i8[4] = @zeros -> %next") -> Function:
    result = parse_module(
        f"""firmwright ir 2
        module @m
        attrs {{entry="main"}}
        const @zeros = i8[4] [0, 0, 0, 0]
        graph @main(%x: i8[4]) -> (%y) state({state}) {{ {body} }}"""
    ).entry
    assert isinstance(result, Function)
    return result


READ_FIRST = "%y: i8[4] = neg(%kept) %next: i8[4] = neg(%x)"


def test_value_aliases_the_state_after_its_last_read() -> None:
    assert find_state_aliases(graph(READ_FIRST), (), ()) == {"next": "kept"}


def test_state_that_is_read_later_is_not_aliased() -> None:
    assert not find_state_aliases(
        graph("%next: i8[4] = neg(%x) %y: i8[4] = neg(%kept)"), (), ()
    )
    assert not find_state_aliases(
        graph("%next: i8[4] = neg(%kept) %y: i8[4] = neg(%x)"), (), ()
    )


def test_a_view_of_the_state_counts_as_the_state() -> None:
    late = graph(
        "%v: i8[4] = reshape(%kept) %next: i8[4] = neg(%x) %y: i8[4] = neg(%v)"
    )
    assert not find_state_aliases(late, {"v"}, ())
    assert find_state_aliases(late, (), ()) == {"next": "kept"}


def test_reads_of_a_segment_end_with_its_last_call() -> None:
    assert not find_state_aliases(graph(READ_FIRST), (), [(0, 2)])


def test_a_result_of_the_model_is_copied_to_the_state() -> None:
    assert not find_state_aliases(
        graph("%y: i8[4] = neg(%x)", "%kept: i8[4] = @zeros -> %y"), (), ()
    )


def test_value_of_two_states_aliases_one_of_them() -> None:
    two = "%kept: i8[4] = @zeros -> %next, %other: i8[4] = @zeros -> %next"
    assert find_state_aliases(graph(READ_FIRST, two), (), ()) == {"next": "kept"}


def test_a_call_that_reads_and_writes_a_state_may_update_it_in_place() -> None:
    update = graph("%next: i8[4] = neg(%kept) %y: i8[4] = neg(%x)")
    asked: list[tuple[int, str]] = []

    def updates(index: int, state: State) -> bool:
        asked.append((index, state.value.name))
        return True

    assert find_state_aliases(update, (), (), updates) == {"next": "kept"}
    assert asked == [(0, "kept")]
