"""The lowest and the newest versions of all dependencies, on every Python from 3.11 up that this machine has.

    make test-versions                                       # all of them
    make test-versions WHICH="lowest:3.11 newest:newest"     # lowest versions on 3.11, newest on the newest Python

Lowest versions are the ones that pyproject.toml names with >=; where one has no wheel for a Python, the next that has.
Newest are those that pip takes by itself. Each environment is kept in .versions/ until something changes, and runs the
tests in `SUBSET`. What cannot be built fails on the Pythons that pyproject.toml promises, and is only said on others.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".versions"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: extras for users, whose lowest versions count; beside them every environment has what the tests themselves need
EXTRAS = ("data", "report", "dask")
TOOLS = "check"
#: fit, save, load, stream, every format, the command line: about a minute
SUBSET = (
    "tests/io/test_io.py",
    "tests/io/test_formats.py",
    "tests/io/test_table_logs.py",
    "tests/io/test_npz.py",
    "tests/io/test_vw.py",
    "tests/io/test_dsjson.py",
    "tests/io/test_openbandit.py",
    "tests/engine/test_engine.py",
    "tests/inverse/test_solvers.py",
    "tests/estimators/test_ibcb.py",
    "tests/estimators/test_state.py",
    "tests/deciders/test_live.py",
    "tests/cli/test_cli.py",
)

#: asks a Python for its version, whether it is a release that can make environments, and for its path
_PROBE = """
import sys, os, venv, ensurepip
print(*sys.version_info[:3], sys.version_info.releaselevel, os.path.realpath(sys.executable))
"""
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--quiet", "install")


class UnbuiltError(Exception):
    """An environment that cannot be built; says why."""


class Environment(NamedTuple):
    """Versions, "lowest" or "newest", on a Python."""

    versions: str
    python: str
    executable: str

    @property
    def label(self) -> str:
        return f"{self.versions} versions on Python {self.python}"

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    @property
    def promised(self) -> bool:
        return f"Programming Language :: Python :: {self.minor}" in PROJECT["classifiers"]

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.versions}-{self.minor}"


# -- what there is -----------------------------------------------------------------------------------------------------


def pythons() -> dict[str, tuple[str, str]]:
    """Version and path of one Python of each minor version from 3.11 up; the one that runs this goes first."""
    found: dict[str, tuple[str, str]] = {}
    for path in _executables():
        asked = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, check=False)
        if asked.returncode or not asked.stdout:
            continue
        major, minor, micro, level, executable = asked.stdout.split(maxsplit=4)
        if (int(major), int(minor)) >= (3, 11) and level == "final":
            found.setdefault(f"{major}.{minor}", (f"{major}.{minor}.{micro}", executable.strip()))
    return dict(sorted(found.items(), key=lambda item: _numbers(item[0])))


def _executables() -> Iterator[str]:
    yield sys.executable
    names = ["python3", *(f"python3.{minor}" for minor in range(11, 31))]
    yield from filter(None, map(shutil.which, names))
    if not (folders := _pyenv()):
        print("pyenv was not found; using the Pythons of PATH.")
    for folder in folders:
        yield from sorted(map(str, folder.glob("3.*/bin/python")), key=_numbers, reverse=True)


def _pyenv() -> list[Path]:
    """Where pyenv keeps its Pythons, also where HOME is another."""
    homes = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    if command := shutil.which("pyenv"):
        homes.append(Path(command).resolve().parents[1])
    return [home / "versions" for home in dict.fromkeys(homes) if (home / "versions").is_dir()]


def lowest() -> dict[str, str]:
    """The lowest version that pyproject.toml permits of every dependency, those of `EXTRAS` included."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    pairs = (re.fullmatch(r"([\w.-]+)>=([\d.]+)(,.*)?", each) for each in wanted)
    return {pair[1]: pair[2] for pair in pairs if pair is not None}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


# -- environments ------------------------------------------------------------------------------------------------------


