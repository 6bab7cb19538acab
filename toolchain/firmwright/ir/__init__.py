"""The intermediate representation used from import to code generation.

`graph` is the operator level, `tir` the loop level, `core` has the classes that both
share, `module` the container, and `printer`/`parser` the exact text form.
"""
