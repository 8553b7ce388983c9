"""The how-to runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.functions.town import Town

PAGE = Path(__file__).parent.parent.parent / "docs" / "howto" / "functions.md"


async def test_the_function_of_the_how_to_says_hello(town: Town) -> None:
    text = PAGE.read_text()
    manifest = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    await town.client.create(manifest)
    (path,) = re.findall(r'curl "http://127.0.0.1:7480(/default/echo/\S+)"', text)
    reply = await town.served(path)
    assert reply.json == {"echo": "you"} and town.log(reply.call) == "called with /\n"


def test_every_reason_that_a_function_is_not_ready_is_explained() -> None:
    text = PAGE.read_text()
    source = Path(__file__).parent.parent.parent / "src" / "rota"
    code = "".join(one.read_text() for one in (source / "runtime" / "code").glob("*.py"))
    for reason in set(re.findall(r'CodeRefused\("(\w+)"', code)):
        assert f"`{reason}`" in text, reason
