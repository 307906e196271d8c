"""The page on the architecture is true of the tree, and what it says can be added can be."""

import ast
import importlib
import inspect
import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from documents import ROOT
from replayed import tracked

import ibcb
from ibcb.deciders import KINDS, Family, Kind, Motions, Past, Rule, Scales, Words, experts
from ibcb.deciders.kind import grid
from ibcb.deciders.softmax import SoftmaxOfAnyone
from ibcb.inverse.solvers import SOLVERS
from ibcb.io import formats
from ibcb.io.format import Format, Tables
from ibcb.log import Log
from ibcb.tracking.motions import MOTIONS, Motion, RandomWalk

SOURCE = ROOT / "src" / "ibcb"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: how many files each addition may touch
MOST = {
    "A kind of decider": 2,
    "A format": 2,
    "A solver": 3,
    "A motion": 2,
    "A section of the report": 3,
    "An engine": 3,
}


def rooms():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [layer.removeprefix("ibcb.") for layer in layers if (SOURCE / layer.removeprefix("ibcb.")).is_dir()]


def drawn(heading):
    """The first picture of a section."""
    return PAGE.partition(f"## {heading}\n")[2].partition("```text\n")[2].partition("```")[0]


def strings(path):
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}


def test_the_page_begins_with_a_sentence_whose_every_word_is_code():
    head = PAGE.partition("## ")[0]
    (sentence,) = re.findall(r"^\*\*([^*]+)\*\*$", head, flags=re.MULTILINE)
    assert head.index(sentence) < head.index("|")
    assert sentence.count(". ") == 0
    told = " ".join(sentence.split())
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", head, flags=re.MULTILINE)[1:]
    assert len(rows) == 9
    for words, places in rows:
        assert all(word in told for word in words.split(", ")), words
        for place in re.findall(r"`([\w.]+)`", places):
            module, _, name = place.rpartition(".")
            assert callable(getattr(importlib.import_module(module), name)), place


def test_the_picture_has_every_room_in_the_order_of_the_contract():
    assert re.findall(r"│ (\w+) ", drawn("Eleven rooms")) == rooms()
    assert {folder.parent.name for folder in SOURCE.glob("*/__init__.py")} == set(rooms())
    assert len(rooms()) == 11


def test_rewards_are_above_the_line_of_the_picture():
    above, _, below = drawn("Eleven rooms").partition("no rewards below this line")
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][1]
    assert contract["forbidden_modules"] == ["ibcb.paper"]
    assert re.findall(r"│ (\w+) ", below) == [name.removeprefix("ibcb.") for name in contract["source_modules"]]
    assert "│ paper " in above


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"(?<![\w./])(?:[a-z_]+/)+[a-z_]+\.(?:py|html|js|css)", PAGE)
    new = {path for path in named if "/your_" in path}
    known = set(named) - new - {"ibcb/__init__.py", "tests/test_architecture.py"}
    assert len(known) > 25
    assert [path for path in sorted(known) if not (SOURCE / path).is_file()] == []
    assert all((SOURCE / path).parent.is_dir() for path in new)


@pytest.mark.parametrize("heading", MOST)
def test_additions_touch_no_more_files_than_they_may(heading):
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    files = re.findall(r"^- `([\w/.]+)`", section, re.M)
    assert 0 < len(files) <= MOST[heading]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(
    "names, homes",
    [
        ({*KINDS}, {"deciders"}),
        ({*SOLVERS}, {"inverse/solvers"}),
        ({format.suffixes[0] for format in formats.FORMATS if format.suffixes}, {"io"}),
    ],
    ids=["kinds", "solvers", "formats"],
)
def test_what_is_registered_is_listed_nowhere_else(names, homes):
    """Or adding one would touch that file too."""
    files = [path for path in SOURCE.rglob("*.py") if names <= strings(path)]
    listed = {path.relative_to(SOURCE).as_posix() for path in files}
    assert {path for path in listed if not any(path.startswith(home) for home in homes)} == set()


