"""The `attrs` block of module text: settings of a module and results of its passes.

A module prints its attributes in one order. Those that have their defaults are left
out, except the ones that every configured module shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from firmwright.ir.attribute_kinds import MODULE_ATTRIBUTES
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.core import Attr, Attrs
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import PassResults, PoolAccess, Rejection
from firmwright.ir.settings import (
    Devices,
    FlashTiming,
    Minimize,
    ModelOrigin,
    NumericsProfile,
    Objective,
    ReadSpeed,
    Settings,
)

# ---- a module to attributes ----------------------------------------------------------


def module_attributes(module: IRModule) -> dict[str, Attr]:
    """Return the attributes of a module in the order of its text."""
    rows: dict[str, Attr | None] = {
        "entry": module.entry_name or None,
        "source_sha256": module.origin.sha256 or None,
        "subgraph": module.origin.subgraph or None,
        **_settings_rows(module.settings),
        **_results_rows(module.results),
    }
    shown = {name: value for name, value in rows.items() if value is not None}
    return {**shown, **module.attrs}


def _settings_rows(settings: Settings) -> dict[str, Attr | None]:
    """Return the attributes by name, None for those that are left out."""
    objective, flash, devices = settings.objective, settings.flash, settings.devices
    is_configured, speed = bool(settings.board), flash.program_memory
    axis = settings.axis
    shows_goal = is_configured or objective.minimize is not Minimize.BALANCED
    shows_link = is_configured or not settings.link_params
    return {
        "numerics": settings.numerics,
        "optimize": objective.minimize.value if shows_goal else None,
        "planner": settings.planner or None,
        "link_params": settings.link_params if shows_link else None,
        "board": settings.board or None,
        "ram_bytes": objective.ram_bytes,
        "flash_bytes": objective.flash_bytes,
        "ramfunc_bytes": flash.ramfunc_bytes or None,
        "short_loops": flash.has_short_loops or None,
        "flash_stalls": flash.stalls_per_byte or None,
        "offload": settings.offload or None,
        "recompute": settings.recompute or None,
        "compress_weights": objective.has_coded_weights or None,
        "pipeline_runs": settings.pipeline_runs or None,
        "weight_independent": settings.weight_independent or None,
        "no_nan": settings.no_nan or None,
        "tuning": settings.tuning or None,
        "devices": devices.names or None,
        "fallback": devices.has_fallback or None,
        "engine_core": devices.emulated_engines or None,
        "copiers": devices.copiers or None,
        "program_bandwidth": speed.bandwidth if speed else None,
        "program_latency": speed.latency if speed else None,
        "all_channels": settings.all_channels or None,
        "harden": settings.harden or None,
        "axis": (axis.name, axis.least, axis.most) if axis else None,
    }


def _results_rows(results: PassResults) -> dict[str, Attr | None]:
    """Return the attributes by name, None for those that are left out."""
    rejections = tuple((r.op, r.tensor, r.target, r.reason) for r in results.rejections)
    access = tuple((row.target, row.device, *row.pools) for row in results.pool_access)
    return {
        "offload_shares": results.offload_shares or None,
        "partitioned": results.partitioned,
        "rejections": rejections or None,
        "passes": results.user_passes or None,
        "stage": results.stage,
        "live_channels": results.live_channels or None,
        "pipelined_runs": results.pipelined_runs or None,
        "visible_pools": access or None,
        "compressed_bytes": results.compressed_bytes or None,
        "device_waits": results.device_waits or None,
        "backend_checks": results.backend_checks or None,
        "backends": results.backend_records or None,
    }


# ---- attributes to a module ----------------------------------------------------------


def with_module_attributes(module: IRModule, attrs: Attrs) -> IRModule:
    """Return `module` with attributes from text, of the kinds in MODULE_ATTRIBUTES."""
    reader = _AttributeReader(attrs)
    of_extensions: dict[str, Attr] = {}
    for name, value in attrs.items():
        if name not in MODULE_ATTRIBUTES:
            of_extensions[name] = value
    return replace(
        module,
        entry_name=reader.text("entry"),
        origin=ModelOrigin(reader.text("source_sha256"), reader.count("subgraph") or 0),
        settings=_read_settings(reader),
        results=_read_results(reader),
        attrs=of_extensions,
    )


def _read_settings(reader: _AttributeReader) -> Settings:
    bandwidth = reader.number("program_bandwidth")
    stalls = reader.number("flash_stalls")
    speed = None
    if bandwidth is not None:
        speed = ReadSpeed(bandwidth, reader.count("program_latency"))
    return Settings(
        numerics=cast("NumericsProfile | None", reader.text("numerics") or None),
        objective=Objective(
            minimize=Minimize(reader.text("optimize") or Minimize.BALANCED),
            ram_bytes=reader.count("ram_bytes"),
            flash_bytes=reader.count("flash_bytes"),
            has_coded_weights=reader.flag("compress_weights"),
        ),
        flash=FlashTiming(
            ramfunc_bytes=reader.count("ramfunc_bytes") or 0,
            has_short_loops=reader.flag("short_loops"),
            stalls_per_byte=stalls or 0.0,
            program_memory=speed,
        ),
        devices=Devices(
            names=reader.texts("devices") or (),
            copiers=reader.texts("copiers") or (),
            has_fallback=reader.flag("fallback"),
            emulated_engines=reader.texts("engine_core") or (),
        ),
        board=reader.text("board"),
        planner=reader.text("planner"),
        tuning=reader.text("tuning"),
        link_params=reader.flag("link_params", default=True),
        recompute=reader.flag("recompute"),
        pipeline_runs=reader.flag("pipeline_runs"),
        weight_independent=reader.flag("weight_independent"),
        no_nan=reader.flag("no_nan"),
        all_channels=reader.flag("all_channels"),
        harden=reader.flag("harden"),
        offload=reader.pairs("offload"),
        axis=reader.axis("axis"),
    )


def _read_results(reader: _AttributeReader) -> PassResults:
    channels = cast(
        "tuple[tuple[str, tuple[int, ...]], ...]", reader.get("live_channels", ())
    )
    pool_access = []
    for target, device, *pools in reader.rows("visible_pools"):
        pool_access.append(PoolAccess(target, device, tuple(pools)))
    return PassResults(
        stage=reader.text("stage") if reader.has("stage") else None,
        user_passes=reader.texts("passes") or (),
        partitioned=reader.texts("partitioned"),
        rejections=tuple(Rejection(*row) for row in reader.rows("rejections")),
        offload_shares=reader.pairs("offload_shares"),
        pool_access=tuple(pool_access),
        device_waits=reader.pairs("device_waits"),
        backend_checks=reader.texts("backend_checks") or (),
        backend_records=reader.get("backends", ()),
        live_channels=channels,
        pipelined_runs=reader.count("pipelined_runs") or 0,
        compressed_bytes=reader.count("compressed_bytes") or 0,
    )


class _AttributeReader:
    """Reads attributes whose kinds the parser has checked."""

    def __init__(self, attrs: Mapping[str, Attr]) -> None:
        self._attrs = attrs

    def has(self, name: str) -> bool:
        return name in self._attrs

    def get(self, name: str, default: Attr) -> Attr:
        return self._attrs.get(name, default)

    def text(self, name: str) -> str:
        return str(self._attrs.get(name, ""))

    def flag(self, name: str, *, default: bool = False) -> bool:
        return bool(self._attrs.get(name, default))

    def count(self, name: str) -> int | None:
        return cast("int | None", self._attrs.get(name))

    def number(self, name: str) -> float | None:
        value = cast("float | None", self._attrs.get(name))
        return None if value is None else float(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        value = self._attrs.get(name)
        if isinstance(value, str):
            return (value,)
        return cast("tuple[str, ...] | None", value)

    def rows(self, name: str) -> tuple[tuple[str, ...], ...]:
        return cast("tuple[tuple[str, ...], ...]", self._attrs.get(name, ()))

    def axis(self, name: str) -> BoundedAxis | None:
        row = cast("tuple[str, int, int] | None", self._attrs.get(name))
        return None if row is None else BoundedAxis(*row)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        return cast("tuple[tuple[str, str], ...]", self._attrs.get(name, ()))
