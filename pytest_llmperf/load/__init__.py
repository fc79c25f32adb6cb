"""Many streams at once: when each is due, what is in flight, and what a burst or a ladder came to.

Sending them is in ``measure``; what proves that a load was the one declared, in ``proof``.
"""