# -- additions, made ---------------------------------------------------------------------------------------------------


STUBBORN = Kind(
    name="stubborn",
    key="stubborn",
    rule=SoftmaxOfAnyone(),
    motions=Motions(
        (
            Family("walk", grid((0.01, 0.1)), early=(0.1,), few=grid((0.1,))),
            Family("still", grid((0.0,)), early=(0.0,), few=grid((0.0,))),
        )
    ),
    scales=Scales(policy=10.0),
    words=Words("a decider that hardly changes its mind", "is stubborn"),
)


@pytest.fixture
def stubborn(monkeypatch):
    monkeypatch.setitem(KINDS, "stubborn", STUBBORN)
    rng = np.random.default_rng(0)
    sets = rng.normal(size=(6, 150, 4, 3))
    noise = rng.gumbel(scale=0.3, size=(6, 150, 4))
    chosen = (sets @ [1.0, -2.0, 0.5] + noise).argmax(axis=2)
    return ibcb.BehaviorLog.from_episodes(list(zip(sets, chosen, strict=True)))


def test_a_new_kind_is_fitted_stored_and_reported(stubborn, tmp_path):
    model = ibcb.IBCB(expert="stubborn").fit(stubborn)
    assert model.decider_.rule == STUBBORN.rule
    assert model.score(stubborn) > 0.8
    ibcb.save_model(model, tmp_path / "m.safetensors")
    again = ibcb.load_model(tmp_path / "m.safetensors")
    assert again.decider_ == model.decider_
    np.testing.assert_array_equal(again.forecast(3), model.forecast(3))
    ibcb.report.write_report(again, stubborn, tmp_path / "page.html")
    assert "is stubborn" in (tmp_path / "page.html").read_text()


def test_a_new_kind_takes_part_in_the_choice_of_kinds(stubborn):
    model = ibcb.IBCB(expert="auto").fit(stubborn)
    assert "stubborn" in {candidate.expert for candidate in model.evidence_}


def test_a_new_format_is_read_and_fitted_as_any_other(monkeypatch, tmp_path):
    def tables(path, options):
        header, *lines = path.read_text().splitlines()
        rows = [line.split("~") for line in lines]
        columns = dict(zip(header.split("~"), zip(*rows, strict=True), strict=True))
        table = pa.table({name: pa.array([json.loads(value) for value in values]) for name, values in columns.items()})
        return Tables(path.name, table.schema, lambda names: iter([table.select(list(names))]))

    tilde = Format(name="tilde file", suffixes=(".tilde",), tables=tables)
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, tilde))
    log = ibcb.simulate(n_episodes=3, batch_size=20, seed=0).log
    ibcb.write_log(log, tmp_path / "log.csv")
    (tmp_path / "log.tilde").write_text((tmp_path / "log.csv").read_text().replace(",", "~").replace('"', ""))
    read = ibcb.read_log(tmp_path / "log.tilde")
    np.testing.assert_array_equal(read.contexts, log.contexts)
    np.testing.assert_array_equal(ibcb.IBCB().fit(read).coef_, ibcb.IBCB().fit(log).coef_)
    (tmp_path / "log.other").write_text("")
    with pytest.raises(ibcb.LogFormatError, match=r"\.tilde"):
        ibcb.read_log(tmp_path / "log.other")


