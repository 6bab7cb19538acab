"""Options for house rules: the C looks otherwise and computes the same."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.c_identifiers import without_abi_hash
from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation, Options, bundle, compile_model

Compile = Callable[..., Compilation]
M4 = "cortex-m -mcpu=cortex-m4"
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
CODE, CONST = ".model_code", ".model_const"
SECTIONS = (("code", CODE), ("const", CONST))
HOUSES: dict[str, dict[str, Any]] = {
    "c99, portable": {"inline_asm": False},
    "c11, sections": {
        "c_standard": "c11",
        "sections": SECTIONS,
        "constants_in_header": True,
    },
    "gnu17, a licence": {"c_standard": "gnu17", "license": "MIT OR Apache-2.0"},
}


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("house", HOUSES)
def test_each_code_style_is_pedantic_and_bit_exact(
    house: str,
    compiled: Compile,
    quickly: Callable[[Compilation], ModelSession],
    tmp_path: Path,
) -> None:
    done = compiled("digits", board="host", target=M4, **HOUSES[house])
    standard = HOUSES[house].get("c_standard", "c99")
    done.save(tmp_path / "project")
    assert (
        f'"-std={standard}"'
        in (tmp_path / "project" / "board" / "board.json").read_text()
    )
    built = compile_strictly(tmp_path / "project", standard)
    assert built.stderr == ""
    text = (tmp_path / "project" / "model" / "digits.c").read_text()
    assert ("_Static_assert(" in text) == (standard != "c99")
    assert ("__asm__" in text) == HOUSES[house].get("inline_asm", True)
    found = verify(done, samples=3, open_with=quickly)
    assert (found.samples, found.mismatches) == (3, 0)


def compile_strictly(
    project: Path, standard: str, compiler: str = "gcc"
) -> subprocess.CompletedProcess[str]:
    words = [f"-std={standard}", "-O2", *STRICT, "-Iruntime", "-Imodel", "-c", "-fpie"]
    for source in ("firmware/fwr_app.c", "model/digits.c"):
        done = subprocess.run(
            [compiler, *words, source, "-o", "model.o"],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            break
    return done


@pytest.mark.host_c
def test_functions_and_constants_are_in_the_given_sections(
    compiled: Compile, tmp_path: Path
) -> None:
    done = compiled("digits", board="host", target=M4, sections=SECTIONS)
    done.save(tmp_path)
    assert compile_strictly(tmp_path, "c99").returncode == 0
    listed = subprocess.run(
        ["objdump", "-t", str(tmp_path / "model.o")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = re.findall(r"^\S+ .{7} (\S+)\s+[0-9a-f]+ (digits_\w+)$", listed, re.M)
    sections = {without_abi_hash(name): section for section, name in rows}
    assert len(sections) > 20
    code = {name for name, section in sections.items() if section == CODE}
    assert {"digits_run", "digits_map_io", "digits_conv2d_0"} <= code
    assert {section for name, section in sections.items() if name not in code} == {
        CONST
    }


@pytest.mark.qemu
def test_sections_within_those_of_the_linker_script_run_on_a_board(
    compiled: Compile,
) -> None:
    sections = (("code", ".text.digits"), ("const", ".rodata.digits"))
    found = verify(compiled("digits", board="mps2-an386", sections=sections), samples=2)
    assert (found.samples, found.mismatches) == (2, 0)


@pytest.mark.deep
def test_with_constants_in_headers_two_models_share_no_file(compiled: Compile) -> None:
    parts = [compiled("digits", name=name) for name in ("one", "two")]
    assert "model/shared_constants.c" in bundle(parts).tree.files
    parts = [
        compiled("digits", name=name, constants_in_header=True)
        for name in ("one", "two")
    ]
    made = bundle(parts).tree.files
    assert "model/shared_constants.c" not in made
    arrays = [
        str(made[f"model/{name}_weights.h"]).count("static const")
        for name in ("one", "two")
    ]
    assert arrays[0] == arrays[1] > 10
    with pytest.raises(UsageError, match="the same C style"):
        bundle(
            [
                parts[0],
                compiled("digits", name="two", constants_in_header=True, license="MIT"),
            ]
        )


@pytest.mark.parametrize("spdx", ["", "LicenseRef-Our-Company"])
def test_every_file_states_its_license(spdx: str, compiled: Compile) -> None:
    done = compiled("digits", board="mps2-an386", license=spdx)
    heads = {
        path: re.findall(
            r"SPDX-License-Identifier: ([^*\n]+?)(?: \*/)?$", head(content), re.M
        )
        for path, content in done.project().files.items()
        if not path.endswith(".json")
    }
    own = spdx or "LicenseRef-Model-Owner"
    for path, found in heads.items():
        generated = path.startswith("model/") or path == "firmware/fwr_app.c"
        assert found == [own if generated else "Apache-2.0"], path


def head(content: str | bytes) -> str:
    text = content if isinstance(content, str) else content.decode()
    return "\n".join(text.splitlines()[:3])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"c_standard": "c89"}, "invalid --c-standard 'c89'. Try: one of c99, c11"),
        ({"sections": (("code", "a b"),)}, "invalid --section 'code=a b'."),
        ({"sections": (("data", ".x"),)}, "invalid --section 'data=.x'."),
        ({"sections": (("code", ".a"), ("code", ".b"))}, "gives two sections for code"),
        ({"license": "MIT */ int x;"}, "invalid --license"),
    ],
)
def test_contradictory_options_are_refused(
    options: dict[str, Any], said: str, compiled: Compile
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        compile_model(compiled("digits").imported, Options(**options))


def test_all_style_options_are_accepted(digits_path: Path, tmp_path: Path) -> None:
    words = [
        "--c-standard",
        "c17",
        "--section",
        f"code={CODE}",
        "--section",
        f"const={CONST}",
    ]
    words += ["--header-only-constants", "--license", "MIT", "--prefix", "ten"]
    out = tmp_path / "out"
    assert main(["compile", str(digits_path), *words, "-o", os.fspath(out)]) == 0
    text = (out / "model" / "ten.c").read_text()
    assert f'section("{CODE}")' in text
    assert " * SPDX-License-Identifier: MIT\n" in text
    assert f'TEN_CONST("{CONST}", ' in (out / "model" / "ten_weights.h").read_text()
    assert main(["reproduce", str(out), str(digits_path)]) == 0
