"""Settings and checks of the whole suite."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import leftovers, quick
from tests.amount import LONG

# What is drawn is the same in every run, so that a change is judged by what it changes. `make long` draws anew.
# How long an example takes is the machine's business.
SLOW = (HealthCheck.too_slow,)
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("anew", deadline=None, suppress_health_check=SLOW)
settings.load_profile("anew" if LONG else "same")


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a run that leaves processes behind, naming the tests that started them, and end them."""
    mark = leftovers.mark_run()
    yield
    left = leftovers.left_behind(mark, tmp_path_factory.getbasetemp())
    leftovers.end(left)
    assert not left, "\n  ".join(["processes outlived the tests that started them:", *left.values()])


@pytest.fixture(autouse=True)
def _quick_tests_are_in_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("quick") is None:
        yield
        return
    with quick.in_memory():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Ctrl-C interrupts, whatever a test before has made of it.

    A run in the background of a script is started with interrupts ignored, too, and so is everything that it starts.
    Tests of Ctrl-C would then wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


LONG_FILES = (
    "tests/soak/test_soak.py",
    "tests/test_pages.py",
    "tests/claims/test_environment.py",
    "tests/cli/test_stop.py",
    "tests/test_docs.py",
    "tests/cli/test_printed.py",
    "tests/local/",
)
"""Files that take a minute or more. Begun last, they would have one process work while the others are done."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, with how many for each reason: a line for each test would hide those that failed."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[-1]).removeprefix("Skipped: ") for report in skipped if report.longrepr)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make quick`, import only what may be quick: to collect the whole suite takes half as long as to run that."""
    is_left_out = config.option.markexpr == "quick" and collection_path.suffix == ".py"
    return True if is_left_out and not quick.is_quick(str(collection_path.relative_to(config.rootpath))) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if quick.is_quick(item.nodeid):
            item.add_marker("quick")
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))
