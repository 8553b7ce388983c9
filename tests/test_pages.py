"""The pages, read in order by one person with one server: what they print is run, or at least parsed.

A page's `sh` blocks are run as they are written, its `yaml` blocks are the files that their first line names, and a
command after `$ ` is shown with its output, which depends on what there is. All of them are parsed by the real parsers.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from rota.cli.app import COMMANDS
from tests.local.place import processes_of
from tests.printed import QUOTED, ROOT, SOURCE, problem_of, words_of
from tests.server.live import ROTA, live

SECONDS_MAX = 120
READING_SECONDS_MAX = 600
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PROGRAMS = frozenset(("rota", "kubectl"))
OTHER_PROGRAMS = frozenset(("make", "python3", "pip", "cd", ".", "curl", "export", "echo", "printf", "openssl", "cut"))

FOR_EVER = "it does not end by itself"
CLUSTER = "it needs a Kubernetes cluster"
NOT_RUN = {
    "python3 -m venv ~/.rota-venv && . ~/.rota-venv/bin/activate": "run by tests/local/test_quickstart.py",
    "pip install .": "run by tests/local/test_quickstart.py",
    "rota dev": FOR_EVER,
    "rota up --no-controllers": FOR_EVER,
    "rota operator --kubeconfig ~/.rota/kubeconfig": FOR_EVER,
    "rota crds --install --context prod": CLUSTER,
    "rota operator --context prod": CLUSTER,
    "rota operator --context prod --pods": CLUSTER,
    "rota operator --context prod --gateway ~/.rota-operator": CLUSTER,
    "rota operator --context prod --hub --gateway ~/.rota-hub --listen 0.0.0.0:7443 --url https://hub:7443": CLUSTER,
    "rota cell join ber-1 --city ber --context prod": CLUSTER,
    "rota operator --context site --cell ber-1": CLUSTER,
    "rota why task/build --home ~/.rota-operator": CLUSTER,
    "curl --unix-socket ~/.rota-operator/rota.sock http://localhost/v1/metrics": CLUSTER,
    "rota crds | kubectl --context prod apply --server-side -f -": CLUSTER,
    "rota start --image localhost/our-rota:7": "it needs an image that holds Rota",
    "rota exec -it inst/clocks-0 -- sh": "it needs a terminal",
    'rota run -f --pool coders --branch login -p "Fix the login page"': "it needs an agent, and a key for it",
}
"""Commands of `sh` blocks that are parsed and not run, each with the reason."""


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)]


def lines_of(script: str) -> Iterator[str]:
    """The commands of a script, one a line, without their comments."""
    for line in script.replace("\\\n", " ").splitlines():
        plain = re.sub(r"\s+#\s.*$", "", line).strip()
        if plain and not plain.startswith("#"):
            yield plain


def shown(page: Path) -> Iterator[str]:
    """Every command line of a page: of its blocks, and in backquotes in its prose."""
    for language, text in blocks(page):
        if language == "sh":
            yield from lines_of(text)
        elif language in ("console", "text"):
            yield from lines_of("\n".join(re.findall(r"^\$ (.*)$", text, re.MULTILINE)))
        elif not language:
            yield from (line for line in lines_of(text) if line.split()[0] in {*PROGRAMS, "$", *OTHER_PROGRAMS})
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from (" ".join(found.split()) for found in QUOTED.findall(prose))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell: between `|` and `&&`, inside `$(…)`, and after their variables."""
    for inner in re.findall(r"\$\(((?:rota|kubectl) [^()]*)\)", line):
        yield from simple_commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "VALUE", line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                yield words
            words = []
        else:
            words.append(word)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_one_that_the_parser_takes(page: Path) -> None:
    wrong = []
    for line in shown(page):
        for words in simple_commands(line):
            if words[0] not in PROGRAMS:
                continue
            # A command that is only named, such as `rota claim`, is not one to type.
            is_named = len(words) == 2 and (words[0] == "kubectl" or words[1] in COMMANDS)
            is_named |= len(words) == 3 and f"rota {words[1]}" in ("rota schedule", "rota token", "rota rollout")
            is_named |= words[0] == "kubectl" and " ".join(words[1:]) in ("create secret", "auth can-i")
            if not is_named and (problem := problem_of(words)):
                wrong.append(f"{line}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_every_shell_block_says_that_it_is_one() -> None:
    for page in PAGES:
        for language, text in blocks(page):
            first = text.split(maxsplit=1)[0] if text.strip() else ""
            assert language or first not in PROGRAMS, f"{page.relative_to(ROOT)}: fence it as sh: {text[:60]}"
            if language == "sh":
                assert all(words_of(line) for line in lines_of(text))


def test_what_is_not_run_is_still_on_a_page() -> None:
    on_pages = {line for page in PAGES for line in shown(page)}
    assert not set(NOT_RUN) - on_pages


def test_kubectl_has_its_kubeconfig_explained_where_it_is_first_used() -> None:
    for page in PAGES:
        text = page.read_text()
        ours = [line for line in shown(page) if line.startswith("kubectl ") and "--context" not in line]
        if any(language == "sh" and re.search(r"^kubectl ", body, re.MULTILINE) for language, body in blocks(page)):
            assert ours and "KUBECONFIG" in text[: text.index("\nkubectl ")], page


def reading_order() -> list[Path]:
    """The quickstart, and the how-to in the order of its index."""
    index = DOCS / "howto.md"
    linked = dict.fromkeys(re.findall(r"\]\((howto/\w+\.md)", index.read_text()))
    return [DOCS / "quickstart.md", index, *(DOCS / name for name in linked)]


def test_the_index_has_every_how_to() -> None:
    assert {page.name for page in reading_order()[2:]} == {page.name for page in (DOCS / "howto").glob("*.md")}


ELSEWHERE = {
    "plan.md": "run by tests/cli/test_plan.py, in a clone",
    "testing.md": "run by tests/testing/test_docs.py, without a server",
}


BILLING = """
apiVersion: rota.dev/v1alpha1
kind: Function
metadata: {name: billing}
spec: {entrypoint: "main:handler", source: {inline: "def handler(event, context): ..."}}
"""
"""Changes to the server, in the project that the page shows: it gets a schedule, and is left alone."""


class Reader:
    """Somebody with a home and a shell, who does what the pages say."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home
        self.edge = ""
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "KUBE"))}
        self.environment |= {
            "HOME": str(home),
            "PATH": f"{Path(ROTA).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def run(self, script: str) -> str:
        """Run a script as the next lines of a terminal: in the folder, and with the variables, of the one before."""
        here, variables = self.home / ".here", self.home / ".variables"
        before = f". {shlex.quote(str(variables))}" if variables.exists() else ""
        after = f"pwd > {shlex.quote(str(here))}\nexport -p > {shlex.quote(str(variables))}"
        script = script.replace("http://127.0.0.1:7480", self.edge)
        done = subprocess.run(
            ["sh", "-e", "-c", f"{before}\n{script}\n{after}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{script}\nexit code {done.returncode}\n{said}"
        self.folder = Path(here.read_text().strip())
        return said

    def read(self, page: Path) -> None:
        """Do what a page says, in a new terminal."""
        (self.home / ".variables").unlink(missing_ok=True)
        for language, text in blocks(page):
            if language == "sh":
                kept = [line for line in text.replace("\\\n", " ").splitlines() if not _is_left_out(line)]
                if any(line.strip() for line in kept):
                    said = self.run("\n".join(kept))
                    known = re.findall(r"^\S+/\S+ (?:configured|unchanged)$", said, re.MULTILINE)
                    assert not known, f"{page.name}: an earlier page has made {known}"
            elif language == "yaml" and "apiVersion:" in text:
                self.write(page, text)
            elif language == "yaml" and re.search(r"^name: ", text, re.MULTILINE):
                self.try_project(text)

    def try_project(self, text: str) -> None:
        """See that a project could be deployed beside everything that earlier pages have made."""
        top = self.home / "project"
        (top / "report").mkdir(parents=True)
        (top / "report" / "main.py").write_text("def handler(event, context): ...\n")
        (top / "rota.yaml").write_text(text)
        (top / "billing.yaml").write_text(BILLING)
        self.run(f"rota apply -f {shlex.quote(str(top))}/billing.yaml")
        said = self.run(f"HELPERS=2 rota deploy --dry-run -f {shlex.quote(str(top))}")
        assert "WorkerPool: 1 created" in said and "Schedule: 3 created" in said, said

    def write(self, page: Path, manifest: str) -> None:
        """Save a manifest under the name that it begins with. What the page does not apply is applied here."""
        (name,) = re.findall(r"\A# (\S+\.yaml)\n", manifest) or [""]
        assert name, f"{page.name}: the first line of a manifest names its file: {manifest[:80]}"
        assert not (self.folder / name).exists(), f"{page.name}: another page has a file {name}"
        (self.folder / name).write_text(manifest)
        if f"rota apply -f {name}\n" not in "\n".join(block.text for block in blocks(page) if block.language == "sh"):
            said = self.run(f"rota apply -f {name}")
            made = [one for one in yaml.safe_load_all(manifest) if one]
            assert said.count(" created") == len(made), f"{page.name}: an earlier page has made some of these: {said}"


def _is_left_out(line: str) -> bool:
    return any(plain in NOT_RUN for plain in lines_of(line))


@pytest.mark.skipif(not all(map(shutil.which, ("kubectl", "curl", "openssl"))), reason="a program is missing")
@pytest.mark.timeout(READING_SECONDS_MAX)
def test_the_pages_are_read_in_order_on_one_server(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        # On free ports: somebody else may have those of the pages.
        started = reader.run("rota start --port 0 --edge-port 0")
        (reader.edge,) = re.findall(r"functions and webhooks at (http://\S+)", started)
        for page in reading_order():
            if page.name not in ELSEWHERE:
                reader.read(page)
                reader.run("rota status > /dev/null || rota start")
    finally:
        reader.run("rota stop --grace 0")
    assert processes_of(tmp_path) == []


def test_no_two_pages_make_the_same_object() -> None:
    made: dict[tuple[str, str], str] = {}
    for page in reading_order():
        for language, text in blocks(page):
            if language != "yaml" or "apiVersion:" not in text:
                continue
            for one in yaml.safe_load_all(text):
                key = (one["kind"], one["metadata"]["name"])
                assert key not in made, f"{page.name} and {made[key]} both make {'/'.join(key)}"
                made[key] = page.name


TRIED = {
    "get": "get wp",
    "describe": "describe wp crew",
    "apply": "apply --server-side -f pool.yaml",
    "diff": "diff -f pool.yaml",
    "edit": "edit wp crew",
    "delete": "delete wp other",
    "patch": "patch wp crew --type merge -p {}",
    "create secret": "create secret generic s --from-literal=a=b",
    "scale": "scale wp/crew --replicas=0",
    "wait": "wait wp/crew --for=jsonpath={.spec.replicas}=0",
    "events": "events",
    "rollout": "rollout status wp/crew",
    "explain": "explain workerpool",
    "api-resources": "api-resources",
    "logs": "logs crew-0",
    "exec": "exec crew-0 -- true",
    "cp": "cp pool.yaml crew-0:/x",
    "run": "run x --image=y",
    "attach": "attach crew-0",
    "port-forward": "port-forward crew-0 80",
    "top": "top pod",
    "debug": "debug crew-0 --image=x",
    "proxy": "proxy --help",
    "cordon": "cordon here",
    "drain": "drain here",
    "auth can-i": "auth can-i get wp",
    "create role": "create role r --verb=get --resource=workerpools.rota.dev",
}
"""The trial of each kubectl command of the table."""


def test_kubectl_does_what_the_table_says_and_nothing_else(tmp_path: Path) -> None:
    page = (DOCS / "howto" / "kubectl.md").read_text()
    rows = re.findall(r"^\| (`kubectl [^|]*) \| ([^|]*) ?\| (.*) \|$", page, re.MULTILINE)
    said = {verb: how for verbs, _, how in rows for verb in re.findall(r"`kubectl ([^`]+)`", verbs)}
    assert set(said) == set(TRIED)
    for verbs, ours, how in rows:
        assert ("both work" in how or "`rota` alone" in how) == ("`rota " in ours), verbs
    head = "apiVersion: rota.dev/v1alpha1\nkind: WorkerPool\n"
    pool = f"{head}metadata: {{name: NAME}}\nspec: {{replicas: 0, worker: {{}}}}\n"
    with live(tmp_path / "home", "--no-controllers") as server:
        for name in ("crew", "other"):
            server.kubectl("apply", "--server-side", "-f", "-", stdin=pool.replace("NAME", name))
        (tmp_path / "pool.yaml").write_text(pool.replace("NAME", "crew"))
        for verb, tried in TRIED.items():
            works = any(sign in said[verb] for sign in ("both work", "`kubectl` alone"))
            words = [word.replace("pool.yaml", str(tmp_path / "pool.yaml")) for word in tried.split()]
            # `edit` is given an editor that changes nothing.
            server.kubectl(*words, check=works, KUBE_EDITOR="true")


def test_every_metric_is_documented() -> None:
    page = (DOCS / "howto" / "operator.md").read_text()
    names = set()
    for file in SOURCE.rglob("*.py"):
        calls = r'(?:counter|histogram|gauge)\(\s*"(rota_\w+)"'
        names |= set(re.findall(calls, file.read_text()))
    assert len(names) > 20
    assert not {name for name in names if f"`{name}`" not in page}
