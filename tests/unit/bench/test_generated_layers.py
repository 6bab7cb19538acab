"""Random layers are reproducible, valid, and small."""

from itertools import islice

from firmwright.ops.registry import op_table
from tests.conformance.candidate_counts import enumerate_candidates
from tests.conformance.generated_layers import MAX_ELEMENTS, generate_layers


def test_a_seed_always_gives_the_same_layers():
    first, again = (list(islice(generate_layers(5), 22)) for _ in range(2))
    assert first == again
    assert first != list(islice(generate_layers(6), 22))


def test_random_layers_are_valid_and_small():
    drawn = list(islice(generate_layers(1), 110))
    for call in drawn:
        assert op_table()[call.op].infer(call) == call.outputs, call.op
        assert call.input(0).elements <= 4 * MAX_ELEMENTS
    assert {call.op for call in drawn} >= {
        "conv2d",
        "depthwise_conv2d",
        "fully_connected",
        "add",
    }
    assert any(call.output.shape[1] == 1 for call in drawn if call.op == "conv2d")


def test_every_schedule_is_a_candidate_with_a_unique_name():
    result = list(enumerate_candidates(islice(generate_layers(2), 4), "mps2-an386"))
    assert {item.layer for item in result} == {0, 1, 2, 3}
    names = [item.alternative.function.name for item in result]
    assert len(set(names)) == len(names)
    constants = [name for item in result for name in item.alternative.constants]
    assert len(set(constants)) == len(constants)
    first = [item.schedule for item in result if item.layer == 0]
    assert "default" in first
    assert any(schedule.startswith("dsp.conv2d.im2col") for schedule in first)
