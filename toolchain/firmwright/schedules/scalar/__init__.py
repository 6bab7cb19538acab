"""Schedules for cores without SIMD instructions."""
