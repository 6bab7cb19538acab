"""Constants: none in the image of --no-link-params, equal ones only once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import params_block
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.ir.printer import parse_module
from firmwright.pipeline import Bundle, Compilation, Options, bundle, compile_model

Compile = Callable[..., Compilation]

BOARDS = [
    pytest.param("host", marks=pytest.mark.host_c),
    pytest.param("mps2-an386", marks=pytest.mark.qemu),
]


def deep_but(kept: str) -> list[object]:
    """The boards, all but `kept` with --deep only."""
    return [
        pytest.param(
            *p.values, marks=(*p.marks, *[pytest.mark.deep] * (p.values != (kept,)))
        )
        for p in BOARDS
    ]


@pytest.mark.sampled(3)
@pytest.mark.models
@pytest.mark.parametrize("board", BOARDS)
def test_kws_computes_the_same_with_constants_sent_over_the_link(
    board: str, compiled: Compile
) -> None:
    found = verify(compiled("kws", board=board, link_params=False), samples=5)
    assert found.reference.startswith("LiteRT")
    assert (found.samples, found.mismatches) == (5, 0)


@pytest.mark.sampled(2)
@pytest.mark.models
@pytest.mark.parametrize("board", BOARDS)
def test_image_without_linked_constants_has_none(board: str, compiled: Compile) -> None:
    linked = compiled("kws", board=board)
    sent = compiled("kws", board=board, link_params=False)
    with_constants, without = build_image(linked), build_image(sent)
    block = params_block(sent)
    assert block is not None
    assert len(block) > 20_000
    saved = with_constants.sizes.bytes_of("rodata") - without.sizes.bytes_of("rodata")
    assert saved > 0.95 * len(block)
    assert without.sizes.bytes_of("rodata") < len(block) // 4
    weights = max(sent.module.constants.values(), key=lambda c: c.size_bytes).data
    assert weights[:64] in with_constants.elf.read_bytes()
    image = without.elf.read_bytes()
    for constant in sent.module.constants.values():
        if constant.size_bytes >= 64:
            assert constant.data not in image, constant.name


TWO_FUNCTIONS = """firmwright ir 2
module @twins
const @first = i8[16] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
const @second = i8[16] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]

graph @main(%x: i8[16]) -> (%y) {
  %a: i8[16] = @larger(%x)
  %y: i8[16] = @smaller(%a)
}
func @larger(in x: i8[16], out y: i8[16]) attrs {op="larger"} {
  alloc_const w: i8[16] scope(const) = @first
  for i in 0..16 { y[i] = max(x[i], w[i]) }
}
func @smaller(in x: i8[16], out y: i8[16]) attrs {op="smaller"} {
  alloc_const w: i8[16] scope(const) = @second
  for i in 0..16 { y[i] = min(x[i], w[i]) }
}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("board", BOARDS)
def test_two_functions_of_a_model_share_an_equal_constant(board: str) -> None:
    module = parse_module(TWO_FUNCTIONS, "twins.fwir")
    done = compile_model(module, Options(board=board))
    image = build_image(done)
    arrays = [
        s
        for s in image.sizes.symbols
        if s.kind == "rodata" and s.name.startswith("twins_")
    ]
    assert [(s.name, s.size_bytes) for s in arrays] == [("twins_first", 16)]
    assert image.elf.read_bytes().count(bytes(range(1, 17))) == 1
    assert verify(done, samples=5).mismatches == 0


@pytest.mark.parametrize("board", deep_but("mps2-an386"))
def test_two_models_of_an_image_share_equal_constants(
    board: str, compiled: Compile
) -> None:
    first = compiled("digits", board=board, name="first")
    second = compiled("digits", board=board, name="second")
    both = bundle([first, second])
    image, alone = build_image(both), build_image(first)
    constants = [
        s for s in image.sizes.symbols if s.kind == "rodata" and s.size_bytes >= 16
    ]
    shared = [s.name for s in constants if s.name.startswith("shared_")]
    assert len(shared) == len(set(shared)) >= 12
    assert not [s.name for s in constants if s.name.startswith(("first_", "second_"))]
    rodata = image.sizes.bytes_of("rodata")
    assert rodata < alone.sizes.bytes_of("rodata") + 1024, "each constant is there once"
    check_both(both, image)


@pytest.mark.models
@pytest.mark.parametrize("board", deep_but("host"))
def test_different_models_run_in_one_image(board: str, compiled: Compile) -> None:
    both = bundle([compiled("digits", board=board), compiled("ww", board=board)])
    check_both(both, build_image(both))


def check_both(both: Bundle, image: Image) -> None:
    """Every model of the image gives its own reference's outputs, run together."""
    batches = [
        generate_samples(part.module.io.inputs, 4).samples for part in both.parts
    ]
    references = [
        run_oracle_reference(part, samples, "litert").outputs
        for part, samples in zip(both.parts, batches, strict=True)
    ]
    identity = bytes.fromhex(both.model_id)
    names = [part.module.name for part in both.parts]
    with Session(open_transport(both.board, image.elf), model_id=identity) as session:
        for index, samples in enumerate(zip(*batches, strict=True)):
            pairs = zip(names, samples, strict=True)
            given = {
                f"{name}/{key}": value
                for name, one in pairs
                for key, value in one.items()
            }
            found = session.run(given)
            for name, reference in zip(names, references, strict=True):
                for key, value in reference[index].items():
                    assert np.array_equal(found[f"{name}/{key}"], value.reshape(-1)), (
                        name,
                        key,
                    )


def test_models_that_cannot_be_in_one_image_are_refused(compiled: Compile) -> None:
    digits = compiled("digits")
    with pytest.raises(UsageError, match="two models have the name digits"):
        bundle([digits, digits])
    with pytest.raises(UsageError, match="several models needs at least two"):
        bundle([digits])
    with pytest.raises(UsageError, match="for several boards: host, mps2-an386"):
        bundle([digits, compiled("digits", board="mps2-an386")])
    with pytest.raises(UsageError, match="several models require linked constants"):
        bundle([digits, compiled("digits", name="other", link_params=False)])
