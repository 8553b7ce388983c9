"""By the network: out of an instance, to the host, and by what is fetched for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api.egress import Policy, written
from rota.runtime import composing, sandbox
from rota.runtime.containers import Containers
from rota.runtime.egress import PORT, program, proxy
from rota.runtime.egress.refusals import refusals
from rota.runtime.interface import Order, Refusal, Refused, Subject
from rota.runtime.local import LocalRuntime
from rota.runtime.places import Places
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.attacks.test_privileges import made, until_over
from tests.runtime.test_closed_addresses import offered
from tests.runtime_sandbox.conftest import Box, box, make_box
from tests.server.conftest import Server, served
from tests.until import until, until_async, until_so

__all__ = ["box", "make_box"]

SECONDS_MAX = 30
PYTHON = os.path.realpath(sys.executable)
ASKS = f"""
import socket, sys
def ask(what):
    with socket.create_connection(("127.0.0.1", {PORT}), 20) as proxy:
        proxy.sendall(what.encode())
        said = b""
        while data := proxy.recv(65536):
            said += data
    return said.decode()
"""
"""The code by which a tenant speaks with the proxy."""


class Web:
    """A server on the host's loopback that says the same to everybody."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    self.heard.append(client.recv(65536))
                    client.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine")

    def close(self) -> None:
        # What waits in `accept` does not notice that it is closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


def said_inside(box: Box, code: str, *targets: str) -> str:
    done = box.run(PYTHON, "-c", ASKS + code, network="egress", targets=[written(one) for one in targets])
    assert done.returncode == 0, done.stderr
    return done.stdout


def connecting(where: str) -> str:
    return f"print(ask('CONNECT {where} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n'))\n"


# Out of a sandbox.


def test_the_owner_reaches_what_is_on_the_list_with_usual_programs(box: Box, web: Web) -> None:
    code = f"""
import os, urllib.request
os.environ["no_proxy"] = ""
print(urllib.request.urlopen("http://127.0.0.1:{web.port}/here?x=1").read())
print(ask("CONNECT 127.0.0.1:{web.port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n"))
"""
    said = said_inside(box, code, f"127.0.0.1/32:{web.port}")
    assert said.count("fine") == 2
    assert web.heard[0].startswith(b"GET /here?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % web.port)
    assert web.heard[1] == b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize("network", ["none", "egress"])
@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "192.0.2.1"])
def test_to_reach_metadata_without_the_proxy(box: Box, network: str, address: str) -> None:
    code = f"import socket\ntry: socket.create_connection(({address!r}, 80), 5)\nexcept OSError as e: print(e)"
    done = box.run(PYTHON, "-c", code, network=network)
    assert "nreachable" in done.stdout or "Cannot assign" in done.stdout or "Invalid" in done.stdout, done


def test_to_reach_the_hosts_loopback_beside_the_proxy(box: Box, web: Web) -> None:
    code = f"import socket\ntry: socket.create_connection(('127.0.0.1', {web.port}), 5)\nexcept OSError as e: print(e)"
    assert "refused" in said_inside(box, code, "0.0.0.0/0", "::/0")
    assert web.heard == []


SPECIAL = [
    "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "localhost",
    "[::ffff:169.254.169.254]", "169.254.169.254", "[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "100.100.100.200",
    "224.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "LOCALHOST.",
]  # fmt: skip


def test_to_have_the_proxy_dial_the_host_or_metadata(box: Box, web: Web) -> None:
    """A list that has everything has none of those."""
    code = "".join(connecting(f"{host}:{web.port}") for host in SPECIAL)
    said = said_inside(box, code, "0.0.0.0/0", "::/0", "localhost", "*.localhost")
    assert said.count("HTTP/1.1 502 Bad Gateway") == len(SPECIAL), said
    assert web.heard == []


