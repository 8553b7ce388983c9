"""Files over the gateway: one meaning, however an instance is kept apart."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import tarfile
import threading
from io import BytesIO
from urllib.parse import unquote_to_bytes

import pytest

from rota.trees.bounds import ENTRIES_MAX, FILE_BYTES_MAX
from tests.files.conftest import WAYS, Farm, read
from tests.until import until

pytestmark = pytest.mark.parametrize("way", WAYS)


def test_what_is_written_is_read_with_its_mode(farm: Farm, way: str) -> None:
    written = farm.put(way, "made/below/file", b"some\0bytes", mode="750")
    assert written.status == 200 and written.json["size"] == 10
    found = farm.get(way, "made/below/file")
    assert (found.body, found.headers["rota-mode"], found.headers["rota-length"]) == (b"some\0bytes", "0750", "10")
    assert farm.shell(way, "cat made/below/file | tr -d '\\0'") == "somebytes"


def test_a_part_of_a_file_is_read(farm: Farm, way: str) -> None:
    farm.put(way, "digits", b"0123456789")
    assert farm.get(way, "digits", offset="3", limit="4").body == b"3456"
    assert farm.get(way, "digits", offset="8").body == b"89"
    assert farm.get(way, "digits", offset="99").body == b""


def test_a_large_file_arrives_whole_both_ways(farm: Farm, way: str) -> None:
    content = os.urandom(20 * 1024 * 1024)
    assert farm.put(way, "large", content).status == 200
    assert farm.shell(way, "sha256sum large").split()[0] == hashlib.sha256(content).hexdigest()
    assert farm.get(way, "large").body == content


def test_a_folder_is_listed_with_what_each_thing_is(farm: Farm, way: str) -> None:
    farm.shell(
        way,
        "mkdir -p shown/sub; printf abc > shown/file; chmod 640 shown/file; ln -s file shown/link; mkfifo shown/pipe",
    )
    entries = {one["name"]: one for one in farm.get(way, "shown").json["entries"]}
    assert {name: one["type"] for name, one in entries.items()} == {
        "file": "file",
        "link": "link",
        "pipe": "other",
        "sub": "directory",
    }
    assert (entries["file"]["size"], entries["file"]["mode"], entries["link"]["target"]) == (3, "0640", "file")


def test_stat_says_what_a_path_leads_to(farm: Farm, way: str) -> None:
    farm.shell(way, "mkdir -p there; ln -sfn there to-there")
    assert farm.get(way, "to-there", stat="true").json["type"] == "directory"
    assert farm.get(way, "nowhere", stat="true").status == 404


def test_a_folder_of_many_is_listed_up_to_the_bound_and_says_so(farm: Farm, way: str) -> None:
    farm.shell(way, f"mkdir -p many; cd many; seq 1 {ENTRIES_MAX + 500} | xargs touch")
    listed = farm.get(way, "many").json
    assert len(listed["entries"]) == ENTRIES_MAX and listed["truncated"] is True
    assert farm.ask("DELETE", way, "many", recursive="true").status == 200


@pytest.mark.parametrize("name", ["new\nline", "ünïcödé", "sp ace", "-dash", "quo'te\"", b"not\xfftext", "a" * 255])
def test_any_name_is_written_listed_and_read(farm: Farm, way: str, name: str | bytes) -> None:
    raw = name if isinstance(name, bytes) else name.encode()
    assert farm.put(way, b"names/" + raw, b"x").status == 200
    entries = farm.get(way, "names").json["entries"]
    assert raw in [
        unquote_to_bytes(one["nameEncoded"]) if "nameEncoded" in one else one["name"].encode() for one in entries
    ]
    assert farm.get(way, b"names/" + raw).body == b"x"


def test_files_links_and_folders_are_removed(farm: Farm, way: str) -> None:
    farm.shell(way, "mkdir -p gone/full empty; touch gone/full/file gone/kept; ln -s kept gone/link")
    assert farm.ask("DELETE", way, "gone/link").status == 200
    assert farm.get(way, "gone/kept").status == 200
    full = farm.ask("DELETE", way, "gone")
    assert (full.status, full.json["reason"]) == (409, "Conflict")
    assert farm.ask("DELETE", way, "gone", recursive="true").status == 200
    assert farm.ask("DELETE", way, "empty").status == 200
    assert farm.ask("DELETE", way, "gone").status == 404


def test_a_tree_goes_out_and_in_again(farm: Farm, way: str) -> None:
    farm.shell(
        way,
        "mkdir -p tree/a/b; echo one > tree/a/b/one; echo two > tree/two; ln -s a/b/one tree/link; chmod 700 tree/two",
    )
    packed = farm.ask("GET", way, "tree", what="archive")
    with tarfile.open(fileobj=BytesIO(packed.body)) as tar:
        assert sorted(tar.getnames()) == ["a", "a/b", "a/b/one", "link", "two"]
    assert farm.ask("PUT", way, "copy/of", packed.body, what="archive").json["members"] == 5
    assert farm.shell(way, "cat copy/of/a/b/one copy/of/link; stat -c %a copy/of/two") == "one\none\n700\n"


def test_writers_of_one_file_leave_one_of_their_contents_whole(farm: Farm, way: str) -> None:
    contents = [bytes([number]) * 300_000 for number in range(6)]
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda one=one: statuses.append(farm.put(way, "fought/over", one).status))
        for one in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    assert farm.get(way, "fought/over").body in contents
    assert farm.shell(way, "ls -A fought") == "over\n"


# What is refused.


@pytest.mark.parametrize(
    ("path", "more", "status", "said"),
    [
        ("", {}, 400, "path: say which"),
        ("a\0b", {}, 400, "no zero byte"),
        ("x" * 5000, {}, 400, "at most 4096 bytes"),
        ("x" * 300, {}, 400, "too long"),
        ("none", {"offset": "-1"}, 400, "offset: '-1' is no number"),
        ("none", {"container": "other"}, 400, "there are"),
        ("none", {}, 404, "none: no such file"),
        ("/etc/passwd/below", {}, 400, "not a directory"),
    ],
    ids=range(8),
)
def test_what_is_wrong_is_said(farm: Farm, way: str, path: str, more: dict[str, str], status: int, said: str) -> None:
    if path.startswith("/etc"):
        farm.put(way, "plain", b"")
        path = "plain/below"
    answer = farm.get(way, path, **more)
    assert answer.status == status and said in answer.json["message"], answer.json


def test_a_folder_is_no_file_to_write(farm: Farm, way: str) -> None:
    farm.shell(way, "mkdir -p folder")
    assert farm.put(way, "folder", b"").json["message"] == "folder: is a directory"
    assert farm.get(way, "plain-file-that-is-not-there/", list="true").status == 404


def test_a_body_that_says_that_it_is_too_large_is_not_even_asked_for(farm: Farm, way: str) -> None:
    head = f"PUT {farm.target(way, 'files', 'huge')} HTTP/1.1\r\nHost: localhost\r\n"
    with farm.connect() as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {FILE_BYTES_MAX + 1}\r\n\r\n".encode())
        answer = read(connection)
    assert answer.status == 413 and str(FILE_BYTES_MAX) in answer.json["message"]


def test_a_file_that_is_too_large_is_refused_before_a_byte(farm: Farm, way: str) -> None:
    farm.shell(way, f"truncate -s {FILE_BYTES_MAX + 1} hole")
    assert farm.get(way, "hole").status == 413
    assert farm.get(way, "hole", offset=str(FILE_BYTES_MAX), limit="1").body == b"\0"
    assert farm.ask("GET", way, "hole", what="archive").status == 413
    farm.shell(way, "rm hole")


def test_what_is_no_file_is_not_read_and_holds_nobody_up(farm: Farm, way: str) -> None:
    farm.shell(way, "rm -f pipe; mkfifo pipe")
    assert farm.get(way, "pipe").status == 400
    assert farm.ask("GET", way, "pipe", what="archive").status == 400
    assert farm.put(way, "pipe", b"replaced").status == 200
    assert farm.get(way, "pipe").body == b"replaced"


def test_a_file_that_may_not_be_read_is_named(farm: Farm, way: str) -> None:
    if way == "bare" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    farm.shell(way, "mkdir -p shut; touch shut/fine shut/secret; chmod 0 shut/secret")
    one, tree = farm.get(way, "shut/secret"), farm.ask("GET", way, "shut", what="archive")
    assert (one.status, tree.status) == (403, 403)
    assert "secret: permission denied" in one.json["message"] and "secret" in tree.json["message"]


def test_a_method_that_is_not_there_is_refused(farm: Farm, way: str) -> None:
    assert farm.ask("DELETE", way, "x", what="archive").status == 405


# Clients that go.


def test_a_client_that_goes_while_it_writes_leaves_nothing(farm: Farm, way: str) -> None:
    farm.shell(way, "rm -rf cut; mkdir cut; echo before > cut/file")
    head = f"PUT {farm.target(way, 'files', 'cut/file')} HTTP/1.1\r\nHost: localhost\r\n"
    with farm.connect() as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b"x" * 1_000_000)
        until(farm.programs)
    until(lambda: not farm.programs())
    assert farm.shell(way, "ls -A cut; cat cut/file") == "file\nbefore\n"


def test_a_client_that_goes_while_it_unpacks_leaves_no_half_of_a_file(farm: Farm, way: str) -> None:
    farm.shell(way, "rm -rf half; mkdir half")
    info = tarfile.TarInfo("big")
    info.size = 9_000_000
    head = f"PUT {farm.target(way, 'archive', 'half')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
    with farm.connect() as connection:
        connection.sendall(head.encode() + info.tobuf() + b"x" * 1_000_000)
        until(farm.programs)
    until(lambda: not farm.programs())
    assert farm.shell(way, "ls -A half") == ""


def test_a_client_that_goes_while_it_reads_leaves_no_process(farm: Farm, way: str) -> None:
    farm.shell(way, "head -c 30000000 /dev/zero > long")
    with farm.connect() as connection:
        connection.sendall(f"GET {farm.target(way, 'files', 'long')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert connection.recv(1000)
        until(farm.programs)
    until(lambda: not farm.programs())


def test_a_client_that_sends_no_more_than_is_taken_is_held_back(farm: Farm, way: str) -> None:
    """The body is never in memory: a program that is stopped stops its client."""
    head = f"PUT {farm.target(way, 'files', 'held')} HTTP/1.1\r\nHost: localhost\r\n"
    size = 64 * 1024 * 1024
    with farm.connect() as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {size}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        [*programs] = until(farm.programs)
        for pid in programs:
            os.kill(int(pid), signal.SIGSTOP)
        connection.settimeout(1)
        sent = sent_until_held_back(connection, size)
        assert sent < 8 * 1024 * 1024
        for pid in programs:
            os.kill(int(pid), signal.SIGCONT)
    until(lambda: not farm.programs())


def sent_until_held_back(connection: socket.socket, size: int) -> int:
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < size:
            sent += connection.send(b"x" * 65536)
    return sent
