"""The tests; the modules whose names do not begin with `test_` are what several tests
share.
"""
