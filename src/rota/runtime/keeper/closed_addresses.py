"""Blocks addresses for all processes of a cgroup, by programs that the kernel runs for each packet and each connect.

The programs stay with the cgroup until it is removed, even after the keeper has ended. This takes root (CAP_BPF and
CAP_NET_ADMIN) and a kernel with CONFIG_CGROUP_BPF. Port 53 stays open, because the name server of some clouds is at
their metadata address.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import platform
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import NamedTuple

Nets = tuple[IPv4Network | IPv6Network, ...]

DNS_PORT = 53
_SYSCALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
_LOAD, _ATTACH = 5, 8
_ALLOW_MULTI = 2
_ATTRIBUTES_BYTES = 128
_SKB, _SOCK_ADDR = 8, 18
"""Types of programs: for packets, and for connects."""
_EGRESS, _CONNECT4, _CONNECT6 = 1, 10, 11
"""Hooks of a cgroup."""
_LOAD_BYTES = 26
"""The number of the kernel function that copies bytes of a packet to the stack."""
_ETH_IPV4, _ETH_IPV6 = 0x0800, 0x86DD
_SCRATCH, _ADDRESS = -8, -24
"""Offsets on the stack."""
_WORD = 0xFFFFFFFF
# Where the fields that are read lie in `__sk_buff` and in `bpf_sock_addr`.
_PROTOCOL, _IP4, _IP6, _PORT = 16, 4, 8, 24


class _Step(NamedTuple):
    """A BPF instruction. `to` is the label of its jump target; empty if it does not jump."""

    code: int
    to_register: int = 0
    from_register: int = 0
    offset: int = 0
    value: int = 0
    to: str = ""


class _Program:
    """BPF instructions with labels."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, to_register: int = 0, from_register: int = 0, offset: int = 0, value: int = 0) -> None:
        self._steps.append(_Step(code, to_register, from_register, offset, value))

    def jump(self, label: str) -> None:
        self._steps.append(_Step(0x05, to=label))

    def jump_if_equal(self, register: int, value: int, label: str) -> None:
        self.add(0xB4, 2, value=value)
        self._steps.append(_Step(0x1D, register, 2, to=label))

    def jump_unless_equal(self, register: int, value: int, label: str) -> None:
        self.add(0xB4, 2, value=value)
        self._steps.append(_Step(0x5D, register, 2, to=label))

    def label(self, name: str) -> None:
        self._labels[name] = len(self._steps)

    def returns(self, value: int) -> None:
        self.add(0xB7, 0, value=value)
        self.add(0x95)

    def packed(self) -> bytes:
        out = b""
        for at, step in enumerate(self._steps):
            offset = self._labels[step.to] - at - 1 if step.to else step.offset
            registers = step.to_register | step.from_register << 4
            out += struct.pack("=BBhI", step.code, registers, offset, step.value & _WORD)
        return out


def close(group: Path, nets: Nets) -> bool:
    """Block these addresses for the processes of a cgroup. Returns False if the kernel cannot."""
    try:
        loaded = _loaded(nets)
        descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for hook, program in loaded:
                _bpf(_ATTACH, struct.pack("=IIII", descriptor, program, hook, _ALLOW_MULTI))
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


@functools.lru_cache(maxsize=1)
def _loaded(nets: Nets) -> tuple[tuple[int, int], ...]:
    """Return the hooks with descriptors of their programs. They are loaded once and stay open."""
    loaded: list[tuple[int, int]] = []
    with contextlib.ExitStack() as undo:
        for kind, hook, code in _programs(nets):
            loaded.append((hook, _load(kind, hook, code)))
            undo.callback(os.close, loaded[-1][1])
        undo.pop_all()
    return tuple(loaded)


