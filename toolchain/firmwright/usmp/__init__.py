"""Unified static memory planning (USMP): give every buffer a pool and an offset.

`memory_planning.plan_memory` is the entry point. Planners are functions `(buffers,
constraints, pools) -> Plan`. `plan_validator.check_plan` checks every plan
independently.
"""
