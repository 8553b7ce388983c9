"""The system calls that a sandbox refuses, as a classic BPF program.

A sandbox has no capabilities; the filter refuses dangerous calls that need none. In a user namespace of its own a
process would have every capability again. Key rings, the machine's virtual sockets and io_uring are not separated by
any namespace. Programs of another architecture (32 bit) do not run.

Memory that no process has mapped is counted for nobody without a cgroup: segments and semaphore sets of System V are
held small, as a namespace has a bounded number of them, and memfd_secret is refused.

Everything that a process holds must be visible from outside. A Landlock rule keeps a file without a name, descriptor or
mapping, so that its space cannot be attributed. Contexts of asynchronous I/O have one limit for the whole machine.

Calls newer than this list fail with ENOSYS, as on an older kernel.
"""

from __future__ import annotations

import errno
import platform
import struct

CLONE_NEWUSER = 0x10000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_VSOCK = 40
X32_BIT = 0x40000000
NEWEST = 466
"""The newest system call that this filter knows, on both architectures: removexattrat."""
SEGMENT_BYTES_MAX = 64 * 1024
"""The largest segment of shared memory. The kernel allows a namespace 4096 of them."""
SEMAPHORES_MAX = 256
"""The most semaphores of a set. The kernel allows a namespace 32,000 sets."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_1, _ARGUMENT_1_HIGH = 0, 4, 16, 24, 28
_ANY = 0xFFFFFFFF
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Each call, and its number on x86_64 and on aarch64.
_NUMBERS = {
    "unshare": (272, 97), "clone": (56, 220), "clone3": (435, 435), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "open_by_handle_at": (304, 265),
    "memfd_secret": (447, 447),
    "landlock_create_ruleset": (444, 444), "io_setup": (206, 0),
    "ioctl": (16, 29), "socket": (41, 198), "shmget": (29, 194), "semget": (64, 190),
}  # fmt: skip
_ABSENT = ("clone3", "landlock_create_ruleset", "io_setup")
"""Calls that fail with ENOSYS, so that programs use others. The flags of clone3 are in memory, where a filter cannot
read them: the C library then uses clone.
"""
_CONDITIONAL = ("unshare", "clone", "ioctl", "socket", "shmget", "semget")

Instruction = tuple[int, int, int, int]


def supported() -> bool:
    return platform.machine() in AUDIT_ARCHITECTURE


def program(machine: str, *, is_last: bool = True) -> bytes:
    """Return the filter for an architecture, in the form that bubblewrap reads.

    `is_last`: False if the stage follows, which enters a user namespace and installs another filter.
    """
    column = list(AUDIT_ARCHITECTURE).index(machine)
    number = {name: numbers[column] for name, numbers in _NUMBERS.items()}
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURE[machine]),
        _refuse(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, X32_BIT),
        _refuse(errno.EPERM),
        (_AT_LEAST, 0, 1, NEWEST + 1),
        _refuse(errno.ENOSYS),
    ]
    for name in _NUMBERS:
        if name not in _CONDITIONAL:
            code += [(_EQUAL, 0, 1, number[name]), _refuse(errno.ENOSYS if name in _ABSENT else errno.EPERM)]
    for name in ("unshare", "clone") if is_last else ("clone",):
        code += _when(number[name], (_ARGUMENT_0, _ANY_BIT, CLONE_NEWUSER))
    code += _when(number["ioctl"], (_ARGUMENT_1, _EQUAL, TIOCSTI), (_ARGUMENT_1, _EQUAL, TIOCLINUX))
    code += _when(number["socket"], (_ARGUMENT_0, _EQUAL, AF_VSOCK))
    # With EINVAL, as the kernel answers a size beyond its own settings.
    too_large = (_ARGUMENT_1_HIGH, _ANY_BIT, _ANY), (_ARGUMENT_1, _AT_LEAST, SEGMENT_BYTES_MAX + 1)
    code += _when(number["shmget"], *too_large, code=errno.EINVAL)
    code += _when(number["semget"], (_ARGUMENT_1, _AT_LEAST, SEMAPHORES_MAX + 1), code=errno.EINVAL)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _refuse(code: int) -> Instruction:
    return (_RETURN, 0, 0, _REFUSE | code)


def _when(number: int, *tests: tuple[int, int, int], code: int = errno.EPERM) -> list[Instruction]:
    """Refuse a call when one of the tests holds, else allow it. Each test is of one argument."""
    body: list[Instruction] = []
    for argument, operation, operand in tests:
        body += [(_LOAD, 0, 0, argument), (operation, 0, 1, operand), _refuse(code)]
    body.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(body), number), *body]
