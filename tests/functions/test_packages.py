"""Requirements of functions are installed as the operator's own pip would; a failure says why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.api.egress import Policy, written
from rota.runtime import sandbox
from rota.runtime.code import CodeRefused, Packages, environment_name
from rota.runtime.code.pip_failures import cause, redacted
from rota.runtime.code.pip_settings import CERTIFICATES, FILE_BYTES_MAX, PROXIES, settings
from rota.runtime.code.places import PACKAGES, cached, packages_log
from rota.runtime.sandbox import Availability
from rota.server import tls
from tests.functions.index import BROKEN, NAME, folder, index
from tests.functions.test_cli import rota
from tests.functions.town import Town, ready
from tests.until import until

CODE = f"import {NAME}\ndef handler(event, context):\n    return {NAME}.VALUE"
NO_POLICY = Policy()
PASSWORD = "s3cr3t-of-the-index"


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the configuration of this machine's pip."""
    proxies = [*PROXIES, *(name.lower() for name in PROXIES)]
    for name in [*CERTIFICATES, *proxies, "NETRC", *(name for name in os.environ if name.startswith("PIP_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    return tmp_path / "home"


def install(home: Path, *requirements: str, policy: Policy = NO_POLICY) -> Path:
    """Where they are installed."""
    asyncio.run(Packages(home, policy).install(requirements))
    return cached(home, PACKAGES, environment_name(requirements))


def refused(home: Path, *requirements: str, policy: Policy = NO_POLICY) -> CodeRefused:
    with pytest.raises(CodeRefused) as raised:
        install(home, *requirements, policy=policy)
    return raised.value


def log(home: Path, *requirements: str) -> str:
    return packages_log(home, environment_name(requirements)).read_text()


# Where packages come from.


def test_a_folder_of_packages_that_the_environment_names(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    assert (install(home, NAME) / f"{NAME}.py").exists()
    assert f"Successfully installed {NAME}-1.0" in log(home, NAME)


def test_a_folder_of_packages_that_a_configuration_file_names(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = folder(tmp_path / "wheels")
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\n[install]\nfind_links =\n    file://{wheels}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert (install(home, NAME) / f"{NAME}.py").exists()


def test_the_configuration_file_of_the_user_who_runs_the_server(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = folder(tmp_path / "wheels")
    place = tmp_path / "user" / ".config" / "pip"
    place.mkdir(parents=True)
    (place / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert (install(home, NAME) / f"{NAME}.py").exists()


def test_where_there_is_no_sandbox_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: Availability(ok=False, why_not="not here"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    assert (install(tmp_path / "home", NAME) / f"{NAME}.py").exists()
    # What it was installed with is removed beside what goes on.
    left = (tmp_path / "home").rglob
    until(lambda: not list(left("pip.conf")), lambda: list(left("pip.conf")))


@pytest.mark.parametrize("name", ["PIP_CERT", "REQUESTS_CA_BUNDLE"])
def test_an_index_whose_certificate_only_the_operator_trusts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "tls").mkdir()
    secured = tls.ensure(tmp_path / "tls", ["127.0.0.1"])
    with index(secured) as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        monkeypatch.setenv("PIP_RETRIES", "0")
        error = refused(home, NAME)
        assert error.reason == "CertificateNotTrusted" and "PIP_CERT" in str(error)
        assert f"ERROR: No matching distribution found for {NAME}" in str(error)
        authority = tmp_path / "own" / "ca.pem"
        authority.parent.mkdir(mode=0o700)
        authority.write_bytes((tmp_path / "tls" / "ca.crt").read_bytes())
        # The box may not read it where it is.
        authority.chmod(0o600)
        monkeypatch.setenv(name, str(authority))
        assert (install(home, NAME) / f"{NAME}.py").exists()


def test_the_login_for_an_index_is_used_and_shown_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index(login=f"me:{PASSWORD}") as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        assert (install(home, NAME) / f"{NAME}.py").exists()
        error = refused(home, "nothing-of-this-name")
        assert error.reason == "PackageNotFound"
        said = log(home, NAME) + log(home, "nothing-of-this-name") + str(error)
        assert "127.0.0.1" in said and PASSWORD not in said
        monkeypatch.setenv("PIP_INDEX_URL", served.url.replace(PASSWORD, f"wrong-{PASSWORD}"))
        error = refused(home, f"{NAME}==1.0")
        assert error.reason == "IndexRefused" and PASSWORD not in log(home, f"{NAME}==1.0") + str(error)


def test_what_is_built_from_source_never_sees_the_login(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with index(login=f"me:{PASSWORD}") as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "sources")))
        # A project of which there is a source alone is not found, and an address is not taken.
        assert refused(home, BROKEN).reason == "PackageNotFound"
        error = refused(home, f"{NAME} @ https://elsewhere.example/{NAME}.tar.gz")
        assert error.reason == "BadRequirement" and "needs a login" in str(error)


def test_the_login_may_be_in_a_netrc_of_which_only_the_index_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(
        f"machine 127.0.0.1 login me password {PASSWORD}\nmachine elsewhere.example login me password other\n"
    )
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with index(login=f"me:{PASSWORD}") as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url.replace(f"me:{PASSWORD}@", ""))
        assert (install(home, NAME) / f"{NAME}.py").exists()
    given = settings(os.environ, home=home, is_sandboxed=True)
    assert PASSWORD in given.secrets and b"elsewhere" not in b"".join(given.files.values())


# Why not.


def test_a_package_that_no_index_has(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    for requirement in ("nothing-of-this-name", f"{NAME}==2.0"):
        error = refused(home, requirement)
        assert error.reason == "PackageNotFound"
        assert f"ERROR: No matching distribution found for {requirement}" in str(error)
        assert "WARNING" not in str(error)


def test_an_index_that_cannot_be_reached(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The port of an index that is gone.
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    error = refused(home, NAME)
    assert error.reason == "IndexUnreachable" and "network" in str(error)


def test_an_index_that_the_servers_policy_allows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        # The server's own proxy cannot be reached from there.
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        port = urlsplit(served.url).port
        policy = Policy("egress", (written(f"127.0.0.1/32:{port}"),))
        assert (install(home, NAME, policy=policy) / f"{NAME}.py").exists()
        assert served.asked


@pytest.mark.parametrize("policy", [Policy("none"), Policy("egress", (written("pypi.example:443"),))])
def test_an_index_that_the_servers_policy_does_not_allow(
    home: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        error = refused(home, NAME, policy=policy)
        assert error.reason == "IndexUnreachable", error
        told = "--network none" if policy.network == "none" else "127.0.0.1 port"
        assert told in str(error), error
        assert served.asked == []


def test_a_folder_of_packages_needs_no_network(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    assert (install(home, NAME, policy=Policy("none")) / f"{NAME}.py").exists()


def test_a_package_that_cannot_be_built(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    error = refused(home, BROKEN)
    assert error.reason == "PackageBuildFailed" and f"{BROKEN}-1.0.tar.gz is built from source" in str(error)
    assert "it said: RuntimeError: needs libfoo" in str(error) and "Traceback" in log(home, BROKEN)


def test_a_python_without_pip_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = refused(home, NAME)
    assert error.reason == "RequirementsFailed" and "ensurepip" in str(error)


def test_what_of_the_configuration_is_not_used_is_told_with_the_failure(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing-here"))
    error = refused(home, NAME)
    assert f"find-links of the server's pip configuration: there is no {tmp_path}/nothing-here" in str(error)
    assert "there is no" in log(home, NAME)


VERSIONS = ", ".join(f"0.{number}" for number in range(50))


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (
            f"ERROR: Could not find a version that satisfies the requirement x==9 (from versions: {VERSIONS})\n"
            "ERROR: No matching distribution found for x==9\n",
            "PackageNotFound",
            "(from versions: …, 0.45, 0.46, 0.47, 0.48, 0.49)",
        ),
        # Another index was not reached, but this one was.
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError()'\n"
            "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1.0)\n",
            "PackageNotFound",
            "(from versions: 1.0)",
        ),
        ("ERROR: ResolutionImpossible: for help visit\n", "RequirementsConflict", "exclude each other"),
        ("ERROR: Invalid requirement: 'a b c'\n", "BadRequirement", "a b c"),
        (
            "ERROR: HTTP error 403 while getting x\nERROR: 403 Client Error: Forbidden for url\n",
            "IndexRefused",
            "login",
        ),
        ("WARNING: one\nsomething else\n", "RequirementsFailed", "something else"),
        ("", "RequirementsFailed", "pip ended with 2"),
    ],
)
def test_causes(said: str, reason: str, words: str) -> None:
    found = cause(said, 2)
    assert found.reason == reason and words in found.message and "WARNING" not in found.message


def test_secrets_are_taken_out_of_what_is_shown() -> None:
    text = "https://me:p@ss@host/x and http://token@host/ and abcdef"
    assert redacted(text, {"abcdef", "a"}) == "https://****@host/x and http://****@host/ and ****"


# What a build is given.


def test_what_says_how_to_install_is_not_taken_over(tmp_path: Path) -> None:
    given = settings(
        {
            "PIP_TARGET": "/elsewhere",
            "PIP_USER": "1",
            "PIP_LOG": "/log",
            "PIP_TIMEOUT": "7",
            "PIP_CONFIG_FILE": os.devnull,
        },
        home=tmp_path,
        is_sandboxed=True,
    )
    assert given.config == "[global]\ntimeout = 7\n[install]\ntimeout = 7\n"


def test_the_environment_counts_more_than_files_and_one_command_more_than_all(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[install]\ntimeout = 2\nretries = 3\n[global]\ntimeout = 1\nretries = 1\n[list]\npre = 1\n")
    given = settings({"PIP_CONFIG_FILE": str(file), "PIP_RETRIES": "4"}, home=tmp_path, is_sandboxed=True)
    assert "timeout = 2\n" in given.config and "retries = 4\n" in given.config and "pre" not in given.config


def test_certificates_and_folders_have_places_of_their_own_inside(tmp_path: Path) -> None:
    bundle, folder_ = tmp_path / "bundle.pem", tmp_path / "with space"
    bundle.write_text("a certificate")
    folder_.mkdir()
    folder_.chmod(0o755)
    environment = {"PIP_CONFIG_FILE": os.devnull, "SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": str(folder_)}
    given = settings({**environment, "PIP_CERT": str(bundle)}, home=tmp_path / "home", is_sandboxed=True)
    place = given.env["SSL_CERT_FILE"]
    assert given.files == {place: b"a certificate"} and f"cert = {place}\n" in given.config
    assert [(bind.source, bind.target) for bind in given.binds] == [(folder_, given.env["SSL_CERT_DIR"])]


def test_a_folder_that_holds_a_home_is_not_shown(tmp_path: Path) -> None:
    for home in (tmp_path / "home", tmp_path):
        environment = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(tmp_path), "HOME": "/nowhere"}
        given = settings(environment, home=home, is_sandboxed=True)
        assert not given.binds and str(tmp_path) not in given.config and "a home is in it" in given.notes[0]


def test_a_file_that_is_too_large_is_not_copied(tmp_path: Path) -> None:
    file = tmp_path / "bundle.pem"
    with file.open("wb") as opened:
        opened.truncate(FILE_BYTES_MAX + 1)
    given = settings({"PIP_CERT": str(file), "PIP_CONFIG_FILE": os.devnull}, home=tmp_path, is_sandboxed=True)
    assert not given.files and "cannot be read: it has more than" in given.notes[0]


# As people see it.


async def test_what_pip_said_is_the_log_of_the_function_and_a_tenants_own_settings_count_nothing(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder(tmp_path / "wheels")))
    sly = [{"name": "PIP_FIND_LINKS", "value": "/nowhere"}, {"name": "PIP_INDEX_URL", "value": "http://127.0.0.1:9/"}]
    await town.deploy("good", CODE, requirements=[NAME], env=sly)
    assert (await town.served("/default/good")).json == "from the index"
    shown = (await rota(town, "logs", "fn/good")).stdout
    assert f"- packages  Successfully installed {NAME}-1.0" in shown
    await town.deploy("bad", CODE, requirements=[BROKEN])
    found = await town.function("bad", lambda one: ready(one) == "PackageBuildFailed")
    assert found.status is not None and "needs libfoo" in found.status.conditions[0].message
    shown = (await rota(town, "logs", "fn/bad")).stdout
    assert "- packages        RuntimeError: needs libfoo" in shown
    why = (await rota(town, "why", "fn/bad")).stdout
    assert " logs function/bad`" in why and "has a wheel" in why
