"""Mutants: one number or one step of the source is changed, and the tests must notice.

    make mutants                           # all of them
    make mutants WHICH="tracking deciders" # those whose name contains one of these texts

Each mutant replaces a text that stands once in one file. It is applied to a copy of the source, against which the tests
of the rooms that it names are run, all of them part of `make test`. A mutant that every test passes has survived: some
number may be moved far without anybody noticing. Exits with 1 if more than one in ten survive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
#: share of the mutants that the tests must kill
KILLED = 0.9
SIDE_BY_SIDE = 2


class Mutant(NamedTuple):
    """A change of the source, and the tests that ought to fail with it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old} -> {new or 'nothing'}"


def mutants(path: Path = LIST) -> list[Mutant]:
    """Those of the list; ValueError where the text of one does not stand exactly once in its file."""
    listed = [
        Mutant(each["file"], each["old"], each["new"], tuple(each["tests"]))
        for each in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
    for mutant in listed:
        count = (ROOT / "src" / "ibcb" / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if count != 1:
            raise ValueError(f"{mutant.name}: its text stands {count} times in the file; it must stand there once.")
        missing = [test for test in mutant.tests if not (ROOT / test).exists()]
        if missing or not mutant.tests:
            raise ValueError(f"{mutant.name}: there are no tests {', '.join(missing) or 'named'}.")
    return listed


def outcome(mutant: Mutant) -> str:
    """ "killed" where a test fails with the mutant, "survived" where all pass, else what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "ibcb" / mutant.file
        file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        return {0: "survived", 1: "killed"}.get(_tested(source, mutant.tests), "BROKEN")


def _tested(source: Path, tests: tuple[str, ...]) -> int:
    """What pytest exits with, of some tests against a source."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    return done.returncode


def main(which: list[str]) -> int:
    """Run the mutants whose names contain one of some texts, or all; 1 if too many survive."""
    chosen = [mutant for mutant in mutants() if not which or any(text in mutant.name for text in which)]
    needed = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
    if _tested(ROOT / "src", needed):
        print("the tests fail without any mutant; mend that first.")
        return 1
    outcomes = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for mutant, found in zip(chosen, pool.map(outcome, chosen), strict=True):
            outcomes.append(found)
            print(f"{found:10}{mutant.name}", flush=True)
    killed = outcomes.count("killed")
    print(f"\n{killed} of {len(outcomes)} mutants killed")
    return int(killed < KILLED * len(outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
