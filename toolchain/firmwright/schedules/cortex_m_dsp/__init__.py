"""Schedules for Cortex-M cores with the DSP extension."""
