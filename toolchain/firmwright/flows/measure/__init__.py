"""Measurements of runs: counts, profiles, bounds, reports."""
