"""Whatever the layout of the arrays that come in, the bits that go out are the same."""

import pickle

import numpy as np
import pytest
from conftest import ragged_log, small_run

import ibcb
from ibcb.engine import Block, Workup, blocks


def unaligned(array):
    """The same numbers, beginning at an odd byte."""
    room = np.empty(array.nbytes + 1, dtype=np.uint8)
    moved = room[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned or not array.size
    return moved


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = {
    "unaligned": unaligned,
    "read-only": read_only,
    "fortran": lambda array: np.asfortranarray(array),
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "strided": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def relaid(log, layout):
    parts = (log.contexts, log.step_offsets, log.chosen, log.episode_offsets)
    return ibcb.BehaviorLog(*(layout(np.array(part)) for part in parts), warmup=log.warmup)


@layouts
@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_a_log_of_any_layout_gives_the_same_bits(layout, expert):
    log = small_run(expert).log
    one, other = (ibcb.IBCB(expert=expert, l2=0.3).fit(each) for each in (log, relaid(log, layout)))
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@layouts
def test_episodes_and_candidates_of_any_layout_give_the_same_bits(layout, rng):
    contexts, chosen = rng.normal(size=(60, 5, 3)), rng.integers(5, size=60)
    plain, laid = (
        ibcb.BehaviorLog.from_episodes([(make(contexts), make(chosen))] * 2, warmup=1) for make in (np.array, layout)
    )
    np.testing.assert_array_equal(plain.contexts, laid.contexts)
    np.testing.assert_array_equal(plain.chosen, laid.chosen)
    model = ibcb.ChoiceModel().fit(plain)
    for sets in (contexts, contexts[0]):
        np.testing.assert_array_equal(model.decision_function(sets), model.decision_function(layout(sets)))
    np.testing.assert_array_equal(ibcb.SBUCB(3).act(contexts), ibcb.SBUCB(3).act(layout(contexts)))


@layouts
def test_blocks_arrive_as_kernels_want_them(layout, rng):
    (block,) = blocks(ragged_log(rng, episodes=1, warmup=0))
    arrays = (block.contexts, block.chosen_rows, block.offsets)
    work = Workup(layout(np.array(block.contexts)), layout(np.ones(len(block.contexts))), 0.0, 1.0, 1.0)
    laid = Block(*(layout(np.array(array)) for array in arrays), block.width, 0, 0, work)
    for found in (laid, pickle.loads(pickle.dumps(laid))):
        for array in (found.contexts, found.chosen_rows, found.offsets, found.work.contexts, found.work.bonus):
            assert array.flags.aligned
            assert array.flags.c_contiguous
            assert array.dtype.isnative
        for array, wanted in zip((found.contexts, found.chosen_rows, found.offsets), arrays, strict=True):
            np.testing.assert_array_equal(array, wanted)


@layouts
def test_an_archive_of_any_layout_is_read_to_the_same_bits(layout, tmp_path):
    log = small_run().log
    ibcb.write_log(log, tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as stored:
        np.savez(tmp_path / "laid.npz", **{k: layout(v) if v.ndim else v for k, v in stored.items()})
    np.testing.assert_array_equal(ibcb.read_log(tmp_path / "laid.npz").contexts, log.contexts)
