"""One run of a command: wall seconds, CPU seconds, peak memory, and what it printed."""

import os
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass, field


class Failed(Exception):
    """A command did not end well; the text says which and what it wrote last."""


@dataclass
class Run:
    """What one run took, and its answer as counts."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of user and system time, of all threads and children."""
    peak_mb: float | None = None
    """The most memory that was resident, in 10^6 bytes; None where it isn't known."""
    answer: dict = field(default_factory=dict)


def run(command):
    """Runs a command to its end; returns the `Run` and its standard output. Raises `Failed`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise Failed(f"{os.path.basename(command[0])} ended with {process.returncode}: {_last_line(errors)}")
        output.seek(0)
        text = output.read().decode()
    return Run(wall, usage.ru_utime + usage.ru_stime, _peak_mb(usage)), text


def _peak_mb(usage):
    """A child's peak counts the memory that it shared with this process before it became another program."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss * 1024 / 1e6 if usage.ru_maxrss > ours else None


def _last_line(errors):
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
