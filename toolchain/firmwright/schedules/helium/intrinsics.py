"""All intrinsics of the Helium schedules for integers."""

from __future__ import annotations

from collections.abc import Mapping

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.schedules.helium.add_sub import ADD_SUB_INTRINSICS
from firmwright.schedules.helium.average_pool2d import POOL_INTRINSICS
from firmwright.schedules.helium.depthwise_microkernels_8ch import DEPTHWISE_8CH_INTRINSICS
from firmwright.schedules.helium.depthwise_microkernels_16ch import DEPTHWISE_16CH_INTRINSICS
from firmwright.schedules.helium.depthwise_plane_microkernels import DEPTHWISE_PLANE_INTRINSICS
from firmwright.schedules.helium.gemm_microkernels import GEMM_INTRINSICS
from firmwright.schedules.helium.int16_dot import INT16_DOT_INTRINSICS
from firmwright.schedules.helium.matvec_microkernels import MATVEC_INTRINSICS
from firmwright.schedules.helium.vector_copy import VECTOR_COPY_INTRINSICS

HELIUM_INTRINSICS: Mapping[str, Intrinsic] = {
    **DEPTHWISE_8CH_INTRINSICS,
    **INT16_DOT_INTRINSICS,
    **VECTOR_COPY_INTRINSICS,
    **DEPTHWISE_PLANE_INTRINSICS,
    **POOL_INTRINSICS,
    **GEMM_INTRINSICS,
    **MATVEC_INTRINSICS,
    **ADD_SUB_INTRINSICS,
    **DEPTHWISE_16CH_INTRINSICS,
}
