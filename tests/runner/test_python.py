"""Python functions in warm interpreters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.runner import interpreters as module
from rota.runtime.runner.attempt import CALL_TRIES_MAX
from rota.runtime.runner.box import BoxLost
from rota.runtime.runner.interpreters import Interpreter, Interpreters
from rota.runtime.runner.jobs import Outcome
from tests.runner.boxes import Bench, in_a_sandbox, in_both, plain
from tests.until import until_async

MODULE = """
import asyncio, ctypes, json, logging, os, signal, subprocess, sys, threading, time

LOADED = time.time_ns()
logging.basicConfig(stream=sys.stderr, format="log: %(message)s", force=True)
calls = 0

def count(*_):
    global calls
    calls += 1
    return calls

def pid():
    return os.getpid()

def give(*args):
    return list(args)

def environment(*names):
    return [os.environ.get(name) for name in names]

def wait():
    print("begun")
    time.sleep(1000)

def tidy():
    try:
        print("begun")
        time.sleep(1000)
    finally:
        print("tidied")

def deaf():
    print("begun")
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
"""


FILES_OF_A_PROCESS = 3
"""Files below /proc that are kept open for each."""


def interpreters(bench: Bench) -> list[int]:
    return [pid for pid, command in bench.below().items() if "interpreter_program.py" in command]


async def ready(bench: Bench) -> None:
    bench.write("work.py", MODULE)


def value(outcome: Outcome) -> Any:
    assert outcome.reason == "Succeeded", outcome
    return json.loads(outcome.result)


@in_both
async def test_a_function_gets_its_arguments_and_its_result_is_json(bench: Bench) -> None:
    await ready(bench)
    outcome = await bench.call("work:give", "1", '{"a": [true]}', "text", '"1"', "")
    assert value(outcome) == [1, {"a": [True]}, "text", "1", ""]
    assert (outcome.exit_code, outcome.message) == (0, "")


@in_both
async def test_what_is_loaded_stays_loaded(bench: Bench) -> None:
    await ready(bench)
    assert [value(await bench.call("work:count")) for _ in range(3)] == [1, 2, 3]


@in_both
async def test_its_output_is_the_jobs_in_the_order_in_which_it_was_written(bench: Bench) -> None:
    bench.write(
        "loud.py",
        "import ctypes, logging, os, subprocess, sys\n"
        "logging.basicConfig(stream=sys.stderr, format='log %(message)s')\n"
        "def say(n):\n"
        "    print('one', n); print('two', file=sys.stderr); os.write(1, b'three\\n')\n"
        "    subprocess.run(['echo', 'four']); logging.warning('five'); ctypes.CDLL(None).puts(b'six')\n",
    )
    for number in range(2):
        log = bench.log.with_name(f"log-{number}")
        assert value(await bench.call("loud:say", str(number), log=str(log))) is None
        assert log.read_text().split("\n") == [f"one {number}", "two", "three", "four", "log five", "six", ""]


@in_both
async def test_what_it_says_is_in_the_log_while_it_runs(bench: Bench) -> None:
    await ready(bench)
    job = bench.job("work:wait", kind="python")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: bench.said() == "begun\n")
    bench.executor.cancel(job.id, 1)
    assert (await running).reason == "Cancelled"


@in_both
async def test_marks_count_but_what_it_returns_is_its_result(bench: Bench) -> None:
    bench.write("m.py", "def f(x):\n    print('::rota output a=b\\n::rota result marked')\n    return x\n")
    outcome = await bench.call("m:f", "7")
    assert (outcome.outputs, outcome.result) == ({"a": "b"}, "7")
    assert (await bench.call("m:f", "null")).result == "marked"


@in_both
async def test_its_input_is_what_was_given_each_time(bench: Bench) -> None:
    bench.write("m.py", "import sys\ndef f():\n    return sys.stdin.read()\n")
    for text in ("ü" * 200_000, "", "second"):
        assert (await bench.call("m:f", stdin=text)).reason == ("Failed" if len(text) > 1000 else "Succeeded")
    assert value(await bench.call("m:f", stdin="third")) == "third"


@in_both
async def test_its_environment_is_its_own_and_what_it_changes_is_restored(bench: Bench) -> None:
    await ready(bench)
    bench.write(
        "change.py", "import os\ndef f():\n    os.environ['OWN'] = 'x'; os.environ.pop('OF_THE_BOX'); os.chdir('/')\n"
    )
    assert value(await bench.call("work:environment", "KEY", "OF_THE_BOX", env={"KEY": "one"})) == ["one", "box"]
    assert value(await bench.call("change:f")) is None
    assert value(await bench.call("work:environment", "KEY", "OF_THE_BOX", "OWN")) == [None, "box", None]


@in_both
async def test_it_runs_in_its_tree_and_finds_its_modules_there_first(bench: Bench) -> None:
    bench.write("json.py", "raise SystemExit('never: it is loaded already')")
    bench.write("colorsys.py", "MINE = True")
    bench.write("m.py", "import colorsys, os, sys\ndef f():\n    return [os.getcwd(), sys.path[0], colorsys.MINE]\n")
    assert value(await bench.call("m:f")) == [bench.inside_tree, bench.inside_tree, True]
    assert sorted(path.name for path in bench.tree.iterdir()) == ["colorsys.py", "json.py", "m.py"]


@in_both
async def test_a_method_and_a_coroutine_can_be_called(bench: Bench) -> None:
    bench.write(
        "m.py",
        "import asyncio\nclass C:\n    @staticmethod\n"
        "    async def f(x):\n        await asyncio.sleep(0)\n        return x\n",
    )
    assert value(await bench.call("m:C.f", "5")) == 5


FAILURES = {
    "raise ValueError('no\\nway')": ("ValueError: no\nway", 1),
    "raise ValueError('\\ud800')": ("ValueError: ?", 1),
    "class E(Exception):\n        def __str__(self): 1/0\n    raise E": ("m.f.<locals>.E: <exception str() failed>", 1),
    "e = KeyError('x'); e.add_note('note'); raise e": ("KeyError: 'x'", 1),
    "import no_such_module": ("ModuleNotFoundError: No module named 'no_such_module'", 1),
    "sys.exit(3)": ("SystemExit: 3", 3),
    "sys.exit('why')": ("why", 1),
    "raise KeyboardInterrupt": ("KeyboardInterrupt", 1),
    "raise MemoryError": ("MemoryError", 1),
    "f()": ("RecursionError: maximum recursion depth exceeded", 1),
    "return {1, 2}": ("what m:f returns is not JSON: Object of type set is not JSON serializable", 1),
    "return float('nan')": ("what m:f returns is not JSON: Out of range float values are not JSON compliant", 1),
    "x = []; x.append(x); return x": ("what m:f returns is not JSON: Circular reference detected", 1),
    "return 'x' * 70000": ("what m:f returns has 70002 bytes; at most 65536", 1),
    "os._exit(5)": ("the interpreter ended with exit code 5 before the call returned", 5),
    "os._exit(0)": ("the interpreter ended with exit code 0 before the call returned", 0),
    "os.kill(os.getpid(), 9)": ("the interpreter ended by SIGKILL before the call returned", 137),
    "ctypes.string_at(0)": ("the interpreter ended by SIGSEGV before the call returned", 139),
    "os.closerange(3, 100)": ("the interpreter ended with exit code 70 before the call returned", 70),
}


@in_both
async def test_every_way_to_fail_is_told_and_the_next_call_is_as_any_other(bench: Bench) -> None:
    await ready(bench)
    for number, (body, (message, code)) in enumerate(FAILURES.items()):
        bench.write("m.py", f"import ctypes, os, sys\ndef f():\n    {body}\n" + "#" * number)
        outcome = await bench.call("m:f")
        assert outcome.reason == "Failed", (body, outcome)
        assert outcome.exit_code == code and outcome.message.startswith(message), (body, outcome)
        assert value(await bench.call("work:give", "1")) == [1], body


@in_both
async def test_a_traceback_is_in_the_log_and_shows_what_is_the_callers(bench: Bench) -> None:
    bench.write("m.py", "def f():\n    g()\ndef g():\n    raise ValueError('no')\n")
    await bench.call("m:f")
    lines = bench.said().splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: no"
    assert "interpreter_program.py" not in bench.said() and bench.said().count('m.py", line') == 2


@in_both
async def test_what_cannot_be_found_is_told(bench: Bench) -> None:
    await ready(bench)
    bench.write("wrong.py", "def f(:\n")
    for target, message in {
        "nowhere:f": "ModuleNotFoundError: No module named 'nowhere'",
        "work:nothing": "AttributeError: module 'work' has no attribute 'nothing'",
        "work:LOADED": "TypeError: work:LOADED is int, which cannot be called",
        "wrong:f": "SyntaxError: invalid syntax",
        "work:pid": "TypeError: pid() takes 0 positional arguments but 1 was given",
    }.items():
        outcome = await bench.call(target, *(("1",) if target == "work:pid" else ()))
        assert (outcome.reason, outcome.message.splitlines()[0][:70]) == ("Failed", message[:70])


@in_both
async def test_to_exit_without_an_error_is_to_succeed(bench: Bench) -> None:
    bench.write("m.py", "import sys\ndef f():\n    sys.exit()\n")
    assert value(await bench.call("m:f")) is None


# What it leaves.


@in_both
async def test_the_interpreter_outlives_a_job_and_nothing_else_does(bench: Bench) -> None:
    bench.write(
        "m.py",
        "import os, subprocess\n"
        "def f():\n"
        "    subprocess.Popen(['sleep', '1000'])\n"
        "    subprocess.run('setsid sleep 1000 & setsid sleep 1000 &', shell=True)\n"
        "    if os.fork() == 0:\n"
        "        while True: os.read(0, 1) or os.sched_yield()\n"
        "    return os.getpid()\n",
    )
    first = value(await bench.call("m:f"))
    await until_async(lambda: len(interpreters(bench)) == 2)
    before = bench.below()
    assert value(await bench.call("m:f")) == first
    assert bench.below() == before and not any("sleep" in command for command in before.values())


@in_both
async def test_a_fork_that_comes_back_from_the_call_is_not_another_interpreter(bench: Bench) -> None:
    bench.write("m.py", "import os\ndef f():\n    return [os.getpid(), os.fork()]\n")
    pid, child = value(await bench.call("m:f"))
    assert child != 0
    again, _ = value(await bench.call("m:f"))
    assert again == pid


@in_both
async def test_an_interpreter_with_threads_left_is_not_used_again(bench: Bench) -> None:
    await ready(bench)
    bench.write(
        "m.py",
        "import os, threading\ndef f():\n"
        "    threading.Thread(target=threading.Event().wait).start()\n    return os.getpid()\n",
    )
    first = value(await bench.call("m:f"))
    assert value(await bench.call("work:pid")) != first


@plain
async def test_an_interpreter_that_has_grown_is_not_used_again(bench: Bench) -> None:
    await ready(bench)
    bench.write("m.py", "import os\nkept = []\ndef f():\n    kept.append(b'x' * 300_000_000)\n    return os.getpid()\n")
    first = value(await bench.call("m:f"))
    assert value(await bench.call("work:pid")) != first


@plain
async def test_an_interpreter_is_not_used_for_ever_and_the_next_one_is_ready(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr(module, "CALLS_MAX", 3)
    await ready(bench)
    await bench.executor.warm(bench.box)
    pids = [value(await bench.call("work:pid")) for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    await until_async(lambda: len(interpreters(bench)) == 2)


@plain
async def test_the_next_one_has_loaded_what_comes_from_elsewhere_and_not_what_is_of_the_tree(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr(module, "CALLS_MAX", 1)
    bench.write("other.py", "")
    bench.write(
        "m.py",
        "import sys\nbefore = set(sys.modules)\nimport decimal, other, xml.dom\n"
        "def f():\n    return sorted({'decimal', 'other', 'xml'} & before)\n",
    )
    assert value(await bench.call("m:f")) == []
    warm, preparing = bench.executor._interpreters, bench.executor._preparing
    assert warm is not None and preparing is not None
    await preparing
    await until_async(lambda: all(one.is_warm for one in warm._all))
    assert value(await bench.call("m:f")) == ["decimal", "xml"]


@plain
async def test_the_next_one_is_not_waited_for_when_it_does_not_come_to_an_end_with_what_it_loads(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr(module, "CALLS_MAX", 1)
    pytest.MonkeyPatch().setattr(module, "WARM_SECONDS_MAX", 0.0)
    (bench.home / "slow.py").write_text("import os, time\nwhile 'KEY' not in os.environ: time.sleep(0.01)\n")
    bench.write("m.py", f"import sys\nsys.path.append({bench.inside_home!r})\nimport slow\ndef f():\n    return 1\n")
    async with asyncio.timeout(30):
        for _ in range(4):
            assert value(await bench.call("m:f", env={"KEY": "x"})) == 1


@in_both
async def test_code_that_has_changed_is_loaded_anew(bench: Bench) -> None:
    bench.write("m.py", "import other\ndef f():\n    return other.X\n")
    bench.write("other.py", "X = 1\n")
    assert value(await bench.call("m:f")) == 1
    bench.write("other.py", "X = 2\n")
    assert value(await bench.call("m:f")) == 2
    bench.write("new.py", "def f():\n    return 3\n")
    assert value(await bench.call("new:f")) == 3


@in_both
async def test_code_that_a_call_changes_is_loaded_anew_by_the_next(bench: Bench) -> None:
    bench.write("m.py", "def f():\n    open('m.py', 'w').write('def f():\\n    return 2\\n')\n    return 1\n").chmod(
        0o666
    )
    assert [value(await bench.call("m:f")) for _ in range(3)] == [1, 2, 2]


@plain
async def test_another_tree_has_its_own_modules(bench: Bench) -> None:
    other = bench.home / "other"
    other.mkdir()
    bench.write("m.py", "def f():\n    return 1\n")
    (other / "m.py").write_text("def f():\n    return 2\n")
    assert value(await bench.call("m:f")) == 1
    assert value(await bench.call("m:f", cwd=str(other))) == 2
    assert value(await bench.call("m:f")) == 1


@plain
async def test_an_alarm_of_one_call_is_not_for_the_next(bench: Bench) -> None:
    await ready(bench)
    bench.write("m.py", "import signal\ndef f():\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n")
    await bench.call("m:f")
    bench.write("s.py", "import time\ndef f():\n    time.sleep(0.1)\n")
    assert value(await bench.call("s:f")) is None


@plain
async def test_streams_that_a_call_closes_are_there_for_the_next(bench: Bench) -> None:
    bench.write(
        "m.py",
        "import os, sys\ndef f():\n    print('said'); sys.stdout.close()\n"
        "    sys.stderr.close(); sys.stdin.close(); os.close(1); os.close(0)\n",
    )
    for _ in range(3):
        await bench.call("m:f")
    assert bench.said() == "said\n" * 3


@plain
async def test_output_that_is_kept_open_is_not_waited_for(bench: Bench) -> None:
    bench.write(
        "m.py",
        "import os\nkept = []\ndef f():\n    kept.append(os.dup(1))\n"
        "    return [os.write(one, b'x') for one in kept[-1:]]\n",
    )
    async with asyncio.timeout(10):
        assert [value(await bench.call("m:f")) for _ in range(3)] == [[1], [1], [1]]


# When it is made to end, or ends.


@in_both
async def test_a_call_that_is_cancelled_can_tidy_up(bench: Bench) -> None:
    await ready(bench)
    job = bench.job("work:tidy", kind="python")
    running = asyncio.create_task(bench.do(job))
    await until_async(lambda: "begun" in bench.said())
    bench.executor.cancel(job.id, 5)
    outcome = await running
    assert (outcome.reason, outcome.exit_code) == ("Cancelled", 143) and bench.said() == "begun\ntidied\n"
    assert value(await bench.call("work:give")) == []


@in_both
async def test_a_call_that_hangs_is_ended_and_its_interpreter_replaced(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr("rota.runtime.runner.stopping.GRACE_SECONDS", 0.1)
    await ready(bench)
    first = value(await bench.call("work:pid"))
    outcome = await bench.call("work:deaf", timeout_seconds=0.2)
    assert outcome.reason == "Timeout" and "begun" in outcome.message
    assert value(await bench.call("work:pid")) != first


@in_both
async def test_an_interpreter_that_was_killed_while_idle_is_replaced(bench: Bench) -> None:
    await ready(bench)
    await bench.call("work:pid")
    await until_async(lambda: len(interpreters(bench)) == 2)
    killed = interpreters(bench)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await until_async(lambda: all(map(has_ended, killed)))
    assert value(await bench.call("work:give", "1")) == [1]


def has_ended(pid: int) -> bool:
    """Return whether a process has let go of its sockets. One that is about to has no command line any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@in_both
