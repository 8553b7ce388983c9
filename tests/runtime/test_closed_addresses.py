"""Addresses that are closed to a child, on the network that it shares with the host."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.keeper.client import KeeperError
from tests.runtime.homes import Home, exit_of

CLOSED = ("127.7.0.0/16", "::1/128")
REACHES = """
import errno, json, socket, sys

def said(family, kind, address, port, options=b""):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        if options:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        try:
            if kind == socket.SOCK_STREAM:
                one.connect((address, port))
            else:
                one.sendto(b"x", (address, port))
        except OSError as error:
            return errno.errorcode[error.errno]
        return "sent"

port, there = int(sys.argv[1]), {}
for family, address in (
    (socket.AF_INET, "127.7.1.2"),
    (socket.AF_INET, "127.8.1.2"),
    (socket.AF_INET6, "::1"),
    (socket.AF_INET6, "::ffff:127.7.1.2"),
    (socket.AF_INET6, "::ffff:127.8.1.2"),
):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        there[f"{kind.name[5:]} {address}"] = said(family, kind, address, port)
there["options"] = said(socket.AF_INET, socket.SOCK_DGRAM, "127.7.1.2", port, b"\\1" * 8)
there["options dns"] = said(socket.AF_INET, socket.SOCK_DGRAM, "127.7.1.2", 53, b"\\1" * 8)
there["dns"] = said(socket.AF_INET, socket.SOCK_DGRAM, "127.7.1.2", 53)
there["dns 6"] = said(socket.AF_INET6, socket.SOCK_DGRAM, "::1", 53)
print(json.dumps(there))
"""


def offered() -> str:
    """Return why this host cannot close addresses; empty if it can: found out without Rota's own code."""
    if os.geteuid() != 0:
        return "it takes root"
    if not any(line.split()[2] == "cgroup2" for line in Path("/proc/mounts").read_text().splitlines()):
        return "there is no cgroup version 2"
    if not Path("/proc/sys/kernel/unprivileged_bpf_disabled").exists():
        return "the kernel has no bpf"
    bounding = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    mask = int(bounding.split()[1], 16)
    return "" if mask >> 12 & 1 and mask >> 39 & 1 else "it takes CAP_NET_ADMIN and CAP_BPF"


async def reached(home: Home, **more: Any) -> tuple[bool, dict[str, str]]:
    """Start a child. Returns whether its record calls addresses closed, and its attempts at this machine's own."""
    script = home.path / "script.py"
    script.write_text(REACHES)
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        async with home.keeper() as keeper:
            record = await home.start(keeper, "a", f"exec {sys.executable} -I {script} {port}", **more)
            await exit_of(keeper, "a")
    return record.closed, json.loads(home.log("a").read_text())


@pytest.mark.skipif(offered() != "", reason=offered())
async def test_what_is_closed_is_reached_by_no_protocol_and_everything_else_is(home: Home) -> None:
    is_closed, there = await reached(home, closed=CLOSED)
    assert is_closed
    open_ = {"STREAM 127.8.1.2", "DGRAM 127.8.1.2", "STREAM ::ffff:127.8.1.2", "DGRAM ::ffff:127.8.1.2"}
    assert {name for name, said in there.items() if said == "sent"} == {*open_, "dns", "options dns", "dns 6"}
    assert {said for name, said in there.items() if said != "sent"} == {"EPERM"}


async def test_nothing_is_closed_without_a_word(home: Home) -> None:
    is_closed, there = await reached(home)
    assert not is_closed
    assert there["STREAM 127.7.1.2"] == there["DGRAM 127.7.1.2"] == there["options"] == "sent"


@pytest.mark.parametrize("closed", [("127.0.0.1/33",), ("nowhere",), ("127.0.0.1/8",), ("::1",) * 17])
async def test_what_is_no_range_is_refused(home: Home, closed: tuple[str, ...]) -> None:
    async with home.keeper() as keeper:
        with pytest.raises(KeeperError, match="closed: "):
            await home.start(keeper, "a", "true", closed=closed)


async def test_where_nothing_can_be_closed_the_record_says_so(tmp_path: Path) -> None:
    home = Home(tmp_path, tree="sweep")
    async with home.keeper() as keeper:
        try:
            record = await home.start(keeper, "a", "true", closed=CLOSED)
            assert not record.closed
            await exit_of(keeper, "a")
        finally:
            await keeper.shutdown(grace_seconds=0)
