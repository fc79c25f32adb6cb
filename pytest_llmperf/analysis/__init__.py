"""What several windows say together that none says alone: a ladder, a burst, the 2x2, a failover.

One arm or two of one denominator are in ``run``; what a test asserts of them is in ``claims``.
"""
