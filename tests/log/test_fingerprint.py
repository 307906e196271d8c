"""The short name of a log: the same however it is read and fitted, another when the log is another."""

import math
from hashlib import blake2b

import numpy as np
import pytest
from conftest import ragged_log, small_run
from views import flipped

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.log.fingerprint import NO_LOG, is_fingerprint, log_fingerprint, with_episode


def rebuilt(log, **changes):
    arrays = {name: getattr(log, name) for name in ("contexts", "step_offsets", "chosen", "episode_offsets", "warmup")}
    return BehaviorLog(**(arrays | changes))


@pytest.mark.parametrize("kind", ["uniform", "ragged"])
def test_the_name_written_out(rng, kind):
    """Per episode: whether the policy's, sizes, counts if they vary, choices, Gram matrix in 2^-20 of its largest."""
    log = small_run().log if kind == "uniform" else ragged_log(rng, d=4)
    name = b""
    for number, (first, last) in enumerate(zip(log.episode_offsets[:-1], log.episode_offsets[1:], strict=True)):
        chain = blake2b(name, digest_size=16)
        counts = [len(log.candidates(step)) for step in range(first, last)]
        chain.update(f"{int(number >= log.warmup)} 4 {last - first} {min(counts)} {max(counts)} ".encode())
        if kind == "ragged":
            chain.update(b"".join(count.to_bytes(2, "little") for count in counts))
        chain.update(b"".join(int(log.chosen[step]).to_bytes(2, "little") for step in range(first, last)))
        chosen = [log.candidates(step)[log.chosen[step]] for step in range(first, last)]
        # Exact sums: the name does not depend on the order in which a library adds.
        gram = [[math.fsum(s[i] * s[j] for s in chosen) for j in range(4)] for i in range(4)]
        unit = 2.0 ** (math.frexp(max(gram[i][i] for i in range(4)))[1] - 20)
        for entry in np.ravel(gram):
            chain.update(math.trunc(entry / unit + (math.sqrt(5) - 1) / 2).to_bytes(4, "little", signed=True))
        name = chain.digest()
    assert log_fingerprint(log) == name.hex()
    assert is_fingerprint(log_fingerprint(log))


@pytest.mark.parametrize("solver", ["auto", "soft", "robust", "paper"])
def test_fit_and_partial_fit_and_the_log_itself_agree(solver):
    expert = "sbts" if solver == "soft" else "sbucb"
    # One choice that no policy explains: the exact solver starts over.
    log = flipped(small_run(expert).log, 4, 50) if solver == "auto" else small_run(expert).log
    parts = IBCB(expert=expert, solver=solver, l2=0.3)
    for number, episode in enumerate(log, start=1):
        parts.partial_fit(episode)
        assert parts.log_fingerprint_ == log_fingerprint(log[:number])
    incremental = solver != "robust"
    whole = IBCB(expert=expert, solver=solver, l2=0.3, incremental=incremental).fit(log)
    assert whole.log_fingerprint_ == log_fingerprint(log)
    assert whole.solver_ == ("robust" if solver == "auto" else solver)


@pytest.mark.parametrize(
    "make",
    [
        ibcb.BaseSVC,
        ibcb.ChoiceModel,
        lambda: ibcb.BIRL(burn_in=50, n_samples=5, random_state=0),
        lambda: ibcb.BICB(sample=0.1, n_iterations=2, n_sweeps=10, n_dropped=5, random_state=0),
        lambda: ibcb.Averaged(ibcb.ChoiceModel()),
    ],
)
def test_every_estimator_names_the_log_it_was_fitted_to(make):
    log = small_run().log
    assert make().fit(log).log_fingerprint_ == log_fingerprint(log)


def test_another_log_has_another_name(rng):
    log = small_run().log
    row = log.chosen_rows[500]
    touched = log.contexts.copy()
    touched[row] *= 1.01
    others = {
        "one choice": flipped(log, 2, 7),
        "one episode less": log[:-1],
        "no warm-up": rebuilt(log, warmup=0),
        "other batches": rebuilt(log, episode_offsets=np.delete(log.episode_offsets, 3)),
        "one chosen context": rebuilt(log, contexts=touched),
        "other units": rebuilt(log, contexts=1.1 * log.contexts),
        "steps in other order": BehaviorLog.from_episodes(
            [(e.contexts.reshape(-1, 7, 4)[::-1], e.chosen[::-1]) for _, e in log.episodes()], warmup=1
        ),
        "one candidate more": BehaviorLog.from_episodes(
            [(np.pad(e.contexts.reshape(-1, 7, 4), ((0, 0), (0, 1), (0, 0))), e.chosen) for _, e in log.episodes()],
            warmup=1,
        ),
    }
    names = {what: log_fingerprint(other) for what, other in others.items()}
    assert len({*names.values(), log_fingerprint(log)}) == len(others) + 1, names


def test_the_same_log_in_other_clothes_has_the_same_name(tmp_path, rng, monkeypatch):
    single = rebuilt(small_run().log, contexts=small_run().log.contexts.astype(np.float32))
    for log in (single, ragged_log(rng)):
        name = log_fingerprint(log)
        assert log_fingerprint(rebuilt(log, contexts=log.contexts.astype(np.float64))) == name
        ibcb.write_log(log, tmp_path / "log.parquet")
        assert log_fingerprint(ibcb.read_log(tmp_path / "log.parquet")) == name
        assert log_fingerprint(ibcb.io.open_log(tmp_path / "log.parquet")) == name
        with monkeypatch.context() as small:
            small.setattr("ibcb.log.behavior_log._PART_ROWS", 50)
            assert len(list(log.parts())) > len(list(log.episodes()))
            assert log_fingerprint(log) == name


@pytest.mark.parametrize("values", ["normal", "cents", "whole"])
def test_the_rounding_of_sums_does_not_reach_the_name(rng, values):
    """Gram matrices that differ as those of two libraries do; entries that are round numbers included."""
    draw = {"normal": rng.normal, "cents": lambda size: rng.integers(-200, 200, size) / 100}
    S = draw.get(values, lambda size: rng.integers(-3, 4, size).astype(float))(size=(2000, 8))
    one = S.T @ S
    names = set()
    for _ in range(50):
        other = one * (1 + rng.normal(scale=1e-15, size=one.shape)) + rng.normal(scale=1e-14, size=one.shape)
        names.add(with_episode(NO_LOG, 3, np.arange(3), other, by_policy=True))
    assert names == {with_episode(NO_LOG, 3, np.arange(3), one, by_policy=True)}


def test_contexts_of_any_size_have_a_name_and_not_everything_is_one():
    log = small_run().log
    for scale in (0.0, 1e-160, 1e-30, 1e30, 1e200):
        assert is_fingerprint(log_fingerprint(rebuilt(log, contexts=scale * log.contexts)))
    assert not any(is_fingerprint(name) for name in ("", "G" * 32, "a" * 31, None, 5))


def test_many_candidates_have_a_name_too():
    chosen, other = np.array([1, 4_464]), np.array([1, 4_464 + 65_536])
    names = {with_episode(NO_LOG, 100_000, picks, np.eye(2), by_policy=True) for picks in (chosen, other)}
    names |= {with_episode(NO_LOG, np.array([3, 100_000]), chosen, np.eye(2), by_policy=True)}
    assert len(names) == 3
