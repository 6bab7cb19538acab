"""Extensions that come with the compiler, one folder each.

They are registered as entry points in pyproject.toml, as those of other packages are,
and the core imports none of them.
"""