def environments(which: Iterable[str]) -> list[Environment]:
    """Those named, as in "lowest:3.11" or "newest:newest"; all if none is."""
    there = pythons()
    print("Python", ", ".join(version for version, _ in there.values()))
    names = list(which) or [f"{versions}:{python}" for python in there for versions in ("lowest", "newest")]
    found = []
    for name in names:
        versions, _, python = name.partition(":")
        python = [*there][-1] if python == "newest" else python
        if versions not in ("lowest", "newest") or python not in there:
            raise SystemExit(f"{name!r} is not to be had; write lowest: or newest:, then {', '.join(there)} or newest.")
        found.append(Environment(versions, *there[python]))
    return found


def build(environment: Environment) -> Path:
    """Build an environment, unless it is there and nothing has changed; gives its Python."""
    python = environment.folder / "bin" / "python"
    stamp = environment.folder / "built-from"
    least = lowest() if environment.versions == "lowest" else {}
    # Tomorrow's newest versions are others.
    today = "" if least else str(datetime.date.today())
    project = (ROOT / "pyproject.toml").read_bytes() + today.encode() + environment.executable.encode()
    content = hashlib.blake2b(project + str(ROOT).encode(), digest_size=16).hexdigest()
    if stamp.exists() and stamp.read_text() == content:
        return python
    shutil.rmtree(environment.folder, ignore_errors=True)
    _run(environment.executable, "-m", "venv", environment.folder)
    _install(python, least)
    stamp.write_text(content)
    return python


def _install(python: Path, least: dict[str, str]) -> None:
    """Install the project with these versions and no others; where one has no wheel, with the next that has."""
    wanted = ["--editable", f"{ROOT}[{','.join((*EXTRAS, TOOLS))}]"]
    if not least:
        _run(python, *_PIP, *wanted)
        return
    while True:
        exactly = [f"{name}=={version}" for name, version in least.items()]
        try:
            _run(python, *_PIP, "--only-binary", ":all:", *wanted, *exactly)
            return
        except UnbuiltError as error:
            name, version = _next_wheel(str(error), least)
            print(f"    {name} {least[name]} has NO WHEEL for this Python: taking {version}", flush=True)
            least = least | {name: version}


def _next_wheel(said: str, least: dict[str, str]) -> tuple[str, str]:
    """Of what pip did not find, the name, and the next version that has a wheel; UnbuiltError where pip failed else."""
    missing = re.search(r"No matching distribution found for ([\w.-]+)==", said)
    listed = re.search(r"\(from versions: ([^)]*)\)", said)
    if missing is not None and listed is not None and missing[1] in least:
        name = missing[1]
        for version in listed[1].split(", "):
            if re.fullmatch(r"[\d.]+", version) and _numbers(version) > _numbers(least[name]):
                return name, version
    raise UnbuiltError(said)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise UnbuiltError("\n".join((done.stdout + done.stderr).strip().splitlines()[-15:]))


# -- the tests ---------------------------------------------------------------------------------------------------------


def outcome(environment: Environment) -> str:
    """Build an environment and run the tests in it: "passed", "FAILED" or "NOT BUILT"."""
    print(f"== {environment.label}", flush=True)
    try:
        python = build(environment)
    except UnbuiltError as error:
        print(error)
        return "NOT BUILT"
    shown = f"from importlib.metadata import version as v; print(*(n + ' ' + v(n) for n in {[*lowest()]}), sep=', ')"
    subprocess.run([python, "-c", shown], check=True)
    tests = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET], check=False, cwd=ROOT)
    return "FAILED" if tests.returncode else "passed"


def main(which: list[str]) -> int:
    """Run the environments named; 1 if one of them failed."""
    outcomes = [(each, outcome(each)) for each in environments(which)]
    print()
    for environment, found in outcomes:
        print(f"{found:10}{environment.label}")
    wrong = {"FAILED", "NOT BUILT"}
    return int(any(found in wrong and (found == "FAILED" or each.promised) for each, found in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