async def test_a_call_is_tried_again_when_its_interpreter_is_killed_as_it_starts(bench: Bench) -> None:
    await ready(bench)
    with killed_as_they_start(1):
        assert value(await bench.call("work:give", "1")) == [1]


@in_both
async def test_a_call_is_not_tried_for_ever(bench: Bench) -> None:
    await ready(bench)
    with killed_as_they_start(100 * CALL_TRIES_MAX):
        outcome = await bench.call("work:give", "1")
    assert outcome.message == "the interpreter ended by SIGKILL before the call returned"


@contextmanager
def killed_as_they_start(count: int) -> Iterator[None]:
    """Have the first interpreters end before they can be called."""
    start, program, left = Interpreters._start, module.PROGRAM, count

    async def started(self: Interpreters, libraries: list[str]) -> Interpreter:
        nonlocal left
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "PROGRAM", "import os; os.kill(os.getpid(), 9)" if left > 0 else program)
            left -= 1
            return await start(self, libraries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Interpreters, "_start", started)
        yield


@in_both
async def test_what_a_call_says_in_its_interpreters_name_is_not_believed(bench: Bench) -> None:
    await ready(bench)
    for rubbish in ("b'\\xff' * 100", "b'\\0\\0\\0\\x02{]'", 'b\'\\0\\0\\0\\x0a{"call":""}\''):
        bench.write(
            "m.py",
            f"import os\ndef f():\n    [os.write(n, {rubbish}) for n in range(3, 10) if 'socket' in link(n)]\n"
            "    return 1\ndef link(n):\n"
            "    try: return os.readlink(f'/proc/self/fd/{n}')\n    except OSError: return ''\n",
        )
        outcome = await bench.call("m:f")
        assert (outcome.reason, outcome.message) == (
            "Failed",
            "the interpreter sent a message that is not understood",
        ), rubbish
        assert value(await bench.call("work:give", "1")) == [1]


