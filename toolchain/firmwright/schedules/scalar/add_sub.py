"""add and sub on cores without SIMD instructions: the table schedule of the DSP extension.

Its only DSP instruction, SMMLA, is a multiply-high and an addition elsewhere.
"""

from dataclasses import replace

from firmwright.schedules.cortex_m_dsp import add_sub
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY

SCHEDULES = tuple(
    replace(rule, name=f"{family.name}.{rule.op}.table", requires=frozenset({family.name}))
    for family in (MLA_FAMILY, RV32M_FAMILY)
    for rule in add_sub.SCHEDULES
    if rule.name == f"dsp.{rule.op}.table"
)
