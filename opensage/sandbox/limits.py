"""What a sandbox may use."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from opensage.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one sandbox; sizes are bytes, times are seconds.

    Attributes:
        memory: of everything inside together; also the most one process may allocate.
        processes: alive at once, threads not counted.
        file_size: of one file a command writes.
        open_files: of one process.
        scratch: size of /tmp, of the home folder and of shared memory, each, inside an isolating sandbox.
        cpus: how many the sandbox may keep busy, where the backend can bound it (`docker`); None is all.
        nice: added to the priority number of everything inside.
        timeout: of a command that names none.
        timeout_ceiling: the most a command may ask for.
        output: kept of the head and as much of the tail, of stdout and of stderr each.
    """

    memory: int = 2048 * MIB
    processes: int = 256
    file_size: int = 4096 * MIB
    open_files: int = 1024
    scratch: int = 1024 * MIB
    nice: int = 5
    cpus: float | None = None
    timeout: float = 120.0
    timeout_ceiling: float = 3600.0
    output: int = MIB // 2

    def __post_init__(self) -> None:
        """Refuse what no sandbox could run under."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if not math.isfinite(value) or (value <= 0 and field.name != "nice"):
                raise ConfigError(f"sandbox limit {field.name}={value!r}: give a positive number")

    def clamp(self, timeout: float | None) -> float:
        """Seconds a command gets: the default for none, zero, negatives and NaN; the ceiling for more than it."""
        if timeout is None or math.isnan(timeout) or timeout <= 0:
            return min(self.timeout, self.timeout_ceiling)
        return min(timeout, self.timeout_ceiling)
