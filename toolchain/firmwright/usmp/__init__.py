"""Stage `usmp`: gives every buffer of a lowered module a pool and an offset.

`plan_module.plan` is the way in; planners are functions `(buffers, conflicts, pools) -> Plan`
found by name in `registry`. `validate.check_plan` judges every plan and shares no code with them.
"""
