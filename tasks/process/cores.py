"""Whether the cores of this machine are free, which decides how a stage's threads wait for each other.

Two threads that spin between short operations are 1.7 times as fast as two that sleep on idle cores, and half
as fast beside one busy process (benchmarks/threads.py). The results are the same, bit for bit.
"""

import os
import time
from pathlib import Path

PROBE_S = 0.3
TOLERATED = 0.3  # cores' worth of other work


def wait_policy(threads: int) -> str | None:
    """The value for OMP_WAIT_POLICY: None, which spins for a moment, where the cores are free for it."""
    if threads == 1 or idle_cores(PROBE_S) >= min(threads, os.cpu_count() or 1) - TOLERATED:
        return None
    return "PASSIVE"


def idle_cores(seconds: float, stat: Path = Path("/proc/stat")) -> float:
    """Cores' worth of time that nobody used during the next `seconds`; 0 where the system does not say."""
    before = _idle_ticks(stat)
    time.sleep(seconds)
    after = _idle_ticks(stat)
    if before is None or after is None:
        return 0.0
    return (after - before) / (os.sysconf("SC_CLK_TCK") * seconds)


def _idle_ticks(stat: Path) -> int | None:
    """Clock ticks since boot that cores spent idle or waiting for a disk."""
    try:
        fields = stat.read_text().splitlines()[0].split()
    except OSError:
        return None
    return int(fields[4]) + int(fields[5])
