"""The documentation is complete and says what the code says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from rota.cli.app import COMMANDS
from tests.local.place import processes_of
from tests.server.live import Live

ROOT = Path(__file__).parent.parent


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_the_kinds_is_up_to_date() -> None:
    module = generator()
    assert module.KINDS_PAGE.read_text() == module.kinds_page(), "run `make docs`"


def test_the_reference_of_the_commands_is_up_to_date() -> None:
    module = generator()
    assert module.CLI_PAGE.read_text() == module.cli_page(), "run `make docs`"


def test_the_number_of_attacks_that_were_tried_is_up_to_date() -> None:
    module = generator()
    assert module.SECURITY_PAGE.read_text() == module.security_page(), "run `make docs`"


def test_every_command_argument_and_flag_says_what_it_is() -> None:
    for command in generator().commands():
        assert command.help.endswith("."), command.name
        for name, text in [*command.arguments, *((o.flags, o.help) for o in (*command.options, *command.shared))]:
            assert text.strip().endswith("."), f"{command.name} {name}"


def test_every_command_has_its_section() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    listed = [name for name in COMMANDS if f"### rota {name}" in page]
    assert listed == [*COMMANDS]


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        broken += [f"{page.relative_to(ROOT)} -> {t}" for t in targets if not (page.parent / t).exists()]
    assert not broken


def test_every_package_opens_with_its_contract() -> None:
    for package in ("api", "store", "registry", "client", "manifest", "server", "cli"):
        text = (ROOT / "src" / "rota" / package / "__init__.py").read_text()
        assert text.startswith('"""') and len(text.split('"""')[1]) > 200, package


def test_the_quickstart_runs_as_written(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "first.py").write_text(program)
    runs = [
        subprocess.run([sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [run.count("there is agents-") for run in runs] == [1, 2]
    assert "Clean 1" in runs[0] and "generation 2" in runs[0]


def test_the_example_shows_what_it_says() -> None:
    run = subprocess.run([sys.executable, ROOT / "examples" / "objects.py"], capture_output=True, text=True, check=True)
    assert "watch: agents: replicas=5 generation=2" in run.stdout
    assert "refused: Apply failed with 1 conflict" in run.stdout
    assert "still there: WorkerPool ['agents']" in run.stdout


TOLD = (
    "Rota is ready at https://",
    "WorkerPool/demo/workers created",
    '{"message": "Hello, Ada!"}',
    ": Succeeded on workers-",
    ": Bound, workers-",
    ": Released, workers-",
    "is started again (1)",
    "tick   hello.every-minute: Succeeded on hello-",
)
"""The lines of the demo, in this order."""
DEMO_SECONDS_MAX = 100


def demo(home: Path, out: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "ROTA_HOME": str(home), "ROTA_DEMO_PAUSE": "0.1", "COLUMNS": "200"},
    )


def assert_over(process: subprocess.Popen[str], home: Path) -> None:
    """Assert that the demo ended by itself with 0, and so did its server and all that it ran."""
    try:
        assert process.wait(DEMO_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
    assert not (home / "rota.sock").exists() and processes_of(home) == []


def test_the_demo_tells_its_story_ends_with_0_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        for sign in (*TOLD, "everything that the demo made is ended and taken away; the server's home, "):
            assert any(sign in line for line in lines), sign
        assert_over(process, tmp_path)


def test_on_a_terminal_the_demo_goes_on_until_it_is_ended(tmp_path: Path) -> None:
    terminal, end = os.openpty()
    process = demo(tmp_path, out=end)
    os.close(end)
    shown, is_told = b"", False
    with contextlib.suppress(OSError):  # A terminal whose other end is closed cannot be read.
        while data := os.read(terminal, 65536):
            shown += data
            if b"In another terminal:" in shown and b"the next tick in" in shown and not is_told:
                is_told = True
                process.terminate()
    os.close(terminal)
    assert_over(process, tmp_path)
    assert b"Ctrl-C ends it, and takes all of it away" in shown
    assert b"taken away; the server's home, " in shown and str(tmp_path).encode() in shown


def test_the_demo_says_what_to_do_when_it_cannot_have_a_server(tmp_path: Path) -> None:
    (tmp_path / "rota.db").write_bytes(b"no database\n" * 1000)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo", "--port", "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "ROTA_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1 and "restore a backup, or move the file away" in done.stderr
    assert "To see it in a home of its own: ROTA_HOME=" in done.stdout


def test_the_demo_takes_away_no_namespace_of_anybody_else(tmp_path: Path) -> None:
    server = Live(tmp_path, "--no-controllers")
    try:
        server.kubectl("create", "namespace", "demo")
    finally:
        server.end()
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo", "--port", "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "ROTA_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1 and "there is a namespace demo that is not the demo's" in done.stderr
    server = Live(tmp_path, "--no-controllers")
    try:
        assert "Active" in server.kubectl("get", "namespace", "demo")
    finally:
        server.end()


def test_the_agents_of_the_example_do_all_their_tasks(tmp_path: Path) -> None:
    server = Live(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "agents" / "start.py"],
            capture_output=True,
            text=True,
            env={**os.environ, "ROTA_HOME": str(tmp_path)},
            check=False,
        )
    finally:
        server.end()
    assert done.returncode == 0 and "all 20 tasks are done" in done.stdout, done.stdout + done.stderr
