"""A filter of system calls for the `bubblewrap` sandbox: what namespaces do not shut.

Sockets to the hypervisor belong to no network namespace, keys of the kernel to no process, and a program that borrows
its owner's rights stays in the workspace when the sandbox is gone. Written as seccomp(2) and linux/filter.h say.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_X32 = 0x40000000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and what makes O_TMPFILE: without them `open` has no mode."""
_FAMILIES = (0, 1, 2, 10, 16)
"""Unspecified, local, IPv4, IPv6, netlink: the ones that a network namespace isolates."""
_PUSHES_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX."""

_X86_64 = {
    "socket": 41, "ioctl": 16, "add_key": 248, "request_key": 249, "keyctl": 250, "io_uring_setup": 425,
    "open": 2, "creat": 85, "openat": 257, "openat2": 437, "mknod": 133, "mknodat": 259,
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
}  # fmt: skip
_AARCH64 = {
    "socket": 198, "ioctl": 29, "add_key": 217, "request_key": 218, "keyctl": 219, "io_uring_setup": 425,
    "openat": 56, "openat2": 437, "mknodat": 33, "fchmod": 52, "fchmodat": 53, "fchmodat2": 452,
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}

_Test = tuple[int, int, int, bool]
"""Argument, comparison, value, whether it must hold."""


def program(machine: str | None = None, *, bits: int = 0o4000) -> bytes:
    """The filter for a machine (`uname -m`, this one without it); b"" where its system calls are not known here.

    Args:
        machine: "x86_64" or "aarch64".
        bits: mode bits that no file may get.
    """
    architecture, numbers = _MACHINES.get(machine or os.uname().machine, (0, {}))
    if not numbers:
        return b""
    # Programs for another architecture number their calls differently, so none of their calls is allowed.
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), _refuse(errno.ENOSYS)]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    for name, tests, error in _rules(bits):
        if name in numbers:
            code += _rule(numbers[name], tests, error)
    return b"".join(struct.pack("=HBBI", *step) for step in [*code, (_RETURN, 0, 0, _ALLOW)])


def _rules(bits: int) -> list[tuple[str, list[_Test], int]]:
    """System call, tests that must all pass, and the error it then gives."""
    rules: list[tuple[str, list[_Test], int]] = [
        ("socket", [(0, _EQUAL, family, False) for family in _FAMILIES], errno.EAFNOSUPPORT)
    ]
    rules += [("ioctl", [(1, _EQUAL, request, True)], errno.EPERM) for request in _PUSHES_INPUT]
    rules += [(name, [], errno.EPERM) for name in ("add_key", "request_key", "keyctl")]
    # Their arguments lie in memory, where a filter cannot look; programs fall back to the plain calls.
    rules += [(name, [], errno.ENOSYS) for name in ("io_uring_setup", "openat2")]
    modes = {"creat": 1, "mknod": 1, "mknodat": 2, "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
    rules += [(name, [(place, _ANY_BIT, bits, True)], errno.EPERM) for name, place in modes.items()]
    for name, flags in (("open", 1), ("openat", 2)):
        rules.append((name, [(flags, _ANY_BIT, _CREATES, True), (flags + 1, _ANY_BIT, bits, True)], errno.EPERM))
    return rules


def _rule(number: int, tests: Sequence[_Test], error: int) -> list[tuple[int, int, int, int]]:
    steps = [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, 2 * len(tests) + 1, number)]
    for place, (argument, comparison, value, wanted) in enumerate(tests):
        out = 2 * (len(tests) - place) - 1  # to what follows this rule
        steps += [
            (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
            (comparison, *((0, out) if wanted else (out, 0)), value),
        ]
    return [*steps, _refuse(error)]


def _refuse(error: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _REFUSE | error