@in_both
async def test_a_box_that_is_lost_in_a_call_is_a_lost_job(bench: Bench) -> None:
    await ready(bench)
    running = asyncio.create_task(bench.call("work:wait"))
    await until_async(lambda: "begun" in bench.said())
    os.kill(bench.agent(), signal.SIGKILL)
    with pytest.raises(BoxLost):
        await running
    assert [one.reason for one in bench.journal.pending()] == ["WorkerLost"]
    bench.box = bench.new_box()
    await bench.box.start()
    assert value(await bench.call("work:give", "1")) == [1]


@in_both
async def test_commands_and_calls_take_turns_and_the_interpreter_stays(bench: Bench) -> None:
    await ready(bench)
    first = value(await bench.call("work:pid"))
    assert (await bench.sh("(setsid sleep 1000 &); echo x")).reason == "Succeeded"
    assert value(await bench.call("work:pid")) == first
    assert (await bench.sh("sleep 1000", timeout_seconds=0.1)).reason == "Timeout"
    assert value(await bench.call("work:pid")) == first


@in_a_sandbox
async def test_an_interpreter_has_no_descriptor_of_the_host_but_its_socket(bench: Bench) -> None:
    bench.write(
        "m.py",
        "import os\ndef f():\n"
        "    return sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0]"
        " for n in os.listdir('/proc/self/fd')[:-1])\n",
    )
    found = value(await bench.call("m:f"))
    # The library by which Python calls C may keep itself open, and the interpreter how large it is.
    own = ("/libffi.so", "/statm")
    assert [one for one in found if not any(name in one for name in own)] == [
        "/dev/null",
        "/dev/null",
        "pipe",
        "pipe",
        "socket",
    ]


