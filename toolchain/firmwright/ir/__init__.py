"""The one intermediate representation: nouns only, no stage.

`core` holds the small shared values, `graph` the operator level, `tir` the loop level, `module`
the container that carries both from import to code generation, `text` its exact written form.
"""
