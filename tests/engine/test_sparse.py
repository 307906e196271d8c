"""Sparse contexts: the model is that of dense ones, wherever the rows live and whatever they were written to."""

import itertools

import numpy as np
import pytest
from arm_worlds import disjoint_ucb, written_out
from scipy import sparse

import ibcb
from ibcb import IBCB, BehaviorLog
from ibcb.engine import Block, candidate_moments
from ibcb.log.behavior_log import LogFormatError, dense_pieces
from ibcb.log.fingerprint import log_fingerprint
from ibcb.numerics import contexts as layout
from ibcb.numerics.ridge import ridge

KINDS = {"sbucb": {}, "sbts": {}, "topk": {"top_k": 2}, "other": {}, "stationary": {}}


@pytest.fixture(scope="module")
def logs():
    """A log of arms with its contexts sparse, and the same dense."""
    done, _ = disjoint_ucb(8, 9, 4, 120, seed=5)
    return BehaviorLog.from_arms(done, warmup=1), BehaviorLog.from_episodes(written_out(done, 8), warmup=1)


def alike(one, other):
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        expected = getattr(other, name)
        np.testing.assert_allclose(getattr(one, name), expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_that_of_dense_contexts(logs, kind):
    own, same = (IBCB(expert=kind, **KINDS[kind]).fit(log) for log in logs)
    alike(own, same)
    assert own.log_fingerprint_ == same.log_fingerprint_
    np.testing.assert_array_equal(own.predict(logs[0]), same.predict(logs[1]))
    np.testing.assert_allclose(own.certainty(logs[0][-1]), same.certainty(logs[1][-1]), atol=0.01)


@pytest.mark.parametrize("kind", ["sbucb", "sbts"])
def test_whether_a_log_starts_late_is_that_of_dense_contexts(logs, kind):
    """Without a warm-up the first episode is looked at: here it is not the decider's first."""
    own, same = (IBCB(expert=kind).fit(log) for log in (logs[0][1:], logs[0][1:].densified()))
    assert [str(note) for note in own.notes_] == [str(note) for note in same.notes_]
    alike(own, same)


@pytest.mark.parametrize("solver", ["robust", "paper"])
def test_algorithm_2_is_that_of_dense_contexts(logs, solver):
    own, same = (IBCB(l2=1.0, solver=solver, forecast=None).fit(log[:2]) for log in logs)
    np.testing.assert_allclose(own.coef_, same.coef_, rtol=0, atol=1e-6 * np.abs(same.coef_).max())


def test_rows_that_repeat_are_learned_from_once_for_all():
    """Arms without features: every step has the same candidates, so nearly all rows are copies."""
    rng = np.random.default_rng(0)
    worth, counts, sums, done = rng.normal(size=70), np.zeros(70), np.zeros(70), []
    for episode in range(4):
        bounds = sums / (counts + 1) + 0.4 / np.sqrt(counts + 1)
        could = rng.random((60, 70)) < 0.5
        scores = np.where(could, bounds if episode else rng.random((60, 70)), -np.inf)
        picks = scores.argmax(axis=1)
        np.add.at(counts, picks, 1)
        np.add.at(sums, picks, worth[picks] + 0.3 * rng.normal(size=60))
        done.append((np.empty((60, 0)), picks, could))
    options = {"n_arms": 70, "available": [part[2] for part in done], "warmup": 1}
    own = BehaviorLog.from_arms([part[:2] for part in done], **options)
    alike(IBCB(l2=1.0).fit(own), IBCB(l2=1.0).fit(own.densified()))


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_files_keep_contexts_sparse_and_streams_give_the_same_bits(logs, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("ibcb.io.parquet._STREAM_NUMBERS", 500)
    own, path = logs[0], tmp_path / f"log{suffix}"
    ibcb.write_log(own, path)
    read = ibcb.read_log(path)
    assert sparse.issparse(read.contexts)
    assert (read.contexts != own.contexts).nnz == 0
    np.testing.assert_array_equal(read.candidate_ids, own.candidate_ids)
    assert read.feature_names == own.feature_names
    assert log_fingerprint(read) == log_fingerprint(own) == log_fingerprint(logs[1])
    streamed = ibcb.open_log(path)
    fits = [IBCB(l2=1.0).fit(each) for each in (streamed, own)]
    np.testing.assert_array_equal(fits[0].policy_coefs_, fits[1].policy_coefs_)
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    some = ibcb.read_log(path, features=["arm=1:x2", "arm=0:x0"])
    np.testing.assert_array_equal(layout.dense(some.contexts), logs[1].contexts[:, [11, 0]])


@pytest.mark.parametrize("suffix", [".csv", ".arrow", ".vw", ".dsjson"])
def test_other_formats_are_written_dense(logs, tmp_path, suffix):
    own, path = logs[0], tmp_path / f"log{suffix}"
    ibcb.write_log(own, path)
    cut = {} if suffix in (".csv", ".arrow") else {"episode_size": 120, "warmup": 1}
    assert log_fingerprint(ibcb.read_log(path, **cut)) == log_fingerprint(own)


def test_reports_and_checks_go_through_sparse_logs(logs, tmp_path):
    own, same = logs
    model = IBCB(l2=1.0).fit(own)
    assert model.verdict(own).level == IBCB(l2=1.0).fit(same).verdict(same).level
    assert ibcb.explain(model, own).episodes[-1].steps == 120
    assert str(ibcb.validate(own)).splitlines()[0] == str(ibcb.validate(same)).splitlines()[0]
    assert ibcb.ChoiceModel(episodes=2).fit(own).coef_ == pytest.approx(
        ibcb.ChoiceModel(episodes=2).fit(same).coef_, abs=1e-6
    )


def test_sparse_matrices_of_episodes_and_of_steps(logs):
    own, same = logs
    rows = np.concatenate([[0], np.cumsum(np.diff(own.episode_offsets) * 8)])
    whole = [own.contexts[a:b] for a, b in itertools.pairwise(rows)]
    picks = np.split(own.chosen, own.episode_offsets[1:-1])
    by_step = [[part[8 * t : 8 * t + 8].tocoo() for t in range(part.shape[0] // 8)] for part in whole]
    for given in (whole, by_step):
        log = BehaviorLog.from_episodes(zip(given, picks, strict=True), warmup=1)
        assert (log.contexts != own.contexts).nnz == 0
        assert len(log) == len(same)


@pytest.mark.parametrize("name", ["columns", "sizes", "contexts"])
def test_damaged_lists_of_a_sparse_file_are_found(logs, tmp_path, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "log.parquet"
    ibcb.write_log(logs[0][:1], path)
    table = pq.read_table(path)
    lists = table[name].to_pylist()
    lists[3] = lists[3][:-1]
    place = table.schema.names.index(name)
    pq.write_table(
        table.set_column(place, table.schema.field(name), pa.array(lists, table.schema.field(name).type)), path
    )
    with pytest.raises(LogFormatError, match="do not match"):
        ibcb.read_log(path)


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def rows(rng):
    X = np.where(rng.random((40, 70)) < 0.1, rng.normal(size=(40, 70)), 0.0)
    X[::8, 0] = 1.0
    return X


def test_kernels_give_what_dense_ones_give(rows, rng):
    X, offsets, counts = sparse.csr_array(rows), np.arange(0, 41, 8), np.full(5, 8)
    W, weights = rng.normal(size=(70, 6)), rng.normal(size=(5, 70))
    np.testing.assert_allclose(layout.row_lengths(X, W, W[0]), np.linalg.norm(rows @ W - W[0], axis=1))
    np.testing.assert_allclose(layout.dense(layout.step_sums(X, offsets)), rows.reshape(5, 8, 70).sum(axis=1))
    np.testing.assert_allclose(
        layout.step_products(X, weights[None], counts), layout.step_products(rows, weights[None], counts), atol=1e-12
    )
    np.testing.assert_allclose(layout.dense(layout.scaled_rows(X, rows[:, 0])), rows * rows[:, :1])
    np.testing.assert_array_equal(layout.dense(layout.with_column(X, rows[:, 3])), np.column_stack([rows, rows[:, 3]]))
    np.testing.assert_array_equal(layout.shown_counts(X), np.count_nonzero(rows, axis=0))
    before = ridge(rows.T @ rows, 0.5)
    np.testing.assert_allclose(before.widths(X), before.widths(rows))
    block = [Block(Z, np.arange(5) * 8 + 2, offsets, 8, 0, 0) for Z in (X, rows)]
    for own, same in zip(
        vars(candidate_moments(block[0])).values(), vars(candidate_moments(block[1])).values(), strict=True
    ):
        np.testing.assert_allclose(own, same, atol=1e-12)


def test_layout_is_chosen_by_density(rows):
    assert layout.is_sparse(layout.compact(rows))
    assert not layout.is_sparse(layout.compact(rows[:, :20]))
    assert not layout.is_sparse(layout.compact(sparse.csr_array(np.ones((5, 100)))))
    twice = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [3, 3, 5])), shape=(2, 80))
    found = layout.ordered(twice)
    assert (found.nnz, found[0, 3]) == (1, 3.0)


def test_pieces_of_a_sparse_log_are_small_enough_to_be_dense(logs, monkeypatch):
    monkeypatch.setattr("ibcb.log.behavior_log.DENSE_NUMBERS", 72 * 40)
    pieces = [piece for number, part in logs[0].parts() for piece in dense_pieces(part)]
    assert max(piece.n_rows for piece in pieces) == 40
    np.testing.assert_array_equal(np.concatenate([piece.contexts for piece in pieces]), logs[1].contexts)
