"""Engines as processes: start, find ready, own, supervise, share and stop them.

Nothing here knows pytest or takes a measurement; those live in ``fixtures`` and ``client``.
"""
