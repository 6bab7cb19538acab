"""The tests; modules whose names do not begin with `test_` are shared by several."""
