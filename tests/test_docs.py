"""The documentation is complete and says what the code says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from rota.cli.app import COMMANDS

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
    for package in ("api", "store", "registry", "client", "manifest", "cli"):
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


def test_the_demo_shows_changes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo.py", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ROTA_HOME": str(tmp_path), "ROTA_DEMO_PAUSE": "0.3"},
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        assert "Rota is ready at https://" in demo.stdout.readline()
        for sign in ("pool agents: Ready, 2 of 2", "announce", "pool boxes: Ready, 3 of 3", "goes on until Ctrl-C"):
            assert any(sign in line for line in iter(demo.stdout.readline, "")), sign
        assert (tmp_path / "rota.sock").exists()
        demo.terminate()
        demo.wait(20)
        assert not (tmp_path / "rota.sock").exists(), "the server has ended in good order"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
        demo.communicate()
