"""Bits that are flipped at random times in a hardened firmware in QEMU are found."""

from pathlib import Path

import pytest

from tests.hardening.campaign import start_campaign
from tests.hardening.qemu_injector import Effect

FLIPS = 400


@pytest.mark.deep
@pytest.mark.qemu
def test_flips_in_weights_and_activations_are_found(digits_path: Path) -> None:
    campaign = start_campaign(digits_path)
    with campaign.firmware:
        weights = campaign.count("weights", FLIPS)
        assert weights == {Effect.DETECTED: FLIPS}
        activations = campaign.count("activations", FLIPS)
        assert activations[Effect.SILENT] <= activations[Effect.DETECTED] // 99
        assert activations[Effect.DETECTED] > FLIPS // 3


@pytest.mark.deep
@pytest.mark.qemu
def test_plain_firmware_delivers_wrong_outputs(digits_path: Path) -> None:
    """The same flips without checks: the places are those that matter."""
    campaign = start_campaign(digits_path, harden=False)
    with campaign.firmware:
        counts = campaign.count("activations", FLIPS)
        assert counts[Effect.SILENT] > FLIPS // 10
        assert not counts[Effect.DETECTED]
