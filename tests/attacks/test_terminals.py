"""To have the terminal of somebody who looks at a tenant's objects do something."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from rota.api import ConfigMap
from rota.cli.formats import KindGroup, format_named, write_document, write_names
from rota.cli.output import Columns, error_line, note, print_line

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\rfake"
OBJECT: dict[str, Any] = {"metadata": {"name": HOSTILE}, "data": {"a": HOSTILE}}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def write_all() -> None:
    for form in ("json", "yaml", "jsonpath={.data.a}"):
        write_document(OBJECT, format_named(form))
    write_names([KindGroup(ConfigMap.api, [OBJECT])])
    Columns(("A",)).write([(HOSTILE,)])
    print_line(HOSTILE, (HOSTILE, "bold"))


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "xterm"}], ids=str)
def test_to_send_a_terminal_what_it_obeys(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    out, err = Terminal(), Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    write_all()
    note(HOSTILE)
    error_line(HOSTILE)
    for seen in (out.getvalue(), err.getvalue()):
        assert "title" in seen
        for sequence in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e", "\r"):
            assert sequence not in seen


def test_programs_get_it_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_document(OBJECT, format_named("json"))
    assert json.loads(capsys.readouterr().out) == OBJECT
    write_document(OBJECT, format_named("jsonpath={.data.a}"))
    assert capsys.readouterr().out == f"{HOSTILE}\n"
