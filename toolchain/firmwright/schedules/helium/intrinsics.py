"""Every intrinsic of the Helium schedules."""

from __future__ import annotations

from collections.abc import Mapping

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.schedules.helium.average_pool2d import POOL_INTRINSICS
from firmwright.schedules.helium.channel_taps import TAPS_INTRINSICS
from firmwright.schedules.helium.channels import CHANNELS_INTRINSICS
from firmwright.schedules.helium.halves import HALVES_INTRINSICS
from firmwright.schedules.helium.moves import MOVE_INTRINSICS
from firmwright.schedules.helium.planes import PLANE_INTRINSICS
from firmwright.schedules.helium.products import PRODUCT_INTRINSICS
from firmwright.schedules.helium.rows import ROWS_INTRINSICS
from firmwright.schedules.helium.sums import SUM_INTRINSICS

HELIUM_INTRINSICS: Mapping[str, Intrinsic] = {
    **CHANNELS_INTRINSICS,
    **HALVES_INTRINSICS,
    **MOVE_INTRINSICS,
    **PLANE_INTRINSICS,
    **POOL_INTRINSICS,
    **PRODUCT_INTRINSICS,
    **ROWS_INTRINSICS,
    **SUM_INTRINSICS,
    **TAPS_INTRINSICS,
}
