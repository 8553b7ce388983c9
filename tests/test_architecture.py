"""docs/architecture.md names modules that are there, draws every walk, and has the layers that are held."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rota"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
OUTSIDE = "any program"
"""The heading of a column that is no part of Rota."""
WALK = "walked through"
BLOCK = re.compile(r"^```\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"\b(?:[a-z_]+/)*[a-z_0-9]+\.py\b")
FOLDER = re.compile(r"(?:[a-z_]+/)+")
ARROW = re.compile(r"\|<?-+ (\w+) -+>?(?=\|)")


class Diagram(NamedTuple):
    headings: list[str]
    places: list[int]
    """Where each heading begins."""
    lines: list[str]
    columns: dict[str, str]
    """The module of each heading, from the line under the diagram."""

    def column_at(self, place: int) -> str:
        """Return the heading of the column whose line is at this place."""
        return self.headings[min(range(len(self.places)), key=lambda each: abs(self.places[each] - place))]


def diagrams() -> Iterator[tuple[str, Diagram]]:
    """All but the layers, each with the title of its section."""
    for section in PAGE.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        for block in BLOCK.finditer(section):
            first, *lines = block[1].splitlines()
            found = [(one.group(), one.start()) for one in re.finditer(r"[^\s(]+(?: [^\s(]+)*", _plain(first))]
            said = re.match(r"\nColumns: (.+?)\.\n\n", section[block.end() :], re.DOTALL)
            named = dict(one.split(": ") for one in " ".join(said[1].split()).split("; ")) if said else {}
            columns = {heading: path.strip("`") for heading, path in named.items()}
            yield title, Diagram([text for text, _ in found], [at for _, at in found], lines, columns)


def _plain(line: str) -> str:
    """Blank out what is in brackets: it says more of a heading, and is none itself."""
    return re.sub(r"\([^)]*\)", lambda found: " " * len(found[0]), line)


DIAGRAMS = list(diagrams())


def named_paths() -> Iterator[tuple[str, list[str]]]:
    """Every path of the page, with where it may be: a bare name is beside a path named before it in its paragraph."""
    for paragraph in PAGE.split("\n\n"):
        folders: list[str] = []
        is_drawn = "```" in paragraph
        quoted = re.findall(r"`([^`\n]+)`", paragraph)
        for path in MODULE.findall(paragraph) if is_drawn else [one for one in quoted if _is_path(one)]:
            if "/" in path:
                folders.append(path.rpartition("/")[0])
                yield path, [path]
            else:
                yield path, [f"{folder}/{path}" for folder in folders]


def _is_path(text: str) -> bool:
    return (MODULE.fullmatch(text) or FOLDER.fullmatch(text)) is not None


def is_there(path: str) -> bool:
    """Report whether a path is one of the source, or of what stands beside it, as tests."""
    return (SOURCE / path).exists() or (ROOT / path).exists()


def test_every_module_and_folder_that_the_page_names_is_there() -> None:
    found = list(named_paths())
    assert len(found) > 100
    gone = [path for path, places in found if not any(is_there(one) for one in places)]
    assert not gone


def test_the_layers_are_those_that_are_held() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = [one.strip("()").removeprefix("rota.") for one in contracts[0]["layers"]]
    drawn = BLOCK.search(PAGE)
    assert drawn is not None
    assert [line.split()[0] for line in drawn[1].splitlines()] == held


def test_every_walk_has_a_diagram() -> None:
    walks = [title for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) if WALK in title]
    assert len(walks) >= 7
    assert [title for title in walks if title not in dict(DIAGRAMS)] == []


@pytest.mark.parametrize(("title", "diagram"), DIAGRAMS, ids=[title for title, _ in DIAGRAMS])
def test_every_column_stands_for_a_module(title: str, diagram: Diagram) -> None:
    assert list(diagram.columns) == diagram.headings
    gone = [one for one in diagram.columns.values() if one != OUTSIDE and not (SOURCE / one).is_file()]
    assert not gone


@pytest.mark.parametrize(("title", "diagram"), DIAGRAMS, ids=[title for title, _ in DIAGRAMS])
def test_a_word_on_an_arrow_is_one_of_the_modules_at_its_ends(title: str, diagram: Diagram) -> None:
    """An arrow with one word on it is a call or a message of that name."""
    unknown = []
    for line in diagram.lines:
        for arrow in ARROW.finditer(line):
            ends = {diagram.columns[diagram.column_at(place)] for place in (arrow.start(), arrow.end())}
            sources = [(SOURCE / one).read_text() for one in ends if one != OUTSIDE]
            if not any(re.search(rf"(\b|_){arrow[1]}(\b|_)", source, re.IGNORECASE) for source in sources):
                unknown.append((arrow[1], sorted(ends)))
    assert not unknown
