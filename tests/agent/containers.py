"""Containers of which the static agent is the first process, with their runner outside, as in a pod."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path

from rota.runtime.container import Engine
from rota.runtime.runner.agent_socket import AgentSocket
from rota.runtime.runner.connected_box import ConnectedBox
from tests.agent.programs import program
from tests.runtime_container.conftest import podman
from tests.until import until_async

UID = 1000
SECONDS_MAX = 60.0
APPLETS = (
    "cat",
    "chmod",
    "echo",
    "grep",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "renice",
    "rm",
    "seq",
    "setsid",
    "sh",
    "sleep",
    "touch",
)
IMPOSTER = """
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
/* Says at the socket of a runner that it is the agent, and keeps what it is sent. */
int main(int count, char **arguments) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char room[4096];
    strcpy(address.sun_path, arguments[1]);
    int got = open(arguments[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (got < 0 || write(got, "begun\\n", 6) != 6)
        return 1;
    for (;; usleep(100)) {
        int one = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(one, (struct sockaddr *)&address, sizeof address) == 0) {
            static const char hello[26] = "\\0\\0\\0\\x16{\\"ready\\":1,\\"uid\\":1000}";
            if (write(got, "connected\\n", 10) != 10 || write(one, hello, sizeof hello) != sizeof hello)
                return 1;
            for (ssize_t length; (length = read(one, room, sizeof room)) > 0;)
                if (write(got, room, length) != length)
                    return 1;
        }
        close(one);
    }
}
"""

# No process of it ends by itself, whatever room there is for another: a shell would, when it cannot fork.
STORM = """
#include <sched.h>
#include <unistd.h>
int main(void) { for (;;) if (fork() < 0) sched_yield(); }
"""

LEAVER = """
#include <fcntl.h>
#include <mqueue.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
/* Leaves what outlives it. None of it can be read by anybody. */
int main(void) {
    int ok = 1;
    for (int number = 0; number < 3; number++)
        ok = ok && shmget(IPC_PRIVATE, 4096, 0) >= 0 && msgget(IPC_PRIVATE, 0) >= 0 && semget(IPC_PRIVATE, 2, 0) >= 0;
    return !ok || mq_open("/left", O_RDWR | O_CREAT, 0, 0) < 0;
}
"""


def image(engine: Engine, files: dict[str, Path], links: dict[str, str]) -> str:
    """Make an image with these files, and nothing else."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, path in files.items():
            tar.add(path, name)
        for name, to in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, to
            tar.addfile(link)
        name = f"localhost/rota-test-{uuid.uuid4().hex}"
        # No two share a layer: one that is being removed would take it from one that is being made.
        own = tarfile.TarInfo("own")
        own.size = len(name)
        tar.addfile(own, io.BytesIO(name.encode()))
    podman(engine, "import", "--quiet", "-", name, content=content.getvalue())
    return name


def with_a_shell(engine: Engine) -> str:
    busybox = Path(os.path.realpath(shutil.which("busybox") or ""))
    return image(engine, {"bin/busybox": busybox}, {f"bin/{applet}": "busybox" for applet in APPLETS})


def with_the_agent(engine: Engine) -> str:
    """Make the image of an init container: its only file is the agent."""
    return image(engine, {"agent": program("c")}, {})


class Pod:
    """A container, the folder that it shares with its runner, and the runner's end of it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.name = f"rota-test-{uuid.uuid4().hex}"
        folder.chmod(0o755)
        self.shared, self.storage, self.private = folder / "rota", folder / "storage", folder / "private"
        for each in (self.shared, self.storage, self.private):
            each.mkdir()
        os.chown(self.storage, UID, UID)
        self.agents = self.new_runner()

    def new_runner(self) -> AgentSocket:
        return AgentSocket(self.shared / "agent.sock", self.private / "key")

    def install(self, of_the_agent: str) -> None:
        """As an init container does, which has no shell to copy with."""
        self._run("--rm", f"--volume={self.shared}:/rota", of_the_agent, "/agent", "--install", "/rota/agent")

    def start(self, image: str, uid: int = UID) -> None:
        self._run(
            *("--detach", f"--name={self.name}", f"--user={uid}:{uid}", "--cap-drop=all", "--read-only"),
            *("--network=none", "--pids-limit=500", "--env=PATH=/bin", "--workdir=/"),
            *(f"--volume={self.shared}:/rota:ro", f"--volume={self.storage}:/storage", image),
            *("/rota/agent", "--connect", "/rota/agent.sock", "--runner", str(os.getuid())),
            *("--empty", "/dev/shm", "--empty", "/dev/mqueue", "--empty", "/nowhere", "--empty-ipc"),
        )

    def again(self) -> None:
        """As a kubelet starts a container that has ended."""
        podman(self.engine, "start", self.name)

    def kill(self, signal: str) -> None:
        podman(self.engine, "kill", f"--signal={signal}", self.name)

    def enter(self, *argv: str) -> None:
        podman(self.engine, "exec", "--detach", self.name, *argv)

    def first(self) -> int:
        return int(podman(self.engine, "inspect", "--format={{.State.Pid}}", self.name))

    def exit_code(self) -> int:
        return int(podman(self.engine, "wait", self.name))

    def add(self, source: str) -> str:
        """Compile a program for what runs in the container. Return where it is there."""
        target = self.storage / f"program-{len(os.listdir(self.storage))}"
        argv = ["cc", "-static", "-x", "c", "-", "-o", str(target)]
        subprocess.run(argv, input=source.encode(), check=True, timeout=SECONDS_MAX)
        return f"/storage/{target.name}"

    def close(self) -> None:
        self.agents.close()
        podman(self.engine, "rm", "--force", "--ignore", "--time=0", self.name)

    def _run(self, *arguments: str) -> None:
        podman(self.engine, "run", *self.engine.facts.run_options, *arguments)


def processes_with(first: int) -> list[int]:
    """Return all processes in the namespace of one, as the host sees them."""
    namespace = os.stat(f"/proc/{first}/ns/pid").st_ino
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}/ns/pid").st_ino == namespace:
                found.append(int(name))
        except OSError:
            continue
    return found


async def appears(path: Path) -> None:
    await until_async(path.exists, f"{path.name} has not appeared")


async def sh(box: ConnectedBox, script: str) -> tuple[int, str]:
    """Return the exit code of a script, and what it wrote to the pipe that it was passed."""
    return await said(box, "sh", "-c", script)


async def said(box: ConnectedBox, *argv: str) -> tuple[int, str]:
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    _, command = await box.run(argv, env={}, cwd="/", streams=(nothing, writing, writing))
    code = await command.ended
    os.set_blocking(reading, False)
    os.close(writing)
    os.close(nothing)
    with open(reading, "rb") as file:
        return code, (file.read() or b"").decode()
