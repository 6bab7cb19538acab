"""Predictions without a build: costs, schedules of runs, trade-offs."""
