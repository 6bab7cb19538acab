"""Schedules for Cortex-M cores with Helium (MVE), on vectors of sixteen bytes."""
