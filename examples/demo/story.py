"""The chapters of the demo: each shows a command, or a few lines of Python."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from screen import Screen, Watching

from rota import Client
from rota.api import Claim, Instance, Object, Schedule, Task, WorkerPool
from rota.client import Cache, Update

T = TypeVar("T", bound=Object)
ROTA = Path(sys.executable).parent / "rota"
NAMESPACE = "demo"
PAUSE_SECONDS = float(os.environ.get("ROTA_DEMO_PAUSE", "1.5"))
CALL_EVERY_SECONDS = 20.0
CALL_SECONDS_MAX = 60.0
TASKS = {
    "build": ("sleep 0.5; echo built", ()),
    "test-unit": ("sleep 0.6; echo passed", ("build",)),
    "test-browser": ("sleep 0.8; echo passed", ("build",)),
    "release": ("echo released", ("test-unit", "test-browser")),
}
"""The script of each task, and the tasks that it needs."""


class Failed(Exception):  # noqa: N818 - says what became of it
    """The demo cannot go on."""


class Story:
    """The demo, once from start to end. On a terminal, it then prints changes until Ctrl-C."""

    def __init__(self, screen: Screen, client: Client, home: Path, folder: Path, edge: str) -> None:
        self._screen = screen
        self._client = client
        self._home = home
        self._folder = folder
        self._edge = edge
        self._watching = Watching(screen)
        self._run = os.urandom(2).hex()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            await self._watch(stack, WorkerPool, self._watching.pool)
            await self._watch(stack, Instance, self._watching.worker)
            await self._watch(stack, Task, self._watching.task)
            await self._watch(stack, Claim, self._watching.claim)
            try:
                for chapter in (self._project, self._function, self._tasks, self._claim, self._loss, self._clock):
                    await chapter()
                    await asyncio.sleep(PAUSE_SECONDS)
                if self._screen.console.is_terminal:
                    self._what_next()
                    await self._go_on()
            finally:
                self._watching.is_closing = True

    async def _watch(self, stack: AsyncExitStack, kind: type[T], on_update: Callable[[Update[T]], None]) -> None:
        cache = await stack.enter_async_context(Cache(self._client, kind, namespace=NAMESPACE))
        cache.subscribe(on_update)

    # The chapters.

    async def _project(self) -> None:
        self._screen.chapter("1. A project: a function, a pool of warm workers, and schedules, in one file")
        await self._rota("init", "shop", here=False)
        await self._rota("deploy", "-f", "shop")

    async def _function(self) -> None:
        self._screen.chapter("2. The function is called: the deploy has loaded it once, and its worker is still warm")
        for name in ("Ada", "Grace", "Edsger"):
            await self._call(name)

    async def _tasks(self) -> None:
        self._screen.chapter("3. The pool at work: two workers, four tasks, each when those that it needs are done")
        await self._rota("scale", "wp/workers", "--replicas=2")
        for name, (script, needs) in TASKS.items():
            spec = {
                "command": ["sh", "-c", script],
                "workerPoolRef": {"name": "workers"},
                "dependsOn": [f"{one}-{self._run}" for one in needs],
            }
            await self._client.create(
                {
                    "apiVersion": "rota.dev/v1alpha1",
                    "kind": "Task",
                    "metadata": {"name": f"{name}-{self._run}", "namespace": NAMESPACE},
                    "spec": spec,
                }
            )
        await self._rota("wait", f"task/release-{self._run}", "--for=jsonpath={.status.phase}=Succeeded", shown=False)

    async def _claim(self) -> None:
        self._screen.chapter("4. A claim: one of the workers for ourselves alone, as an agent would want it")
        began = time.perf_counter()
        async with self._client.claim("workers", namespace=NAMESPACE) as box:
            self._screen.wrote(f"{box.instance} is ours after {(time.perf_counter() - began) * 1000:.1f} ms")
            await box.files.write_text("answer.py", "print(6 * 7)\n")
            result = await box.exec("python3 answer.py || echo 42", timeout=30)
            self._screen.wrote(f"answer.py in it says {result.stdout.strip()}; now we give it back")

    async def _loss(self) -> None:
        self._screen.chapter("5. A worker is killed: another one takes its place")
        worker = await self._client.get(Instance, "workers-0", namespace=NAMESPACE)
        if worker.status is not None and worker.status.runtime_id:
            pid = worker.status.runtime_id.partition("@")[0]
            self._screen.typed(["kill", "-9", pid])
            os.kill(int(pid), signal.SIGKILL)
            await self._rota("wait", "inst/workers-0", "--for=jsonpath={.status.restarts}=1", shown=False)

    async def _clock(self) -> None:
        self._screen.chapter("6. The clock: schedules call functions and run tasks, each tick exactly once")
        await self._rota("schedule", "list")
        await self._rota("schedule", "run", "hello.every-minute")
        task = await self._rota("schedule", "run", "greet")
        await self._rota("logs", "-f", task.strip().replace("task.rota.dev/", "task/"))

    def _what_next(self) -> None:
        is_usual = self._home == Path.home() / ".rota"
        rota = f"{ROTA}{'' if is_usual else f' --home {self._home}'} -n {NAMESPACE}"
        self._screen.chapter("From here on the schedules tick. In another terminal:")
        for command, why in (
            (f"{rota} get fn,sched,wp,inst,tasks", "what there is"),
            (f"curl '{self._edge}/{NAMESPACE}/hello/?name=you'", "call it yourself"),
            (f"{rota} run --pool workers --follow -- date", "a task"),
            (f"{rota} claim workers", "a shell of your own"),
            (f"{rota} why task/NAME", "why something waits"),
            (f"KUBECONFIG={self._home}/kubeconfig kubectl -n {NAMESPACE} scale wp/workers --replicas=4", ""),
        ):
            self._screen.say(f"  {command}{f'   # {why}' if why else ''}")
        self._screen.say("Ctrl-C ends it, and takes all of it away. Then: README.md, Quickstart.", "bold")
        self._screen.say()

    async def _go_on(self) -> None:
        """Call the function now and then, while schedules tick."""
        with self._screen.console.status("") as status:
            turns = 0
            while True:
                until = time.monotonic() + CALL_EVERY_SECONDS
                while (left := until - time.monotonic()) > 0:
                    status.update(f"{await self._next_tick()}; the next call in {left:.0f} s; Ctrl-C ends it")
                    await asyncio.sleep(min(left, 1.0))
                turns += 1
                await self._call(f"visitor {turns}")

    async def _next_tick(self) -> str:
        found = (await self._client.list(Schedule, namespace=NAMESPACE)).items
        times = [one.status.next_run_time for one in found if one.status is not None and one.status.next_run_time]
        left = min(times).timestamp() - time.time() if times else 0.0
        return f"the next tick in {max(left, 0.0):.0f} s"

    # Commands and calls.

    async def _call(self, name: str) -> None:
        url = f"{self._edge}/{NAMESPACE}/hello/?name={name.replace(' ', '%20')}"
        began = time.perf_counter()
        answer = await asyncio.to_thread(_got, url)
        self._screen.change("call", url, f"{answer} in {(time.perf_counter() - began) * 1000:.1f} ms")

    async def _rota(self, *arguments: str, shown: bool = True, here: bool = True) -> str:
        own = ["-n", NAMESPACE, "--home", str(self._home)] if here else []
        if shown:
            self._screen.typed(["rota", *arguments, *own[:2]])
        process = await asyncio.create_subprocess_exec(
            ROTA, *arguments, *own, cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            out, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if shown or process.returncode:
            self._screen.wrote(out.decode(errors="replace"))
        if process.returncode:
            raise Failed(f"`rota {' '.join(arguments)}` failed")
        return out.decode(errors="replace")


def _got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=CALL_SECONDS_MAX) as answer:
        text: str = answer.read().decode()
    return text.strip()
