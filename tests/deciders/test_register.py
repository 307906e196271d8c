"""Rules of one's own become kinds: checked when they are registered, known wherever kinds are named."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

import ibcb
from ibcb.cli import app
from ibcb.deciders import KINDS, Rule, SoftmaxOfScores, Words, experts, register
from ibcb.deciders import kinds as rows
from ibcb.deciders.kinds import _PARTS as PARTS
from ibcb.deciders.kinds import Register


@dataclass(frozen=True)
class Hesitant(SoftmaxOfScores):
    name = "hesitant"
    words = Words("the decider hesitates", "hesitates")


@pytest.fixture
def hesitant():
    register(Hesitant)
    yield KINDS["hesitant"]
    del KINDS["hesitant"]


def test_a_registered_rule_is_a_kind_like_any_other(hesitant):
    assert "hesitant" in experts()
    assert (hesitant.name, hesitant.key, hesitant.rule) == ("hesitant", "hesitant", Hesitant())
    assert hesitant.learns
    assert [family.motion for family in hesitant.motions.families] == [
        *(family.motion for family in KINDS["other"].motions.families),
        "learner",
    ]
    log = ibcb.simulate(expert="softmax", n_episodes=3, batch_size=60, n_features=3, warmup=30, seed=0).log
    model = ibcb.IBCB(expert="hesitant", l2=0.3).fit(log)
    assert (model.expert_, model.decider_.label) == ("hesitant", "hesitant(l2=0.3)")
    assert "hesitant" in {each.expert for each in ibcb.IBCB(expert="auto").fit(log).evidence_}


@pytest.mark.parametrize("part", PARTS)
def test_a_rule_that_lacks_a_part_is_refused_by_its_name(part):
    parts = {name: getattr(Hesitant, name) for name in PARTS if name != part} | {"parameters": ()}
    parts.pop(part, None)
    with pytest.raises(TypeError, match=f"Lame is no choice rule: it has no '{part}'"):
        register(type("Lame", (), parts))
    assert "hesitant" not in KINDS


def test_an_abstract_rule_lacks_what_is_abstract():
    with pytest.raises(TypeError, match="Half is no choice rule: it has no 'observe'"):
        register(type("Half", (Rule,), {"name": "half", "parameters": (), "words": Hesitant.words}))


@pytest.mark.parametrize(
    "part, value, rule",
    [
        ("name", "two words", "a word"),
        ("name", 3, "a word"),
        ("parameters", ("alpha",), "tuple of Parameter"),
        ("words", "hesitates", "Words"),
        *((part, None, "must be a method") for part in ("columns", "observe", "probabilities", "live")),
    ],
)
def test_a_part_that_is_none_is_refused(part, value, rule):
    with pytest.raises(TypeError, match=rf"Odd\.{part} is .*{rule}"):
        register(type("Odd", (Hesitant,), {part: value}))


@pytest.mark.parametrize("name", ["sbts", "auto", "other"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(ValueError, match=f"{name!r} already; give it another name"):
        register(type("Again", (Hesitant,), {"name": name}))
    with pytest.raises(ValueError, match=f"{name!r} already; give it another name"):
        register(KINDS["sbucb"], name=name)


def test_rules_of_installed_packages_are_loaded_once_and_only_when_asked(monkeypatch):
    loaded = []

    class Point(EntryPoint):
        def load(self):
            loaded.append(self.name)
            return Hesitant

    points = [Point("hesitant", "somewhere:Hesitant", "ibcb.deciders")]
    monkeypatch.setattr(rows, "entry_points", lambda group: points if group == "ibcb.deciders" else [])
    kinds = Register()
    assert loaded == []
    assert "hesitant" in kinds
    assert [*kinds][-1] == "hesitant"
    assert kinds["hesitant"].rule == Hesitant()
    assert loaded == ["hesitant"]


def test_an_entry_point_that_fails_is_named(monkeypatch):
    points = [EntryPoint("lost", "ibcb.nowhere:Rule", "ibcb.deciders")]
    monkeypatch.setattr(rows, "entry_points", lambda group: points)
    kinds = Register()
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError) as error:
            len(kinds)
        assert "lost = ibcb.nowhere:Rule" in error.value.__notes__[0]


def test_the_command_line_knows_a_registered_rule(hesitant, tmp_path):
    log = ibcb.simulate(expert="softmax", n_episodes=3, batch_size=60, n_features=3, warmup=30, seed=0).log
    ibcb.write_log(log, tmp_path / "log.parquet")
    asked = ["fit", str(tmp_path / "log.parquet"), "--expert", "hesitant", "--l2", "0.3"]
    result = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "m.safetensors")])
    assert result.exit_code == 0, result.output
    assert ibcb.load_model(tmp_path / "m.safetensors").expert_ == "hesitant"
