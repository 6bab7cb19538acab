"""add and sub on scalar cores: the table of the DSP cores' rules, whose step needs nothing of them.

Their one instruction of the extension, SMMLA, is a multiply-high and an addition elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.schedules.cortex_m_dsp import rescaled_sum
from firmwright.schedules.scalar.rv32_blocks import RVM
from firmwright.schedules.scalar.thumb2_blocks import MLA

RULES = tuple(
    replace(rule, name=f"{family.name}.{rule.op}.table", requires=frozenset({family.name}))
    for family in (MLA, RVM)
    for rule in rescaled_sum.RULES
    if rule.name == f"dsp.{rule.op}.table"
)
