"""Matrix products and n-dimensional convolutions of float32 on RISC-V vectors."""

from firmwright.base.dtypes import FLOAT32
from firmwright.schedules.rvv.products import product_schedules, products_intrinsic

INTRINSICS = (products_intrinsic(FLOAT32, "rvvf"),)
SCHEDULES = product_schedules(FLOAT32, "rvvf")
