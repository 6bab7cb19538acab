"""The options that say which devices share the work."""

from __future__ import annotations

import argparse


def add_multi_device_options(group: argparse._ArgumentGroup) -> None:
    """The fields `devices`, `places` and `fallback` of `Options`."""
    group.add_argument(
        "--devices",
        metavar="cpu0,cpu1",
        type=_names,
        help="the cores that share the work, the one that runs the model first",
    )
    group.add_argument(
        "--assign-device",
        metavar="TENSOR=DEVICE[:POOL]",
        action="append",
        type=_place,
        help="this tensor is made by that device, or lies with it; weights are copied to the pool "
        "once, before the first run",
    )
    group.add_argument(
        "--fallback",
        action="store_true",
        default=None,
        help="what another device refuses or breaks off is done by the core that runs the model",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _place(text: str) -> tuple[str, str, str]:
    tensor, _, place = text.rpartition("=")
    device, _, pool = place.partition(":")
    if not tensor or not device:
        raise argparse.ArgumentTypeError(f"{text!r} is not TENSOR=DEVICE or TENSOR=DEVICE:POOL")
    return tensor, device, pool
