"""The machine that is measured on: its facts under load, a canary, and one lock for the host.

What the machine is, whoever uses it, is in ``place``; whether it was fit is for ``proof`` to say.
"""

from pytest_llmperf.machine.gpu import Gpus
from pytest_llmperf.machine.load import Load, middle, phases, words
from pytest_llmperf.machine.lock import HostLock, default_lock
from pytest_llmperf.machine.watch import Watch

__all__ = ["Gpus", "HostLock", "Load", "Watch", "default_lock", "middle", "phases", "words"]