def test_to_learn_from_the_answer_what_is_there(box: Box, web: Web) -> None:
    """Refused by the list, not there, and not to be resolved: all the same inside, and told apart for the owner."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    asked = [f"127.0.0.1:{nobody}", f"127.0.0.2:{web.port}", "10.0.0.1:22", "name.invalid:80", "elsewhere.invalid:80"]
    said = said_inside(box, "".join(map(connecting, asked)), f"127.0.0.1/32:{nobody}", "name.invalid")
    answers = {answer for answer in said.split("HTTP/1.1 ") if answer.strip()}
    assert len(answers) == 1 and "502 Bad Gateway" in answers.pop()

    def last() -> tuple[Refusal, ...]:
        return refusals(box.folder / "scratch" / program.REFUSED).last

    until(lambda: len(last()) >= len(asked), last)  # The proxy is about to end.
    found = {one.host: one.why for one in last()}
    assert "cannot be reached" in found["127.0.0.1"]
    assert "loopback" in found["127.0.0.2"]
    assert (found["10.0.0.1"], found["elsewhere.invalid"]) == ("it is not on the list", "it is not on the list")
    assert found["name.invalid"] == "its name cannot be resolved"


def test_to_send_something_out_in_the_names_that_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names of the list are looked up, and what is dialled is what was checked."""
    from rota.api import egress

    asked: list[str] = []

    def looked_up(name: bytes, port: int, **_: Any) -> list[Any]:
        asked.append(name.decode())
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if len(asked) == 1 else "192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        one = proxy.Proxy(egress, [written("*.example.com:443"), written("192.0.2.0/24")], nothing)
        others = [("secret.attacker.test", 443), ("example.com", 443), ("a.example.com", 80), ("*.example.com", 443)]
        # Resolvers stop at a NUL, and older ones at a blank, and take what is before it for an address.
        others += [(f"10.0.0.1{each}.example.com", 443) for each in ("\0", "\t", "\n", " ", "/", "%x", "#", "@")]
        for host, port in others:
            with pytest.raises(proxy.Unreachable, match="not on the list"):
                one._addresses(host, port)
        assert asked == []
        # A name of the list that leads to the host.
        with pytest.raises(proxy.Unreachable, match="loopback"):
            one._addresses("A.Example.com.", 443)
        assert [str(each) for each in one._addresses("b.example.com", 443)] == ["192.0.2.1"]
        assert asked == ["a.example.com", "b.example.com"]
    finally:
        os.close(nothing)


BAD = [
    "GET / HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1:-1 HTTP/1.1\r\n\r\n",
    "CONNECT [::1:80 HTTP/1.1\r\n\r\n",
    "GET https://127.0.0.1/ HTTP/1.1\r\n\r\n",
    "GET file:///etc/passwd HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1/ HTTP/1.1\r\nno colon\r\n\r\n",
    "CONNECT \u00e4:80 HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1\0.example.com:80 HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1/\nX-Other:1 HTTP/1.1\r\n\r\n",
    "X" * (proxy.HEAD_BYTES_MAX + 1) + "\r\n\r\n",
]


def test_to_confuse_the_proxy(box: Box, web: Web) -> None:
    code = "".join(f"print(ask({one!r}))\n" for one in BAD) + connecting(f"127.0.0.1:{web.port}")
    said = said_inside(box, code, f"127.0.0.1/32:{web.port}")
    assert said.count("400 Bad Request") == len(BAD), said
    assert said.count("200 Connection established") == 1


def test_to_smuggle_headers_for_the_proxy_to_the_server(box: Box, web: Web) -> None:
    first = f"GET http://user:pw@127.0.0.1:{web.port}/a HTTP/1.1"
    others = ["Host: other", "Proxy-Authorization: x", "Connection: keep-alive", "X-Mine: 1"]
    head = "\r\n".join([first, *others, "", ""])
    assert "fine" in said_inside(box, f"print(ask({head!r}))", f"127.0.0.1/32:{web.port}")
    lines = web.heard[0].split(b"\r\n")
    assert lines[:2] == [b"GET /a HTTP/1.1", b"Host: 127.0.0.1:%d" % web.port]
    assert b"X-Mine: 1" in lines and b"Connection: close" in lines
    assert not [line for line in lines if line.lower().startswith((b"proxy", b"connection: keep"))]


def test_to_wear_the_proxy_out(box: Box, web: Web) -> None:
    """More connections than it takes wait; when some have ended, it goes on."""
    code = f"""
held = [socket.create_connection(("127.0.0.1", {PORT}), 20) for _ in range({proxy.CONNECTIONS_MAX + 20})]
for one in held: one.close()
{connecting(f"127.0.0.1:{web.port}")}
"""
    assert "200 Connection established" in said_inside(box, code, f"127.0.0.1/32:{web.port}")


