"""Findings that a job reports about itself, in any output and in any pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from rota.runtime.runner.findings import Findings
from rota.runtime.runner.jobs import OUTPUT_BYTES_MAX, OUTPUTS_MAX, RESULT_BYTES_MAX, Parse
from rota.runtime.runner.lines import Lines

WORDS = (b"::rota ", b"{")


def found(output: bytes | str, parse: Parse = "plain", piece: int = 1 << 20) -> Findings:
    findings = Findings(parse)
    content = output.encode() if isinstance(output, str) else output
    for begin in range(0, len(content), piece):
        findings.feed(content[begin : begin + piece])
    findings.close()
    return findings


def said(*events: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


# Lines.


@given(
    pieces=some.lists(
        some.text("{:\nrota x", max_size=12).map(str.encode) | some.sampled_from([b"::rota a\n", b"\n{"])
    ),
    bytes_max=some.integers(1, 20),
)
@example(pieces=[b"::ro", b"ta x", b"\n"], bytes_max=20)
@example(pieces=[b"a\n::rota x\n{y\n::rot"], bytes_max=20)
def test_lines_are_the_same_in_whatever_pieces_they_come(pieces: list[bytes], bytes_max: int) -> None:
    lines = Lines(WORDS, bytes_max)

    def given_back() -> Iterator[bytes]:
        for piece in pieces:
            yield from lines.feed(piece)
        yield from lines.close()

    wanted = [line for line in b"".join(pieces).split(b"\n") if line.startswith(WORDS) and len(line) <= bytes_max]
    assert list(given_back()) == wanted


def test_a_line_without_end_is_not_kept() -> None:
    lines = Lines((b"::rota ",), 1000)
    for _ in range(1000):
        assert list(lines.feed(b"::rota " + b"x" * 10_000)) == []
    assert list(lines.feed(b"\n::rota y\n")) == [b"::rota y"]
    assert not lines._held


# Marks.


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_marks_set_outputs_and_the_result(piece: int) -> None:
    findings = found(
        "noise\n::rota output branch=main\n::rota output url=a=b c\n::rota result all is well\nend", piece=piece
    )
    assert findings.outputs == {"branch": "main", "url": "a=b c"} and findings.result == "all is well"
    assert findings.notes == []


def test_the_last_one_counts() -> None:
    findings = found("::rota output a=1\n::rota result one\n::rota output a=2\n::rota result two")
    assert findings.outputs == {"a": "2"} and findings.result == "two"


def test_a_mark_is_at_the_beginning_of_a_line() -> None:
    findings = found(" ::rota output a=1\necho ::rota result x\n::rotaoutput b=2\n")
    assert findings.outputs == {} and findings.result == "" and findings.notes == []


def test_lines_may_end_as_they_do_elsewhere() -> None:
    assert found("::rota output a=1\r\n").outputs == {"a": "1"}


def test_what_is_not_text_is_shown_as_such() -> None:
    assert found(b"::rota output a=\xff\xfe\n").outputs == {"a": "��"}


def test_too_many_outputs_are_left_out_and_that_is_said() -> None:
    findings = found(
        "".join(f"::rota output n{number}=x\n" for number in range(OUTPUTS_MAX + 1)) + "::rota output n0=y\n"
    )
    assert len(findings.outputs) == OUTPUTS_MAX and findings.outputs["n0"] == "y"
    assert findings.notes == [f"output n{OUTPUTS_MAX} was left out: there are {OUTPUTS_MAX} already"]


def test_an_output_that_is_too_long_is_left_out_and_that_is_said() -> None:
    findings = found(f"::rota output ok={'x' * OUTPUT_BYTES_MAX}\n::rota output long={'ü' * OUTPUT_BYTES_MAX}\n")
    assert list(findings.outputs) == ["ok"]
    assert findings.notes == [f"output long was left out: it has more than {OUTPUT_BYTES_MAX} bytes"]


@pytest.mark.parametrize("name", ["", "a b", "1a", "x" * 64, "a\x00"])
def test_what_is_no_name_is_left_out_and_that_is_said(name: str) -> None:
    findings = found(f"::rota output {name}=1\n")
    assert findings.outputs == {} and len(findings.notes) == 1


def test_a_mark_that_does_not_exist_is_said() -> None:
    assert found("::rota ouput a=1\n").notes == ["::rota ouput: there are output and result"]


def test_a_result_that_is_too_long_is_cut_and_that_is_said() -> None:
    findings = found("::rota result " + "ü" * (RESULT_BYTES_MAX // 2 + 10))
    assert findings.result == "ü" * (RESULT_BYTES_MAX // 2) and len(findings.notes) == 1


def test_notes_have_a_bound() -> None:
    assert len(found("".join(f"::rota x{number}\n" for number in range(1000))).notes) == 8


# The last lines.


def test_the_last_lines_are_for_people() -> None:
    output = (
        "\n".join(f"line {number}" for number in range(50)) + "\n\x1b[31mred\x1b[0m\r50%\r100%\n\n \x1b]0;title\x07\n"
    )
    assert found(output).last_lines().splitlines()[-4:] == ["line 49", "red", "50%", "100%"]
    assert len(found(output).last_lines().splitlines()) == 10


def test_the_last_lines_of_anything_have_a_bound() -> None:
    assert len(found(b"\xff" * 100_000, piece=999).last_lines().encode()) <= 2048
    assert len(found("ü" * 100_000).last_lines().encode()) <= 2048


# Agents.

CLAUDE = (
    {"type": "system", "subtype": "init", "session_id": "s"},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "::rota output a=1"}]}},
)
CLAUDE_RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 3,
    "result": "It is done.",
    "total_cost_usd": 0.25,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 7,
        "output_tokens": 20,
        "service_tier": "standard",
    },
}


def test_the_result_of_claude_code() -> None:
    findings = found("warning on stderr\n" + said(*CLAUDE, CLAUDE_RESULT), "claude-code", piece=10)
    assert findings.result == "It is done." and not findings.has_failed and findings.outputs == {}
    assert findings.usage == {
        "costUSD": 0.25,
        "turns": 3.0,
        "inputTokens": 10.0,
        "cachedInputTokens": 7.0,
        "cacheWriteTokens": 5.0,
        "outputTokens": 20.0,
    }


def test_the_result_of_claude_code_may_have_a_form() -> None:
    findings = found(said({**CLAUDE_RESULT, "structured_output": {"a": [1]}}), "claude-code")
    assert json.loads(findings.result) == {"a": [1]}


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"is_error": True, "result": "You have hit your limit"}, "You have hit your limit"),
        ({"subtype": "error_max_turns", "result": None}, "error_max_turns"),
        ({"subtype": "error_during_execution", "result": "", "errors": ["no", "way"]}, '["no","way"]'),
    ],
)
def test_claude_code_says_that_it_failed(event: dict[str, Any], error: str) -> None:
    findings = found(said({**CLAUDE_RESULT, **event}), "claude-code")
    assert (
        findings.has_failed and findings.error == error and findings.result == "" and findings.usage["costUSD"] == 0.25
    )


CODEX = (
    {"type": "thread.started", "thread_id": "t"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "I begin."}},
    {
        "type": "item.completed",
        "item": {"id": "2", "type": "command_execution", "aggregated_output": "::rota result x"},
    },
    {"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": "It is done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 30, "cached_input_tokens": 20, "output_tokens": 4}},
)


def test_the_result_of_codex() -> None:
    findings = found(said(*CODEX), "codex", piece=7)
    assert findings.result == "It is done." and not findings.has_failed
    assert findings.usage == {"inputTokens": 30.0, "cachedInputTokens": 20.0, "outputTokens": 4.0}


def test_codex_of_an_older_version() -> None:
    old = {"type": "item.completed", "item": {"item_type": "assistant_message", "text": "Old."}}
    assert found(said(old), "codex").result == "Old."


def test_codex_says_that_it_failed() -> None:
    events = (
        {"type": "error", "message": "no credit"},
        {"type": "turn.failed", "error": {"message": "no credit left"}},
    )
    findings = found(said(*events), "codex")
    assert findings.has_failed and findings.error == "no credit left"


def test_what_codex_got_over_is_no_failure() -> None:
    findings = found(said({"type": "error", "message": "Reconnecting... 1/5"}, *CODEX), "codex")
    assert not findings.has_failed and findings.error == ""


def test_marks_count_in_the_output_of_agents_too() -> None:
    assert found("::rota output a=1\n" + said(CLAUDE_RESULT), "claude-code").outputs == {"a": "1"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "{]",
        "[]",
        "{}",
        '{"type":1}',
        '{"type":[]}',
        '{"type":"result"}{',
        '{"type":"result","usage":[],"num_turns":true,"total_cost_usd":"x","result":{"a":1}}',
        '{"type":"result","usage":{"input_tokens":1e999,"output_tokens":-1e300}}',
        '{"type":"result","num_turns":' + "9" * 400 + "}",
        '{"type":"item.completed","item":"x"}',
        '{"type":"turn.failed"}',
        '{"a":' * 5000,
        '{"type":"result","result":"' + "x" * 3_000_000 + '"}',
        '{"type":"result","result":"\\ud800"}',
    ],
    ids=range(15),
)
@pytest.mark.parametrize("parse", ["claude-code", "codex"])
def test_rubbish_is_no_harm(line: str, parse: Parse) -> None:
    findings = found(line + "\n::rota output a=1\n", parse)
    assert findings.outputs == {"a": "1"} and set(findings.usage.values()) <= {0.0}
    assert len(findings.result) <= RESULT_BYTES_MAX
