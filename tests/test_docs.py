"""The documentation is complete and says what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

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


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken


def test_every_package_opens_with_its_contract() -> None:
    for package in ("api", "store", "registry", "client"):
        text = (ROOT / "src" / "rota" / package / "__init__.py").read_text()
        assert text.startswith('"""') and len(text.split('"""')[1]) > 200, package
