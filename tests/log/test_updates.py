"""find_updates: edges and schedules that were, none where nothing changes; recut and episodes="auto" use them."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from commands import ibcb_command, succeeds
from conftest import slow, small_run
from scipy.special import logsumexp

import ibcb
from ibcb import BehaviorLog, LogFormatError, find_updates
from ibcb.io import formats
from ibcb.log.fingerprint import log_fingerprint
from ibcb.log.steps import seconds_since_1970
from ibcb.log.validation import updates as module
from ibcb.log.validation.constancy import Sample, change_at, find_change
from ibcb.log.validation.updates.evidence import PACES, CutEvidence
from ibcb.log.validation.updates.search import Schedule, log_prior
from ibcb.numerics.contexts import is_sparse

DAY = 86_400


def same_log(one, other):
    """Whether two logs say the same, in the same episodes."""
    return log_fingerprint(one) == log_fingerprint(other)


@cache
def hidden(expert="sbucb"):
    """A log of six episodes of 250 steps, and the same steps in one."""
    log = ibcb.simulate("synthetic", expert=expert, n_episodes=6, batch_size=250, warmup=300, seed=0).log
    return log, log.recut([0])


def learned(edges, steps, seed=0, d=4, M=6):
    """Contexts and choices of an SBUCB decider that is updated at some steps and knows nothing at first."""
    rng = np.random.default_rng([seed, 3])
    truth, decider = rng.normal(size=d), ibcb.SBUCB(d, alpha=0.5, l2=1.0)
    X, chosen = rng.normal(size=(steps, M, d)), np.empty(steps, dtype=np.int64)
    for first, last in pairwise([*edges, steps]):
        chosen[first:last] = decider.act(X[first:last])
        S = X[np.arange(first, last), chosen[first:last]]
        decider.update(S, S @ truth + 4 * rng.normal(size=last - first))
    return X, chosen


def stationary(how, steps=1500):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(steps, 6, 4))
    if "drifting" in how:
        late = np.linspace(0, 1, steps)[:, None, None]
        X = X * (1 + 2 * late * rng.random(4)) + 2 * np.sin(4 * late + 2 * rng.normal(size=4)) * rng.normal(size=4)
    scores = X @ rng.normal(size=4)
    if "softmax" in how:
        scores = scores + rng.gumbel(size=scores.shape)
    if "bonus" in how:
        scores = scores + 2 * np.sqrt(np.einsum("tmi,i,tmi->tm", X, [0.2, 1.0, 3.0, 0.5], X))
    chosen = scores.argmax(axis=1)
    if "egreedy" in how:
        chosen = np.where(rng.random(steps) < 0.1, rng.integers(6, size=steps), chosen)
    return BehaviorLog.from_episodes([(X, chosen)])


def nightly(zone, start, hour=3, steps=1500, a_day=150):
    """Irregular times, and the first step of every episode of a policy that is updated at a local hour."""
    rng = np.random.default_rng(11)
    seconds = np.datetime64(start, "s").astype(np.int64) + np.cumsum(rng.exponential(DAY / a_day, size=steps))
    local = [datetime.fromtimestamp(when, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) for when in seconds]
    # Wall clocks run back once: a night is over when a later one begins.
    nights = np.maximum.accumulate([(wall - timedelta(hours=hour)).toordinal() for wall in local])
    edges = np.concatenate([[0], np.flatnonzero(np.diff(nights)) + 1])
    return seconds, edges


# -- what is found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_hidden_edges_are_found(expert):
    log, one = hidden(expert)
    updates = find_updates(one)
    assert updates.edges.tolist() == list(range(0, 1500, 250))
    assert str(updates.schedule) == "every 250 steps"
    assert same_log(one.recut(updates.edges), log)
    assert [edge.step for edge in updates.evidence] == updates.edges[1:].tolist()
    assert updates.evidence[0].source == "choices"
    assert updates.log10_odds > 10
    assert next(note.code for note in updates.notes) == "updates-by-schedule"
    assert repr(updates) == "Updates(6 episodes, every 250 steps)"
    assert "every 250 steps" in str(updates)
    assert "\n      1250  " in str(updates)
    # The log's own episodes do not matter.
    again = find_updates(log)
    assert again.edges.tolist() == updates.edges.tolist()
    assert again.evidence == updates.evidence
    assert again.log10_odds == 0


def test_edges_that_follow_no_schedule():
    edges = np.array([0, 170, 520, 610, 1130])
    X, chosen = learned(edges, 1600, seed=2)
    updates = find_updates(BehaviorLog.from_episodes([(X, chosen)]))
    assert updates.schedule is None
    assert {note.code for note in updates.notes} == {"updates-irregular"}
    # What is found is there: late edges may be missed.
    assert updates.edges[0] == 0
    assert len(updates.edges) >= 3
    assert np.abs(updates.edges[:, None] - edges[None]).min(axis=1).max() <= 15


@pytest.mark.parametrize(
    "how", [slow("greedy"), slow("softmax"), "egreedy", slow("drifting softmax"), "drifting bonus"]
)
def test_nothing_changes(how):
    updates = find_updates(stationary(how))
    assert updates.edges.tolist() == [0]
    assert updates.schedule is None
    assert updates.evidence == ()
    assert [note.code for note in updates.notes] == ["no-updates"]
    assert repr(updates) == "Updates(1 episode)"


@pytest.mark.parametrize(
    "zone, start",
    [("UTC", "2024-01-10T14:20"), ("Europe/Berlin", "2024-03-28T14:20"), slow("Europe/Berlin", "2024-10-23T14:20")],
)
def test_every_night_also_where_clocks_change(zone, start):
    seconds, edges = nightly(zone, start)
    times = (seconds * 1e9).astype(np.int64).astype("datetime64[ns]") if zone == "UTC" else seconds
    log = BehaviorLog.from_episodes([learned(edges, len(seconds))], timestamps=times)
    updates = find_updates(log, zone=None if zone == "UTC" else zone)
    assert str(updates.schedule) == f"every day at 03:00 ({zone})"
    assert updates.edges.tolist() == edges.tolist()


def test_times_of_all_kinds_are_seconds():
    seconds = np.array([1.7e9, 1.7e9 + 0.25, 1.8e9])
    exact = (seconds * 1e6).astype(np.int64)
    texts = np.array([str(np.datetime64(int(when), "us")) for when in exact])
    for times in (seconds, exact, exact // 1000, exact.astype("datetime64[us]"), texts):
        assert seconds_since_1970(times).tolist() == seconds.tolist()
    for times in (np.array([1.0, np.nan]), np.array(["soon"]), np.array(["2024-01-01", "NaT"], dtype="datetime64[s]")):
        assert seconds_since_1970(times) is None


@pytest.mark.parametrize(
    ("zone", "start", "hour"),
    [
        ("Europe/Berlin", "2024-03-05T14:20", 2),
        ("America/New_York", "2024-10-01T14:20", 3),
        ("Australia/Lord_Howe", "2024-03-05T14:20", 14),
    ],
)
def test_edges_of_a_schedule_are_first_at_the_local_hour(zone, start, hour):
    seconds, edges = nightly(zone, start, hour, steps=3000, a_day=70)
    found = Schedule("seconds", DAY, hour * 3600, zone).edges(len(seconds), seconds)
    # An hour that clocks skip comes an hour later, one that they repeat counts once.
    differ = np.setxor1d(found, edges)
    assert len(differ) <= 2 if hour == 2 else len(differ) == 0


def test_times_that_cannot_be_used():
    _, one = hidden()
    backwards = np.arange(one.n_steps)[::-1] * 3600.0
    missing = np.where(np.arange(one.n_steps) == 700, np.nan, np.arange(one.n_steps))
    for times, why in ((backwards, "run backwards"), (missing, "missing")):
        updates = find_updates(one._with(timestamps=times))
        assert updates.edges.tolist() == list(range(0, 1500, 250))
        (note,) = [note for note in updates.notes if note.code == "times-unused"]
        assert why in note.text
        assert note.severity == "warning"


def test_some_steps_of_a_long_log_suffice(monkeypatch):
    _, one = hidden()
    monkeypatch.setattr(module, "_MOST_STEPS", 1000)
    updates = find_updates(one)
    assert updates.edges.tolist() == list(range(0, 1500, 250))
    (note,) = [note for note in updates.notes if note.code == "sampled-steps"]
    assert note.figures == {"steps": 1500, "sampled": 750}


def test_too_little_to_tell():
    few = find_updates(small_run().log[:1].recut([0, 10]))
    assert few.edges.tolist() == [0]
    contexts = np.random.default_rng(0).normal(size=(200, 3, 2))
    for code, X in (
        ("too-few-steps", contexts[:30]),
        ("too-large", contexts * 1e150),
        ("equal-candidates", np.ones((300, 3, 2))),
    ):
        updates = find_updates(BehaviorLog.from_episodes([(X, np.zeros(len(X), dtype=int))]))
        assert [note.code for note in updates.notes] == [code]


def test_wide_and_sparse_logs():
    # Arms with weights of their own: the first batch knows nothing, and the rest hardly moves.
    rng = np.random.default_rng(3)
    X, arm = rng.normal(size=(800, 8)), rng.integers(20, size=800)
    arm[300:] = (X[300:] @ rng.normal(size=(8, 20))).argmax(axis=1)
    log = BehaviorLog.from_arms([(X, arm)], n_arms=20)
    assert is_sparse(log.contexts)
    assert log.n_features == 160
    found = find_updates(log).edges.tolist()
    assert len(found) == 2
    assert abs(found[1] - 300) <= 10


def test_what_find_updates_refuses():
    with pytest.raises(TypeError, match=r"got ndarray; open a file with ibcb\.open_log"):
        find_updates(np.ones((3, 3)))
    with pytest.raises(ValueError, match="zone='Middle/Earth' is not a known time zone.*Europe/Berlin"):
        find_updates(hidden()[1], zone="Middle/Earth")


# -- how it is judged ----------------------------------------------------------------------------------------------


def walk():
    log = small_run(n_episodes=2, batch_size=150, warmup=0).log
    steps = log.recut([0])
    return CutEvidence(Sample.of(steps, np.arange(steps.n_steps), 0))


def test_the_expansion_is_exact_where_it_is_made():
    found = walk()
    found.expand([0, 150])
    # Within a block of the expansion the weights are the same, and the log-likelihood at them is that of the logit.
    first, last, w = 100, 150, found._reference[100]
    assert (found._reference[first:last] == w).all()
    c, h, H = (sums[last] - sums[first] for sums in (found._c, found._h, found._H))
    scores = (found.sample.contexts @ w).reshape(-1, 7)[first:last]
    probability = np.exp(scores[:, 0] - logsumexp(scores, axis=1))
    exact = np.log((1 - found.stray) * probability + found.stray / 7).sum()
    assert c + h @ w - w @ H @ w / 2 == pytest.approx(exact)


def test_evidence_is_the_integral_over_all_policies():
    found = walk()
    cut, pace = [0, 90, 200], PACES[12]
    found.pace = pace
    q, ends = found.q, [*cut, found.n]
    # The policies of all episodes at once: their prior covariance, and the quadratic form of the choices.
    steps = [30.0, *(pace.variance * (b - a) / 1000 * (1000 / (b + 100)) ** pace.settling for a, b in pairwise(cut))]
    prior = np.array([[sum(steps[: min(i, j) + 1]) for j in range(3)] for i in range(3)])
    covariance = np.kron(prior, np.eye(q))
    H = np.zeros((3 * q, 3 * q))
    for place, (first, last) in enumerate(pairwise(ends)):
        some = slice(place * q, (place + 1) * q)
        H[some, some] = found._H[last] - found._H[first]
    h = np.concatenate([found._h[last] - found._h[first] for first, last in pairwise(ends)])
    expected = found._c[-1] + h @ np.linalg.solve(np.linalg.inv(covariance) + H, h) / 2
    expected -= np.linalg.slogdet(np.eye(3 * q) + covariance @ H)[1] / 2
    assert found.evidence(cut) == pytest.approx(expected)
    assert found.evidences([[0], cut, [0, 90]])[1] == pytest.approx(expected)


def test_a_change_at_a_step_is_the_change_found_there():
    _, one = hidden()
    sample = Sample.of(one[0]._slice(1, 2), np.arange(500), 0)
    change = find_change(sample)
    # At the place where it is largest, and nowhere else, a change needs no allowance for having been looked for.
    assert change_at(sample, change.step) < change.log10_p < -3
    assert abs(change.step - 250) < 25
    assert change_at(sample, change.step + 100) > change_at(sample, change.step)
    assert change_at(sample, 3) is None


def test_round_numbers_come_first():
    def steps(*numbers):
        return log_prior(Schedule("steps", *numbers))

    assert steps(400, 400) > steps(410, 410) > steps(413, 413) > steps(413, 217)
    hours = [
        log_prior(Schedule("seconds", DAY, offset)) for offset in (3 * 3600, 12_600, 11_700, 11_100, 11_160, 11_161)
    ]
    assert hours == sorted(hours, reverse=True)
    assert log_prior(Schedule("seconds", DAY, 0)) > log_prior(
        Schedule("seconds", DAY, 0, "Europe/Berlin"), guessed=True
    )


def test_schedules_in_words():
    words = {
        Schedule("steps", 400, 400): "every 400 steps",
        Schedule("steps", 400, 137): "every 400 steps, first at step 137",
        Schedule("seconds", 7 * DAY, 4 * DAY + 5400, "UTC"): "every Monday at 01:30 (UTC)",
        Schedule("seconds", 6 * 3600, 1800): "every 6 h, such as 00:30 (UTC)",
    }
    assert [str(schedule) for schedule in words] == list(words.values())
    monday = Schedule("seconds", 7 * DAY, 4 * DAY + 5400)._instants(1.7e9, 1.7e9 + 21 * DAY)
    assert {datetime.fromtimestamp(when, UTC).strftime("%A %H:%M") for when in monday} == {"Monday 01:30"}


# -- recut ---------------------------------------------------------------------------------------------------------


def test_recut_keeps_steps_and_warmup():
    log = small_run().log
    other = log.recut([0, 7, 300])
    assert len(other) == 3
    assert other.warmup == log.warmup
    assert other.episode_offsets.tolist() == [0, 200, 207, 500, log.n_steps]
    assert np.shares_memory(other.contexts, log.contexts)
    assert same_log(other.recut(log.episode_offsets[1:-1] - 200), log)
    # Errors of a part that was cut name its episodes as they are now.
    assert other[1:].recut([0]).n_steps == log.n_steps - 207


BAD_EDGES = {
    "empty": ([], "edges is empty; give the first step of every episode.*or \\[0\\]"),
    "late": ([3, 10], "edges begins with 3; the first episode begins with step 0"),
    "falling": ([0, 20, 10], r"edges\[2\] is 10, after 20; edges must rise: give"),
    "twice": ([0, 20, 20], r"edges\[2\] is 20, after 20; edges must rise"),
    "beyond": ([0, 720], r"edges\[1\] is 720, but after the warm-up the log has 720 steps, 0 to 719; leave it out"),
    "fraction": ([0, 1.5], "1.5; it must be a whole number"),
    "text": ("soon", "'soon'"),
    "table": ([[0, 1]], r"edges is \[\[0, 1\]\]; give"),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_edges_that_are_none(case, tmp_path):
    edges, message = BAD_EDGES[case]
    log = small_run().log
    with pytest.raises(LogFormatError, match=message):
        log.recut(edges)
    ibcb.write_log(log, tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=message):
        ibcb.read_log(tmp_path / "log.parquet", episodes=edges)


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", slow("log.npz")])
def test_a_log_is_cut_as_it_is_read(tmp_path, monkeypatch, name):
    log, one = hidden()
    ibcb.write_log(one, tmp_path / name)
    given = ibcb.read_log(tmp_path / name, episodes=[0, 100, 1000])
    assert given.episode_offsets.tolist() == one.recut([0, 100, 1000]).episode_offsets.tolist()
    found = ibcb.open_log(tmp_path / name, episodes="auto")
    assert [note.code for note in found.notes] == ["updates-by-schedule"]
    read = found.read()
    assert read.episode_offsets.tolist() == log.episode_offsets.tolist()
    assert read.warmup == 1
    assert read.notes == found.notes
    # Part by part, and again without another search.
    monkeypatch.setattr(formats, "find_updates", None)
    assert [number for number, _ in found.parts()] == [-1, 0, 1, 2, 3, 4, 5]
    assert same_log(found.read(), read)
    assert same_log(ibcb.read_log(tmp_path / name, episodes=[*range(0, 1500, 250)]), read)


def test_without_labels_the_warmup_is_the_beginning_of_the_cut(tmp_path):
    X, chosen = learned(range(0, 600, 200), 600, seed=1)
    ibcb.write_log(BehaviorLog.from_episodes([(X, chosen)]), tmp_path / "log.vw")
    given = ibcb.read_log(tmp_path / "log.vw", episodes=[0, 50, 150], warmup=1)
    assert given.warmup == 1
    assert given.episode_offsets.tolist() == [0, 50, 150, 600]
    with pytest.raises(LogFormatError, match="does not say where.*episodes='auto' \\(--episodes auto\\)"):
        ibcb.read_log(tmp_path / "log.vw")
    found = ibcb.read_log(tmp_path / "log.vw", episodes="auto", warmup=1)
    assert found.warmup == 1
    assert found.episode_offsets.tolist() == [0, 200, 400, 600]
    candidates = ibcb.read_log(tmp_path / "log.vw", episodes="auto", choices=False)
    assert len(candidates) == 1


def test_the_command_line(tmp_path):
    one, cut = tmp_path / "one.parquet", tmp_path / "cut.parquet"
    ibcb.write_log(hidden()[1], one)
    assert "every 250 steps" in succeeds("convert", one, cut, "--episodes", "auto").stderr
    assert len(ibcb.read_log(cut)) == 6
    succeeds("convert", one, tmp_path / "two.parquet", "--episodes", "0,700")
    assert len(ibcb.read_log(tmp_path / "two.parquet")) == 2
    for edges, words in (("often", "auto, or the first step of every episode"), ("0,9,4", "edges must rise")):
        wrong = ibcb_command("validate", one, "--episodes", edges)
        assert wrong.exit_code == 2
        assert words in " ".join(wrong.stderr.split())


def test_a_model_knows_that_edges_were_to_be_found(tmp_path):
    log, one = hidden()
    ibcb.write_log(one, tmp_path / "one.csv")
    for asked in ("auto", [0, 250, 900]):
        read = ibcb.read_log(tmp_path / "one.csv", episodes=asked)
        ibcb.save_model(ibcb.ChoiceModel().fit(read), tmp_path / "m.safetensors")
        kept = ibcb.load_model(tmp_path / "m.safetensors").preparation_
        assert kept.reading_again(choices=True)["episodes"] == asked
        assert asked != "auto" or same_log(read, log)


# -- validate ------------------------------------------------------------------------------------------------------


def test_validate_proposes_the_better_cut():
    log, one = hidden()
    for wrong in (one, log.recut([0, 375, 1125])):
        (finding,) = [finding for finding in ibcb.validate(wrong).findings if finding.code == "episode-edges"]
        assert finding.remedy.startswith("Updates every 250 steps: 6 episodes explain the choices better, 10^")
        assert "episodes='auto' (--episodes auto)" in finding.remedy
