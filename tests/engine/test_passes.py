"""How often a log is gone through, told by a source that counts the steps it hands out."""

import contextlib

import numpy as np
import pytest
from commands import succeeds
from documents import ROOT, python_blocks

import ibcb
from ibcb.deciders import KINDS
from ibcb.log import BehaviorLog
from ibcb.log.disk import DiskLog
from ibcb.log.steps import index_of
from ibcb.report import facts
from ibcb.report.facts import Validating

STEPS = 4 * 120


class Counting:
    """A source that counts the steps it hands out; everything else is that of the source within."""

    def __init__(self, source, counts):
        self._source, self._counts = source, counts

    def __getattr__(self, name):
        return getattr(self._source, name)

    def batches(self, **how):
        return self._counted(self._source.batches(**how))

    def index(self):
        index = index_of(self._source)
        return index and index._replace(read=lambda groups: self._counted(index.read(groups)))

    def _counted(self, batches):
        for steps in batches:
            self._counts.append(len(steps.counts))
            yield steps


@pytest.fixture
def passes(monkeypatch):
    """A function that gives how often the log was gone through since it was last asked."""
    counts, begin = [], DiskLog.__init__

    def counting(self, source, *rest):
        begin(self, source if isinstance(source, Counting) else Counting(source, counts), *rest)

    def since():
        total = sum(counts) / STEPS
        counts.clear()
        return total

    monkeypatch.setattr(DiskLog, "__init__", counting)
    return since


@pytest.fixture
def memory_passes(monkeypatch):
    """The same of a log in memory: how often somebody asked it for its episodes or its parts."""
    asked, episodes, parts = [], BehaviorLog.episodes, BehaviorLog.parts

    def counting(method):
        def counted(self):
            asked.extend([1] if self.n_steps == STEPS else [])
            return method(self)

        return counted

    def since():
        total = len(asked)
        asked.clear()
        return total

    monkeypatch.setattr(BehaviorLog, "episodes", counting(episodes))
    monkeypatch.setattr(BehaviorLog, "parts", counting(parts))
    return since


def named(log):
    """With names for its features, which say how many there are."""
    return BehaviorLog.from_episodes(
        [(each.contexts.reshape(120, -1, 4), each.chosen) for _, each in log.episodes()],
        warmup=log.warmup,
        feature_names=("price", "stars", "age", "distance"),
    )


@pytest.fixture(scope="module", params=["log.parquet", "log.csv"])
def path(request, tmp_path_factory):
    """A file whose episodes can be found at once, and one that must be read from its beginning."""
    sizes = {"n_episodes": 3, "batch_size": 120, "n_features": 4, "warmup": 120}
    path = tmp_path_factory.mktemp("passes") / request.param
    log = ibcb.simulate("synthetic", expert="sbucb", seed=3, noise=0.01, **sizes).log
    assert log.n_steps == STEPS
    ibcb.write_log(named(log), path)
    return path


#: parameters of a fit, and the passes that it needs
FITS = [
    pytest.param({"expert": "sbucb", "l2": 0.3, "solver": "robust"}, 1, id="named"),
    pytest.param({"expert": "sbts", "l2": 0.3, "solver": "robust"}, 1, id="another"),
    pytest.param({"expert": "sbucb", "l2": 0.3, "forecast": None, "solver": "soft"}, 1, id="Algorithm 2"),
    pytest.param({"expert": "sbucb", "solver": "robust"}, 2, id="l2 open"),
    pytest.param({"expert": "auto", "solver": "robust"}, 2, id="all open"),
    pytest.param({"expert": "stationary"}, 2, id="only tracked"),
]


@pytest.mark.parametrize("given, expected", FITS)
def test_a_fit_with_its_verdict_and_its_warnings(path, passes, given, expected):
    """One pass where everything is named, one more where something is open."""
    log = ibcb.open_log(path)
    model = ibcb.IBCB(**given).fit_along(log, judge=True, also=[Validating()])
    assert model.verdict(log).level in ("good", "fair", "poor")
    assert passes() == expected


def test_features_without_names_are_counted_without_reading(tmp_path, passes):
    X = np.random.default_rng(0).normal(size=(4, 120, 5, 3))
    ibcb.write_log(
        BehaviorLog.from_episodes([(each, each[..., 0].argmax(axis=1)) for each in X]), tmp_path / "x.parquet"
    )
    log = ibcb.open_log(tmp_path / "x.parquet")
    assert (log.n_features, len(log), passes()) == (3, 4, 0)
    ibcb.IBCB(expert="softmax", l2=0.3, solver="robust").fit(log)
    assert passes() == 1