@in_both
async def test_many_calls_leave_no_descriptor_and_no_memory(bench: Bench) -> None:
    pytest.MonkeyPatch().setattr(module, "CALLS_MAX", 40)
    await ready(bench)
    for _ in range(50):
        await bench.call("work:give", "1")
    await until_async(lambda: len(interpreters(bench)) == 2)
    descriptors, memory = len(os.listdir("/proc/self/fd")), _resident()
    for _ in range(250):
        bench.journal.acknowledged((await bench.call("work:give", "1")).id)
    assert _resident() - memory < 8_000_000
    await until_async(lambda: len(interpreters(bench)) == 2)
    # Files of processes are kept open, and closed at the next look when a process has ended: two may just have.
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * FILES_OF_A_PROCESS


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


KEEPS = """
import os
kept = []
def keep(): kept.append(os.dup(1)); return os.getpid()
def late():
    for one in kept: os.write(one, b"late")
    return os.getpid()
def opens(): kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(100)); return os.getpid()
def opens_one(): kept.append(os.open(os.devnull, os.O_RDONLY)); return os.getpid()
"""


@in_both
async def test_an_interpreter_whose_call_holds_its_output_open_is_not_used_again(bench: Bench) -> None:
    bench.write("keeps.py", KEEPS)
    first = value(await bench.call("keeps:keep"))
    assert value(await bench.call("keeps:late")) != first and bench.said() == ""