def test_what_both_say_at_once_goes_both_ways() -> None:
    """More than fits anywhere, by two who read while they write; and each hears when the other has ended."""
    (client, inner), (outer, server) = socket.socketpair(), socket.socketpair()
    running = [threading.Thread(target=proxy.relay, args=(inner, outer), daemon=True)]
    amount = 3_000_000
    heard: dict[socket.socket, int] = {}

    def write(end: socket.socket) -> None:
        end.sendall(b"x" * amount)
        end.shutdown(socket.SHUT_WR)

    def read(end: socket.socket) -> None:
        heard[end] = sum(len(data) for data in iter(lambda: end.recv(65536), b""))

    def answer() -> None:
        """Begin to read when everything is written."""
        write(server)
        read(server)

    running += [threading.Thread(target=one, args=(client,), daemon=True) for one in (write, read)]
    running += [threading.Thread(target=answer, daemon=True)]
    with client, inner, outer, server:
        for each in running:
            each.start()
        for each in running:
            each.join(SECONDS_MAX)
        assert heard == {client: amount, server: amount}


def test_to_leave_the_proxy_behind(box: Box) -> None:
    with box.started("/bin/sh", "-c", "echo up; exec sleep 60", network="egress") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        mark = str(box.folder / "scratch")
        assert len(proxies(mark)) == 1
        if box.uid is not None:
            # It has nothing that the instance has not.
            status = Path(f"/proc/{proxies(mark)[0]}/status").read_text()
            assert f"\nUid:\t{box.uid}\t{box.uid}\t{box.uid}\t{box.uid}\n" in status
        process.kill()
        process.wait()
        until(lambda: not proxies(mark), lambda: f"proxies {proxies(mark)}")