def test_a_new_motion_is_tracked_beside_the_others(monkeypatch):
    class Shrinking(RandomWalk):
        """Forgets a tenth of its policy with every update."""

        def move(self, beliefs, unit, lesson):
            moved = super().move(beliefs, unit, lesson)
            return type(moved)(0.9 * moved.mean, moved.covariance)

    def shrinking(kind, models):
        return Shrinking(kind, "shrinking", tuple(model[0] for model in models))

    walk, learner = KINDS["sbts"].motions.families
    family = Family("shrinking", grid((0.1, 1.0)), early=(1.0,), few=grid((1.0,)))
    forgetful = KINDS["sbts"](motions=Motions((walk, family, learner)), l2=0.3)

    monkeypatch.setitem(MOTIONS, "shrinking", shrinking)
    run = ibcb.simulate(expert="sbts", n_episodes=4, batch_size=100, seed=0)
    track = tracked(run.log, forgetful)
    names = track.models.names
    assert [name for name in names if name.startswith("shrinking")] == ["shrinking(q=0.1)", "shrinking(q=1)"]
    assert len(track.seen.evidence) == len(names)
    assert np.isfinite(track.next_policy).all()


# -- names in the source -----------------------------------------------------------------------------------------------


def nodes(kind):
    trees = [ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, kind)]


def repeated(names):
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_modules_share_a_file_name():
    assert repeated(path.name for path in SOURCE.rglob("*.py") if path.name != "__init__.py") == []


def test_no_two_classes_share_a_name():
    assert repeated(node.name for node in nodes(ast.ClassDef)) == []


def test_every_variable_says_what_it_is():
    assigned = [node.id for node in nodes(ast.Name) if isinstance(node.ctx, ast.Store)]
    assert "found" not in {*assigned, *(node.arg for node in nodes(ast.arg))}


# -- what nobody asks --------------------------------------------------------------------------------------------------


def subclasses(base):
    return {one for each in base.__subclasses__() for one in (each, *subclasses(each))}


def asked_for(classes):
    """Rooms that ask with isinstance whether something is of one of these classes."""
    names = {each.__name__ for each in classes}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                wanted = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])}
                if wanted & names:
                    yield path.relative_to(SOURCE).parts[0]


def test_only_the_room_of_logs_asks_which_log_something_is():
    assert {each.__name__ for each in subclasses(Log)} >= {"BehaviorLog", "DiskLog"}
    assert {*asked_for({Log, *subclasses(Log)})} == {"log"}


def test_nobody_asks_which_part_a_decider_has():
    parts = {each for base in (Rule, Motion, Past) for each in subclasses(base)}
    assert parts >= {SoftmaxOfAnyone, RandomWalk}
    assert {*asked_for(parts)} == set()


def test_no_kind_is_told_by_its_name():
    names = {*KINDS, *experts()}
    asked = [(node, part) for node in nodes(ast.Compare) for part in ast.walk(node) if isinstance(part, ast.Constant)]
    assert [ast.unparse(node) for node, part in asked if isinstance(part.value, str) and part.value in names] == []


# -- names in documents ------------------------------------------------------------------------------------------------

NAME = re.compile(r"(?<![\w/.+-])ibcb(?:\.[A-Za-z_]\w*)+")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *SOURCE.glob("**/*.md")]


def resolves(name):
    """Whether a dotted name is a module, or an attribute or a field of something that is."""
    thing, done = ibcb, "ibcb"
    for part in name.split(".")[1:]:
        done = f"{done}.{part}"
        if part in getattr(thing, "__annotations__", {}):
            return True
        if not hasattr(thing, part):
            try:
                importlib.import_module(done)
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


def unresolved(texts):
    return sorted({name for text in texts for name in NAME.findall(text) if not resolves(name)})


def test_names_are_told_from_mere_words():
    assert resolves("ibcb.io.vw")
    assert resolves("ibcb.numerics.ridge.Ridge.phi")
    assert not resolves("ibcb.tracking.Pursuit")
    assert unresolved(["`ibcb.nothing` and ibcb.IBCB(l2=0.3)", "log.ibcb.org"]) == ["ibcb.nothing"]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_name_in_a_document_exists(page):
    assert unresolved([page.read_text(encoding="utf-8")]) == []


def docstrings(path):
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield inspect.cleandoc(ast.get_docstring(node) or "")


def test_every_name_in_a_docstring_exists():
    assert unresolved(text for path in SOURCE.rglob("*.py") for text in docstrings(path)) == []
