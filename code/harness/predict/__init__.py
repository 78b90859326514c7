"""Predictions that only the paper needs: the analytic model, a service's rungs, a fleet."""
