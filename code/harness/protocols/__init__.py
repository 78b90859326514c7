"""Protocols: how one cell is measured. Warm-up outside the timer, samples kept raw."""
