"""Tests in a process of their own: what they start is all that is below them, and what they kill is theirs alone."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import traceback
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest

from rota.runtime.runner.agent import PR_SET_CHILD_SUBREAPER

P = ParamSpec("P")
SECONDS_MAX = 60
READ_BYTES = 65536


def apart(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test as a runner runs: it ends everything below its process, so that must not be the whole suite's."""

    @functools.wraps(test)
    def in_a_fork(*arguments: P.args, **named: P.kwargs) -> None:
        said, saying = os.pipe()
        with warnings.catch_warnings():
            # The fork uses none of the threads that are left from other tests.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(said)
            _run(saying, lambda: test(*arguments, **named))
        os.close(saying)
        with open(said, "rb") as file:
            trouble = file.read().decode(errors="replace")
        _, status = os.waitpid(pid, 0)
        if status or trouble:
            pytest.fail(trouble or f"the process ended with {os.waitstatus_to_exitcode(status)}", pytrace=False)

    return in_a_fork


def _run(saying: int, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.run(asyncio.wait_for(test(), SECONDS_MAX))
        code = 0
    except BaseException:
        os.write(saying, traceback.format_exc().encode()[-READ_BYTES:])
    finally:
        os._exit(code)