def _programs(nets: Nets) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, hook and code of each program.

    The packet program enforces the block. The connect programs only make a connect fail at once.
    """
    old = tuple(net for net in nets if isinstance(net, IPv4Network))
    # Addresses of IPv4 as a socket of IPv6 connects to them.
    mapped = tuple(IPv6Network((f"::ffff:{net.network_address}", 96 + net.prefixlen)) for net in old)
    new = (*(net for net in nets if isinstance(net, IPv6Network)), *mapped)
    yield _SKB, _EGRESS, _of_packets(old, new)
    yield _SOCK_ADDR, _CONNECT4, _of_connects(old, _IP4)
    yield _SOCK_ADDR, _CONNECT6, _of_connects(new, _IP6)


def _of_connects(nets: Sequence[IPv4Network | IPv6Network], address: int) -> bytes:
    made = _Program()
    made.add(0xBF, 6, 1)
    made.add(0x61, 1, 6, _PORT)
    made.add(0xDC, 1, value=16)
    made.jump_if_equal(1, DNS_PORT, "pass")
    _find(made, nets, lambda word: made.add(0x61, 1, 6, address + 4 * word), "drop")
    _end(made)
    return made.packed()


def _of_packets(old: Sequence[IPv4Network], new: Sequence[IPv6Network]) -> bytes:
    made = _Program()
    made.add(0xBF, 6, 1)
    made.add(0x61, 1, 6, _PROTOCOL)
    made.jump_if_equal(1, socket.htons(_ETH_IPV6), "ipv6")
    made.jump_unless_equal(1, socket.htons(_ETH_IPV4), "pass")

    _copy(made, _ADDRESS, 4, at=16)
    _find(made, old, lambda word: made.add(0x61, 1, 10, _ADDRESS + 4 * word), "ipv4 found")
    made.jump("pass")
    made.label("ipv4 found")
    _jump_unless_has_ports(made, at=9)
    # Behind the header, whose length it says itself.
    _copy(made, _SCRATCH, 1, at=0)
    made.add(0x71, 7, 10, _SCRATCH)
    made.add(0x54, 7, value=0x0F)
    made.add(0x64, 7, value=2)
    made.add(0x04, 7, value=2)
    _copy(made, _SCRATCH, 2, register=7)
    _jump_if_dns(made)
    made.jump("drop")

    made.label("ipv6")
    _copy(made, _ADDRESS, 16, at=24)
    _find(made, new, lambda word: made.add(0x61, 1, 10, _ADDRESS + 4 * word), "ipv6 found")
    made.jump("pass")
    made.label("ipv6 found")
    _jump_unless_has_ports(made, at=6)
    _copy(made, _SCRATCH, 2, at=42)
    _jump_if_dns(made)
    made.jump("drop")
    _end(made)
    return made.packed()


def _find(made: _Program, nets: Sequence[IPv4Network | IPv6Network], read: Callable[[int], None], found: str) -> None:
    """Jump to `found` if the address is in one of the nets. `read` loads a word of the address into register 1."""
    for index, net in enumerate(nets):
        following = f"{found} {index}"
        for word in range(net.max_prefixlen // 32):
            shift = net.max_prefixlen - 32 * (word + 1)
            mask, value = int(net.netmask) >> shift & _WORD, int(net.network_address) >> shift & _WORD
            if mask:
                read(word)
                made.add(0xDC, 1, value=32)
                made.add(0x54, 1, value=mask)
                made.jump_unless_equal(1, value, following)
        made.jump(found)
        made.label(following)


def _copy(made: _Program, place: int, length: int, *, at: int = 0, register: int | None = None) -> None:
    """Copy bytes of the packet to the stack. A packet that is too short is dropped."""
    made.add(0xBF, 1, 6)
    if register is None:
        made.add(0xB7, 2, value=at)
    else:
        made.add(0xBF, 2, register)
    made.add(0xBF, 3, 10)
    made.add(0x07, 3, value=place)
    made.add(0xB7, 4, value=length)
    made.add(0x85, value=_LOAD_BYTES)
    made.jump_unless_equal(0, 0, "drop")


def _jump_unless_has_ports(made: _Program, at: int) -> None:
    _copy(made, _SCRATCH, 1, at=at)
    made.add(0x71, 1, 10, _SCRATCH)
    made.jump_if_equal(1, socket.IPPROTO_TCP, f"ports {at}")
    made.jump_unless_equal(1, socket.IPPROTO_UDP, "drop")
    made.label(f"ports {at}")


def _jump_if_dns(made: _Program) -> None:
    made.add(0x69, 1, 10, _SCRATCH)
    made.add(0xDC, 1, value=16)
    made.jump_if_equal(1, DNS_PORT, "pass")


def _end(made: _Program) -> None:
    made.label("pass")
    made.returns(1)
    made.label("drop")
    made.returns(0)


def _load(kind: int, hook: int, code: bytes) -> int:
    text, license_ = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    places = ctypes.addressof(text), ctypes.addressof(license_)
    attributes = struct.pack("=IIQQIIQII16sII", kind, len(code) // 8, *places, 0, 0, 0, 0, 0, b"rota_closed", 0, hook)
    return _bpf(_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    if _SYSCALL is None:
        raise OSError(errno.ENOSYS, f"bpf is not known on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    result = _libc.syscall(_SYSCALL, command, buffer, _ATTRIBUTES_BYTES)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


_libc = ctypes.CDLL(None, use_errno=True)
