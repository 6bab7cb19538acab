"""Gives parts of a program to targets, and sees to it that each does with its parts alone."""
