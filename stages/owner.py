"""Processes that die with the one that started them, however that one ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: a child between fork and exec must not load anything


def die_with(owner: int) -> None:
    """End this process with the thread that started it (Linux); at once if `owner` is gone by now."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
