"""Frames and calls as the disassembly shows them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from firmwright.artifacts import UnboundedReason
from firmwright.build.call_sites import read_functions
from firmwright.build.stack_analysis import CallGraph, KnownFunctions, read_frames

ARM = """
00000100 <main>:
 100:\tb570      \tpush\t{r4, r5, r6, lr}
 102:\tb082      \tsub\tsp, #8
 104:\tf000 f802 \tbl\t200 <leaf>
 108:\tf000 f802 \tbl\t300 <deep>
 10c:\tbd70      \tpop\t{r4, r5, r6, pc}

00000200 <leaf>:
 200:\te92d 4ff0 \tstmdb\tsp!, {r4, r5, r6, r7, r8, r9, sl, fp, lr}
 204:\te7fe      \tb.n\t200 <leaf>

00000300 <deep>:
 300:\ted2d 8b04 \tvpush\t{d8-d9}
 304:\tf5ad 7d80 \tsub.w\tsp, sp, #256\t@ 0x100
 308:\tf7ff bffe \tb.w\t400 <tail>

00000400 <tail>:
 400:\te96d 4502 \tstrd\tr4, r5, [sp, #-8]!
 404:\t4798      \tblx\tr3
"""

RISCV = """
80000000 <main>:
80000000:\t1101                \tadd\tsp,sp,-32
80000002:\t0100006f          \tj\t80000010 <next>

80000010 <next>:
80000010:\t7179                \taddi\tsp,sp,-48
80000012:\t9782                \tjalr\ta5
"""


def graph(
    text: str, frames: Mapping[str, int] | None = None, **known: object
) -> CallGraph:
    sets = {
        name: frozenset(items) for name, items in known.items() if name != "is_custom"
    }
    return CallGraph(
        text,
        KnownFunctions(frames or {}, **sets, is_custom=bool(known.get("is_custom"))),
    )


def causes(graph: CallGraph, root: str = "main") -> list[str]:
    return [str(cause) for cause in graph.worst(root).unbounded]


def test_the_deepest_path_counts_pushes_and_subtractions() -> None:
    use = graph(ARM).worst("main")
    assert use.path == ("main", "deep", "tail")
    assert use.size_bytes == (16 + 8) + (16 + 256) + 8


def test_the_deepest_of_several_callees_counts_in_any_order() -> None:
    for deep, flat in (("200", "300"), ("300", "200")):
        text = (
            f"00000100 <main>:\n 100:\tb570\tbl\t{deep} <deep>\n 104:\tb570\tbl\t{flat} <flat>\n\n"
            f"00000{deep} <deep>:\n {deep}:\tb082\tsub\tsp, #64\n\n"
            f"00000{flat} <flat>:\n {flat}:\tb082\tsub\tsp, #8\n"
        )
        use = graph(text).worst("main")
        assert (use.path, use.size_bytes) == (("main", "deep"), 64)


def test_a_veneer_of_the_linker_leads_to_its_function() -> None:
    text = ARM.replace("200 <leaf>", "500 <__leaf_veneer>", 1) + (
        "\n00000500 <__leaf_veneer>:\n 500:\tf85f f000 \tldr.w\tpc, [pc]\t@ 504\n"
        " 504:\t00000201 \t.word\t0x00000201\n"
    )
    calls = graph(text.replace("sub.w\tsp, sp, #256", "nop"))
    assert calls.worst("main").path == ("main", "__leaf_veneer", "leaf")


def test_an_indirect_call_of_a_library_function_has_unknown_targets() -> None:
    (cause,) = graph(ARM).worst("main").unbounded
    assert (cause.reason, cause.cycle) == (UnboundedReason.FUNCTION_POINTER, ("tail",))
    assert str(cause) == "tail calls through a pointer whose targets are unknown"
    assert not cause.is_definite


def test_an_indirect_call_of_the_runtime_reaches_the_glue() -> None:
    use = graph(ARM, {"tail": 8}, glue=["leaf"]).worst("main")
    assert use.path == ("main", "deep", "tail", "leaf")
    assert use.size_bytes == 24 + 272 + 8 + 36
    assert use.unbounded == ()


@pytest.mark.parametrize("known", [{"is_custom": True}, {"backend": ["tail"]}], ids=str)
def test_an_indirect_call_of_foreign_code_has_unknown_targets(
    known: dict[str, object],
) -> None:
    assert causes(graph(ARM, {"tail": 8}, glue=["leaf"], **known)) == [
        "tail calls through a pointer whose targets are unknown"
    ]


def test_an_indirect_call_of_the_model_reaches_only_constant_readers() -> None:
    text = ARM.replace("<leaf>", "<read_constants>").replace("<deep>", "<run>")
    frames = {"tail": 8, "main": 8}
    glue = ("read_constants", "run")
    use = graph(text, frames, glue=glue, model=["tail"]).worst("main")
    assert use.path == ("main", "run", "tail", "read_constants")
    assert causes(graph(text, frames, glue=glue)) == ["run calls tail calls run"]


def test_the_larger_of_compiler_and_instructions_is_the_frame() -> None:
    assert graph(ARM, {"leaf": 1000}).worst("leaf").size_bytes == 1000
    assert graph(ARM, {"leaf": 4}).worst("leaf").size_bytes == 36


def test_risc_v_frames_and_tail_calls_count() -> None:
    use = graph(RISCV).worst("main")
    assert (use.size_bytes, use.path) == (80, ("main", "next"))


def test_recursion_is_unbounded_with_its_cycle() -> None:
    text = ARM.replace("blx\tr3", "bl\t100 <main>")
    (cause,) = graph(text).worst("main").unbounded
    assert (cause.reason, cause.cycle) == (
        UnboundedReason.RECURSION,
        ("main", "deep", "tail", "main"),
    )
    assert str(cause) == "main calls deep calls tail calls main"


@pytest.mark.parametrize("start", ["main", "deep"])
def test_a_function_that_calls_itself_is_unbounded(start: str) -> None:
    text = ARM.replace("blx\tr3", "nop").replace("b.w\t400 <tail>", "bl\t300 <deep>")
    assert causes(graph(text), start) == ["deep calls itself"]
    assert graph(text).worst("main").size_bytes == 24 + 272


def test_recursion_of_the_project_is_definite_and_that_of_the_library_is_not() -> None:
    text = ARM.replace("blx\tr3", "nop").replace("b.w\t400 <tail>", "bl\t300 <deep>")
    for frames, is_definite in (({}, False), ({"deep": 272}, True)):
        (cause,) = graph(text, frames).worst("main").unbounded
        assert cause.is_definite is is_definite


def test_functions_that_only_jump_to_each_other_are_bounded() -> None:
    text = ARM.replace("blx\tr3", "b.w\t300 <deep>")
    assert causes(graph(text)) == []
    assert graph(text).worst("main").size_bytes == 24 + 272 + 8


def test_recursion_outside_of_the_reached_functions_is_no_concern() -> None:
    text = ARM.replace("blx\tr3", "nop") + (
        "\n00000600 <qsort>:\n 600:\tb570\tbl\t600 <qsort>\n 602:\t4798\tblx\tr3\n"
    )
    assert causes(graph(text)) == []
    assert len(causes(graph(text), "qsort")) == 2


def test_a_frame_of_variable_size_is_unbounded_where_it_is_reached() -> None:
    text = ARM.replace("blx\tr3", "nop")
    assert causes(graph(text, {"leaf": 8, "other": 8}, variable=["leaf", "other"])) == [
        "leaf has a frame of variable size (alloca, or a variable-length array)"
    ]
    lowered = text.replace("sub.w\tsp, sp, #256\t@ 0x100", "sub.w\tsp, sp, r3")
    assert len(causes(graph(lowered))) == 1
    assert causes(graph(lowered, {"deep": 300})) == []  # the compiler's value is known


JUMP_TABLE = """
80000000 <main>:
80000000:\t1101                \tadd\tsp,sp,-32
80000002:\t050a                \tsll\ta0,a0,0x2
80000004:\t953e                \tadd\ta0,a0,a5
80000006:\t4108                \tlw\ta0,0(a0)
80000008:\t8502                \tjr\ta0
"""


def test_a_last_call_through_a_pointer_is_told_from_a_jump_table_on_risc_v() -> None:
    assert causes(graph(JUMP_TABLE)) == []
    table_of_functions = graph(JUMP_TABLE, {"main": 32}, glue=["main"], is_custom=True)
    assert len(causes(table_of_functions)) == 1
    assert len(causes(graph(JUMP_TABLE.replace("sll\ta0,a0,0x2", "nop")))) == 1


def test_a_far_call_on_risc_v_is_direct() -> None:
    text = RISCV.replace("jalr\ta5", "jalr\t-16(ra) # 80000020 <far>") + (
        "\n80000020 <far>:\n80000020:\t1101\tadd\tsp,sp,-64\n80000022:\t8082\tret\n"
    )
    assert graph(text).worst("main").path == ("main", "next", "far")
    assert causes(graph(text)) == []


def test_registers_saved_by_the_library_count_for_the_caller() -> None:
    text = (
        "80000000 <main>:\n80000000:\t1101\tjal\tt0,80000010 <__riscv_save_4>\n"
        "80000004:\t1101\tadd\tsp,sp,-48\n80000006:\ta019\tj\t80000020 <__riscv_restore_4>\n"
        "\n80000010 <__riscv_save_4>:\n80000010:\t4305\tsub\tsp,sp,t1\n80000012:\t8282\tjr\tt0\n"
    )
    assert graph(text).worst("main").size_bytes == 48 + 32
    assert causes(graph(text)) == []


def test_the_compilers_frames_are_read_by_function(tmp_path: Path) -> None:
    (tmp_path / "a.su").write_text(
        "a.c:4:12:f\t16\tstatic\na.c:9:5:g_abi_82e164f1\t8\tstatic\n"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.su").write_text("b.c:1:5:f\t40\tdynamic,bounded\n")
    assert read_frames(tmp_path) == ({"f": 40, "g": 8}, frozenset())


def test_the_larger_of_two_frames_of_one_name_counts_in_any_order(
    tmp_path: Path,
) -> None:
    for name, size in (("a", 40), ("b", 16), ("c", 24)):
        (tmp_path / f"{name}.su").write_text(f"{name}.c:4:12:f\t{size}\tstatic\n")
    assert read_frames(tmp_path)[0] == {"f": 40}


def test_a_frame_of_unknown_size_is_variable(tmp_path: Path) -> None:
    (tmp_path / "a.su").write_text("a.c:4:12:f\t16\tdynamic\n")
    assert read_frames(tmp_path) == ({"f": 16}, frozenset({"f"}))


def test_a_clone_has_the_frame_of_its_source(tmp_path: Path) -> None:
    """The symbol is f.constprop.0, and the `.su` file of gcc 12 says f.constprop."""
    lines = ["m.c:6:39:deep.constprop\t8\tdynamic", "m.c:9:5:wide.isra\t400\tstatic"]
    (tmp_path / "m.su").write_text("\n".join(lines))
    frames, variable = read_frames(tmp_path)
    assert (frames, variable) == ({"deep": 8, "wide": 400}, {"deep"})
    text = "00000100 <wide.isra.0.part.1>:\n 100:\t4770      \tbx\tlr\n"
    assert [function.name for function in read_functions(text).values()] == ["wide"]


def test_a_move_to_the_program_counter_jumps_to_a_register() -> None:
    text = "00000100 <f>:\n 100:\t469f      \tmov\tpc, r3\n"
    text += "00000102 <g>:\n 102:\t46f7      \tmov\tpc, lr\n"
    assert [f.jumps_to_register for f in read_functions(text).values()] == [True, False]