def proxies(scratch: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace").split("\0")
            # Of one that has ended there is no line any more.
            if program.__file__ in line and any(word.startswith(scratch) for word in line):
                found.append(int(pid))
    return found


# By what is asked of the server.


def pool(**worker: Any) -> dict[str, Any]:
    return {"worker": {"type": "shell", **worker}, "replicas": 1}


@contextlib.asynccontextmanager
async def policed(home: Path, network: Any, *targets: str, **options: Any) -> AsyncIterator[tuple[Server, Deployer]]:
    policy = Policy(network, tuple(map(written, targets)))
    async with served(home, policy=policy, **options) as server:
        yield server, await deployer(server)


async def test_to_ask_for_more_network_than_the_server_gives(tmp_path: Path) -> None:
    async with policed(tmp_path / "home", "egress", "*.example.com:443", with_controllers=False) as (server, attacker):
        refused: dict[str, dict[str, Any]] = {
            "host": {"network": "host"},
            "wider": {"network": "egress", "egress": [{"host": "*.example.com"}]},
            "apex": {"network": "egress", "egress": [{"host": "example.com", "ports": [443]}]},
            "all": {"network": "egress", "egress": [{"cidr": "0.0.0.0/0"}]},
        }
        for name, worker in refused.items():
            reply = await made(server, "WorkerPool", name, pool(**worker), by=attacker)
            assert reply.status == 403 and "spec.worker." in reply.json["message"], (name, reply.json)
            task = {"command": ["id"], "worker": {"type": "shell", **worker}}
            assert (await made(server, "Task", name, task, by=attacker)).status == 403
            assert (await made(server, "WorkerPool", name, pool(**worker))).status == 201
        within: dict[str, Any] = {"network": "egress", "egress": [{"host": "*.api.example.com", "ports": [443]}]}
        for name, worker in {"within": within, "less": {"network": "none"}, "same": {"network": "egress"}}.items():
            assert (await made(server, "WorkerPool", name, pool(**worker), by=attacker)).status == 201
        # What an admin has given more network is an admin's to change.
        change = {"spec": {"worker": {"env": [{"name": "X", "value": "1"}]}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        patched = await attacker.ask("PATCH", f"{API}/{TENANT}/workerpools/host", change, headers=headers)
        assert patched.status == 403


async def test_to_have_an_egress_list_with_the_hosts_loopback(bare: Server, attacker: Deployer) -> None:
    for cidr in ("127.0.0.1/32", "127.0.0.0/8", "::1/128", "169.254.169.254/32", "fd00:ec2::254/128"):
        wanted = pool(network="egress", egress=[{"cidr": cidr}])
        name = f"p{abs(hash(cidr))}"
        assert (await made(bare, "WorkerPool", name, wanted, by=attacker)).status == 403
        assert (await made(bare, "WorkerPool", name, wanted)).status == 201


WRONG = [
    {"host": "127.0.0.1"}, {"host": "127.1"}, {"host": "a..b"}, {"host": "*"}, {"host": "a.*.b"}, {"host": "-x"},
    {"host": "x\ny"}, {"cidr": "10.0.0.1/8"}, {"cidr": "x"}, {"host": "a", "cidr": "10.0.0.0/8"}, {},
    {"host": "a", "ports": [0]}, {"host": "a", "ports": [70000]}, {"host": "a/b"}, {"host": "a:80"},
    # Of IPv6, and yet the loopback of IPv4.
    {"cidr": "::ffff:127.0.0.0/104"}, {"cidr": "64:ff9b::7f00:0/104"}, {"cidr": "2002:7f00::/24"},
]  # fmt: skip


async def test_to_write_an_egress_list_that_means_something_else(bare: Server) -> None:
    for entry in WRONG:
        reply = await made(bare, "WorkerPool", "wrong", pool(network="egress", egress=[entry]))
        assert reply.status in (400, 422), (entry, reply.status)
    lists = {"none": [{"host": "a"}], "host": [{"host": "a"}]}
    for network, egress in lists.items():
        assert (await made(bare, "WorkerPool", "wrong", pool(network=network, egress=egress))).status == 422


async def test_to_use_the_network_of_an_admins_pool(tmp_path: Path, web: Web) -> None:
    """And to have one's own, of before, when the server gives less."""
    async with policed(tmp_path / "home", "host") as (server, attacker):
        template = {"containers": [{"name": "main", "command": ["sleep", "100"]}], "network": "host"}
        mine = {"template": template, "replicas": 0}
        assert (await made(server, "WorkerPool", "before", mine, by=attacker)).status == 201
    async with policed(tmp_path / "home", "none") as (server, _):
        attacker = Deployer(server, attacker.token)
        assert (await made(server, "WorkerPool", "open", pool(network="host"))).status == 201
        task = {"command": ["id"], "workerPoolRef": {"name": "open"}}
        assert (await made(server, "Task", "sly", task, by=attacker)).status == 201
        status = await until_over(server, "sly")
        assert (status["phase"], status["reason"]) == ("Failed", "NotAllowed"), status
        assert "more network" in status["message"]
        assert (await made(server, "Task", "admins", task)).status == 201
        assert (await until_over(server, "admins"))["phase"] == "Succeeded"
        # What says nothing has none.
        dials = ["bash", "-c", f"echo > /dev/tcp/127.0.0.1/{web.port}"]
        assert (
            await made(server, "Task", "dials", {"command": dials, "worker": {"type": "shell"}}, by=attacker)
        ).status == 201
        assert (await until_over(server, "dials"))["phase"] == "Failed"
        assert web.heard == []
        scale = {"spec": {"replicas": 1}}
        patched = await server.ask(
            "PATCH",
            f"{API}/{TENANT}/workerpools/before",
            scale,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert patched.status == 200
        instance = await until_said(server, "before", "Programmed")
        assert instance["reason"] == "ConfigurationError" and "network none" in instance["message"]


async def until_said(server: Server, owner: str, condition: str) -> dict[str, Any]:
    """The first condition of this type, of an instance of an owner."""

    async def said() -> dict[str, Any] | None:
        for one in (await server.ask("GET", f"{API}/{TENANT}/instances")).json["items"]:
            owned = any(each["name"] == owner for each in one["metadata"].get("ownerReferences", ()))
            for each in one.get("status", {}).get("conditions", ()) if owned else ():
                if each["type"] == condition:
                    found: dict[str, Any] = each
                    return found
        return None

    found: dict[str, Any] = await until_async(said, f"no {condition} of {owner}")
    return found


async def test_a_task_of_a_tenant_goes_out_by_the_proxy_alone_and_its_owner_hears_what_was_refused(
    tmp_path: Path, web: Web
) -> None:
    async with policed(tmp_path / "home", "egress", f"127.0.0.1/32:{web.port}") as (server, attacker):
        script = f"""
            curl -sS --noproxy '' http://127.0.0.1:{web.port}/ && curl -sS --noproxy '' http://10.1.2.3:81/ &&
            ! curl -sS --noproxy '*' http://127.0.0.1:{web.port}/
        """
        assert (await made(server, "WorkerPool", "p", pool(), by=attacker)).status == 201
        task = {"command": ["bash", "-c", script], "workerPoolRef": {"name": "p"}}
        assert (await made(server, "Task", "t", task, by=attacker)).status == 201
        status = await until_over(server, "t")
        assert status["phase"] == "Succeeded", status
        confined = await until_said(server, "p", "NetworkConfined")
        assert (confined["status"], confined["reason"]) == ("True", "Egress")
        refusal = "10.1.2.3 port 81: it is not on the list"
        await until_async(lambda: told(server, refusal), f"not told: {refusal}")
    assert len(web.heard) == 1


async def told(server: Server, message: str) -> bool:
    found = (await server.ask("GET", f"/api/v1/namespaces/{TENANT}/events")).json["items"]
    return any(one["reason"] == "EgressRefused" and one["message"] == message for one in found)


async def test_what_has_the_hosts_network_says_so(tmp_path: Path) -> None:
    async with policed(tmp_path / "home", "host") as (server, attacker):
        assert (await made(server, "WorkerPool", "p", pool(), by=attacker)).status == 201
        found = await until_said(server, "p", "NetworkConfined")
        assert (found["status"], found["reason"]) == ("False", "HostNetwork")
        assert "169.254.0.0/16" in found["message"]
        assert ("which the kernel closes" in found["message"]) == (not offered() and sandbox.available().ok)
        # What an admin has made without isolation is the host's own, and has all of its network.
        assert (await made(server, "WorkerPool", "bare", pool(isolation="none"))).status == 201
        assert "included" in (await until_said(server, "bare", "NetworkConfined"))["message"]


KNOCKS = f"""{PYTHON} -c '
import errno, socket
for family, address in (
    (socket.AF_INET, "169.254.169.254"),
    (socket.AF_INET6, "::ffff:169.254.169.254"),
    (socket.AF_INET, "100.100.100.200"),
):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as one:
            one.settimeout(5)
            try:
                one.connect((address, 80))
            except OSError as error:
                print(errno.errorcode.get(error.errno, "timeout"))
            else:
                print("open")
'"""


@pytest.mark.skipif(offered() != "", reason=offered())
@pytest.mark.parametrize("way", ["program", "command beside it"])
async def test_to_reach_metadata_by_the_hosts_network(tmp_path: Path, way: str) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    subject = Subject("default", "one", "u1")
    script = KNOCKS if way == "program" else "true"
    async with LocalRuntime(tmp_path / "home") as runtime:
        try:
            run = await runtime.start(Order(subject, "main", 0, ("sh", "-c", f"{script}; exec sleep 1000"), {}))
            assert run.is_closed
            if way == "program":
                log = tmp_path / "home" / "instances"
                said = await until_async(lambda: lines_of(log, 6), lambda: list(log.rglob("*")))
            else:
                said = (await executed(runtime, subject, KNOCKS)).split()
            assert said == ["EPERM"] * 6
        finally:
            await runtime.shutdown()


def lines_of(folder: Path, count: int) -> list[str] | None:
    """The lines of the one log in a folder, when there are so many."""
    found = [path.read_text().split() for path in folder.rglob("*.log")]
    return found[0] if found and len(found[0]) >= count else None


async def test_the_proxy_goes_on_under_the_next_server(tmp_path: Path, web: Web) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    subject = Subject("default", "one", "u1")
    reaches = (f"127.0.0.1/32:{web.port}",)
    order = Order(subject, "main", 0, ("sleep", "1000"), {}, network="egress", egress=reaches)
    async with LocalRuntime(tmp_path / "home") as first:
        await first.start(order)
        assert "fine" in await executed(first, subject, f"curl -sS --noproxy '' http://127.0.0.1:{web.port}/")
    async with LocalRuntime(tmp_path / "home") as second:
        try:
            script = f"curl -sS --noproxy '' http://127.0.0.1:{web.port}/; curl -sS http://metadata.invalid/"
            assert "fine" in await executed(second, subject, script)
            refused = await until_async(lambda: second.refused(subject), "nothing was refused")
            assert [(one.host, one.port) for one in refused] == [("metadata.invalid", 80)]
        finally:
            await second.shutdown()
    await until_so(lambda: proxies(str(tmp_path)), lambda there: not there, "no proxies")


async def executed(runtime: LocalRuntime, subject: Subject, script: str) -> str:
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        running = await runtime.exec(
            subject, "main", ["sh", "-c", script], env={}, streams=(null, writing, writing), tty=False
        )
    finally:
        os.close(writing)
        os.close(null)
    with open(reading) as file:
        said = await asyncio.to_thread(file.read)
    await running.wait()
    return said


async def test_to_have_a_container_where_only_the_proxy_is_allowed(tmp_path: Path) -> None:
    order = Order(Subject("d", "n", "u"), "main", 0, (), {}, runtime="container", image="x", network="egress")
    with pytest.raises(Refused, match="a container has no proxy"):
        await Containers(Places(tmp_path)).command(order, lambda: None)


def test_to_have_no_proxy_where_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order = Order(Subject("d", "n", "u"), "main", 0, ("true",), {}, network="egress")
    monkeypatch.setattr(sandbox, "available", lambda: sandbox.Availability(False, "there is none"))
    with pytest.raises(Refused, match="takes a sandbox: there is none"):
        composing.is_sandboxed(order)