@pytest.mark.parametrize("given, expected", FITS)
def test_in_memory(path, passes, memory_passes, given, expected):
    log = ibcb.read_log(path)
    assert passes() == 1
    model = ibcb.IBCB(**given).fit_along(log, judge=True, also=[Validating()])
    model.verdict(log)
    assert memory_passes() == expected
    assert passes() == 0


def test_the_robust_solver_follows_in_one_more(tmp_path, passes):
    """Where choices contradict each other, under solver="auto"."""
    log = ibcb.simulate("synthetic", expert="sbucb", seed=3, n_episodes=4, batch_size=120, n_features=4, warmup=0).log
    rng, chosen = np.random.default_rng(0), log.chosen.copy()
    chosen[::5] = rng.integers(log.candidates_per_step, size=len(chosen[::5]))
    X = log.contexts.reshape(4, 120, -1, log.n_features)
    log = named(BehaviorLog.from_episodes(zip(X, chosen.reshape(4, 120), strict=True)))
    ibcb.write_log(log, tmp_path / "log.parquet")
    disk = ibcb.open_log(tmp_path / "log.parquet")
    model = ibcb.IBCB(expert="sbucb", l2=0.3).fit_along(disk, judge=True, also=[Validating()])
    assert model.solver_ == "robust"
    model.verdict(disk)
    assert passes() == 2


def test_what_is_asked_of_a_model_afterwards(path, passes, tmp_path):
    log = ibcb.open_log(path)
    model = ibcb.IBCB(expert="sbucb", l2=0.3).fit(log)
    passes()
    for asked in (
        lambda: model.propensities(log),
        lambda: model.propensities(log, ahead=True),
        lambda: facts(model, log, also=[Validating()]),
        lambda: model.verdict(log),
        lambda: ibcb.validate(log),
    ):
        asked()
        assert passes() == 1
    len(log)
    assert passes() == (path.suffix == ".csv")


@pytest.fixture(params=["softucb", "forgetful"])
def own(request):
    """A rule and a past of one's own, as the documentation has them."""
    names = {}
    for code in python_blocks(ROOT / "docs" / "howto" / "add-a-decider.md"):
        if "class " in code:
            exec(code, names)
    yield request.param
    for kind in ("softucb", "forgetful"):
        KINDS.pop(kind, None)


def test_deciders_of_ones_own(path, passes, own):
    log = ibcb.open_log(path)
    for given, expected in (
        ({"expert": own, "l2": 0.3, "solver": "robust"}, 1),
        ({"expert": "auto", "solver": "robust"}, 2),
    ):
        model = ibcb.IBCB(**given).fit_along(log, judge=True, also=[Validating()])
        model.verdict(log)
        assert passes() == expected
        assert own in {model.expert_, *(each.expert for each in model.evidence_)}
        model.propensities(log)
        assert passes() == 1
        facts(model, log)
        assert passes() == 1


def test_the_command_line(path, passes, tmp_path):
    model = tmp_path / "model.safetensors"
    named = ("--expert", "sbucb", "--l2", "0.3", "--solver", "robust", "-o", model)
    for arguments in (
        ("fit", path, *named),
        ("fit", path, *named, "--stream"),
        ("propensities", model, path, "--ahead", "-o", tmp_path / "table.csv"),
        ("report", model, "--log", path, "-o", tmp_path / "page.html"),
        ("evaluate", model, path),
    ):
        succeeds(*arguments)
        assert passes() == 1, arguments


def test_on_a_cluster(path, passes):
    distributed = pytest.importorskip("distributed")
    log = ibcb.open_log(path)
    with contextlib.ExitStack() as stack:
        options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
        client = stack.enter_context(distributed.Client(**options))
        for given in ({}, {"judge": True, "also": [Validating()]}):
            ibcb.IBCB(expert="sbucb", l2=0.3, solver="robust").fit_along(log, client=client, **given)
            assert passes() == 1, given


def test_contexts_are_checked_for_finiteness_once(path, monkeypatch):
    """Reading and fitting together look once at each number."""
    looked, isfinite = [], np.isfinite

    def counting(values, *rest, **how):
        looked.append(np.size(values))
        return isfinite(values, *rest, **how)

    monkeypatch.setattr(np, "isfinite", counting)
    log = ibcb.read_log(path)
    assert sum(size for size in looked if size > STEPS) <= log.contexts.size
    looked.clear()
    ibcb.IBCB(expert="sbucb", l2=0.3).fit(log)
    assert max(looked) < log.contexts.size
