"""Seeded simulations behind every promise of the statistics, and peers' rules on the same noise.

The rules themselves are in ``assumption``, and are called, not repeated. No other room imports this
one; ``python -m pytest_llmperf.calibrate`` runs it, and ``looks`` makes the shipped tables anew.
"""
