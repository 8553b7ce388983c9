"""The distributions that are installed here, those that one needs, and wheels of it where there is no network."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

LEFT_OUT = frozenset(("INSTALLER", "REQUESTED", "RECORD", "direct_url.json"))
"""Files that an installer writes beside those of the wheel."""


def needed(*names: str) -> Iterator[metadata.Distribution]:
    """All distributions that these need, on this platform, without themselves."""
    known, work = {*names}, [*names]
    while work:
        for requirement in metadata.distribution(work.pop()).requires or []:
            name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
            if "extra ==" in requirement or name in known:
                continue
            known.add(name)
            try:
                found = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue  # not for this platform
            work.append(name)
            yield found


def files_of(distribution: metadata.Distribution) -> Iterator[tuple[Path, str]]:
    """Its files, and where they are in a folder of packages."""
    for file in distribution.files or []:
        path = Path(str(file.locate()))
        if ".." not in file.parts and path.is_file():
            yield path, str(file)


def make_wheel(distribution: metadata.Distribution, folder: Path) -> None:
    """The wheel that it was installed from, but for its signatures. Programs are made anew from its entry points."""
    name = re.sub(r"[-_.]+", "_", distribution.metadata["Name"])
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(sorted({*parts})) for parts in zip(*tags, strict=True))
    record = []
    with zipfile.ZipFile(folder / f"{name}-{distribution.version}-{tag}.whl", "w") as wheel:
        for path, inside in files_of(distribution):
            if path.name not in LEFT_OUT and "__pycache__" not in path.parts:
                wheel.write(path, inside)
                record.append(f"{inside},,\n")
        place = next(line for line in record if ".dist-info/METADATA," in line).rpartition("/")[0]
        wheel.writestr(f"{place}/RECORD", "".join(record) + f"{place}/RECORD,,\n")
