"""Frames and calls as the disassembly shows them."""

from pathlib import Path

import pytest

from firmwright.base.errors import ToolFailedError
from firmwright.build.stack_analysis import CallGraph, read_frames

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


def test_the_deepest_path_counts_pushes_and_subtractions() -> None:
    use = CallGraph(ARM, {}, ()).worst("main")
    assert use.path == ("main", "deep", "tail")
    assert use.size_bytes == (16 + 8) + (16 + 256) + 8


def test_the_deepest_of_several_callees_counts_in_any_order() -> None:
    for deep, flat in (("200", "300"), ("300", "200")):
        text = (
            f"00000100 <main>:\n 100:\tb570\tbl\t{deep} <deep>\n 104:\tb570\tbl\t{flat} <flat>\n\n"
            f"00000{deep} <deep>:\n {deep}:\tb082\tsub\tsp, #64\n\n"
            f"00000{flat} <flat>:\n {flat}:\tb082\tsub\tsp, #8\n"
        )
        use = CallGraph(text, {}, ()).worst("main")
        assert (use.path, use.size_bytes) == (("main", "deep"), 64)


def test_a_veneer_of_the_linker_leads_to_its_function() -> None:
    text = ARM.replace("200 <leaf>", "500 <__leaf_veneer>", 1) + (
        "\n00000500 <__leaf_veneer>:\n 500:\tf85f f000 \tldr.w\tpc, [pc]\t@ 504\n"
        " 504:\t00000201 \t.word\t0x00000201\n"
    )
    graph = CallGraph(text.replace("sub.w\tsp, sp, #256", "nop"), {}, ())
    assert graph.worst("main").path == ("main", "__leaf_veneer", "leaf")


def test_an_indirect_call_of_a_library_function_is_reported_as_unknown() -> None:
    assert CallGraph(ARM, {}, ()).worst("main").unknown == ("tail",)


def test_an_indirect_call_of_the_runtime_reaches_the_glue() -> None:
    use = CallGraph(ARM, {"tail": 8}, ("leaf",)).worst("main")
    assert use.path == ("main", "deep", "tail", "leaf")
    assert use.size_bytes == 24 + 272 + 8 + 36
    assert use.unknown == ()


def test_an_indirect_call_of_the_model_reaches_only_constant_readers() -> None:
    text = ARM.replace("<leaf>", "<read_constants>").replace("<deep>", "<run>")
    frames = {"tail": 8, "main": 8}
    glue = ("read_constants", "run")
    use = CallGraph(text, frames, glue, ("tail",)).worst("main")
    assert use.path == ("main", "run", "tail", "read_constants")
    with pytest.raises(ToolFailedError, match="run calls tail calls run"):
        CallGraph(text, frames, glue).worst("main")


def test_the_larger_of_compiler_and_instructions_is_the_frame() -> None:
    assert CallGraph(ARM, {"leaf": 1000}, ()).worst("leaf").size_bytes == 1000
    assert CallGraph(ARM, {"leaf": 4}, ()).worst("leaf").size_bytes == 36


def test_risc_v_frames_and_tail_calls_count() -> None:
    use = CallGraph(RISCV, {}, ()).worst("main")
    assert (use.size_bytes, use.path) == (80, ("main", "next"))


def test_recursion_is_refused_with_its_cycle() -> None:
    text = ARM.replace("blx\tr3", "bl\t100 <main>")
    with pytest.raises(ToolFailedError) as caught:
        CallGraph(text, {}, ()).worst("main")
    cycle = "main calls deep calls tail calls main"
    assert str(caught.value) == f"recursion has unbounded stack use: {cycle}."


def test_the_compilers_frames_are_read_by_function(tmp_path: Path) -> None:
    (tmp_path / "a.su").write_text("a.c:4:12:f\t16\tstatic\na.c:9:5:g_abi_82e164f1\t8\tstatic\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.su").write_text("b.c:1:5:f\t40\tdynamic,bounded\n")
    assert read_frames(tmp_path) == {"f": 40, "g": 8}


def test_the_larger_of_two_frames_of_one_name_counts_in_any_order(tmp_path: Path) -> None:
    for name, size in (("a", 40), ("b", 16), ("c", 24)):
        (tmp_path / f"{name}.su").write_text(f"{name}.c:4:12:f\t{size}\tstatic\n")
    assert read_frames(tmp_path) == {"f": 40}


def test_a_frame_of_unknown_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.su").write_text("a.c:4:12:f\t16\tdynamic\n")
    with pytest.raises(ToolFailedError) as caught:
        read_frames(tmp_path)
    assert caught.value.what == "f uses a variable amount of stack."