@plain
async def test_an_interpreter_with_many_descriptors_is_not_used_again(bench: Bench) -> None:
    bench.write("keeps.py", KEEPS)
    first = value(await bench.call("keeps:opens_one"))
    assert value(await bench.call("keeps:opens")) == first
    assert value(await bench.call("keeps:late")) != first


@in_both
async def test_what_is_written_between_two_calls_is_in_no_log(bench: Bench) -> None:
    await ready(bench)
    await bench.call("work:pid")
    capture = bench.executor._capture
    assert capture is not None
    os.write(capture.writing, b"late")
    log = bench.log.with_name("next.log")
    bench.write("says.py", "def f(): print('its own')")
    assert (await bench.call("says:f", log=str(log))).reason == "Succeeded"
    assert log.read_text() == "its own\n" and bench.said() == ""


@in_both
async def test_calls_share_a_pipe_and_each_has_its_own_log(bench: Bench) -> None:
    bench.write("says.py", "def f(x): print(x)")
    pipes = set()
    for name in ("a", "b", "c"):
        await bench.call("says:f", name, log=str(bench.log.with_name(name)))
        pipes.add(id(bench.executor._capture))
    assert [bench.log.with_name(name).read_text() for name in ("a", "b", "c")] == ["a\n", "b\n", "c\n"]
    assert len(pipes) == 1


@in_both
async def test_a_job_that_writes_nothing_has_no_log(bench: Bench) -> None:
    await ready(bench)
    assert (await bench.sh("true")).reason == "Succeeded" and not bench.log.exists()
