"""Helpers that several test modules share; imported as `tests.support.…`."""
