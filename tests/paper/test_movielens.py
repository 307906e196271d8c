from __future__ import annotations

import functools
import hashlib
import http.server
import itertools
import sys
import threading
import zipfile

import numpy as np
import pytest
from movielens_files import GENRES, NAMES, OCCUPATIONS, write_movielens
from scipy.special import expit
from sklearn.metrics import roc_auc_score

import ibcb
from ibcb.paper.environments import MovieLens, MovieLensFormatError, Streams, movielens_files
from ibcb.paper.environments.movielens import Feedback, factorise, loss, with_others
from ibcb.paper.environments.movielens_files import VARIABLE, download, find_files

SMALL = {"n_episodes": 4, "batch_size": 200}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_movielens(tmp_path_factory.mktemp("data") / "ml-100k")


@pytest.fixture
def copy(tmp_path):
    """A folder of its own, to be damaged."""
    return write_movielens(tmp_path / "copy", users=12, items=15, ratings=100)


@pytest.fixture(scope="session")
def world(folder):
    return MovieLens(folder=folder, **SMALL).build(Streams(7))


@pytest.fixture(scope="session")
def table(folder):
    """The rows of u.data in order of time, read without our reader."""
    rows = np.loadtxt(folder / "u.data", dtype=np.int64)
    return np.array(sorted(rows.tolist(), key=lambda row: row[3]))


def halves(table):
    return table[: len(table) // 2], table[len(table) // 2 :]


def feedback(half):
    return Feedback(half[:, 0] - 1, half[:, 1] - 1, half[:, 2] > 3, 60, 80)


def lines(path):
    return path.read_bytes().decode("latin-1").removesuffix("\n").split("\n")


def as_zip(folder, path, inside="ml-100k/"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.write(folder / name, inside + name)
    return path


def same(one, other):
    phases = ("learning", "test")
    return all(
        np.array_equal(getattr(getattr(one, phase), name), getattr(getattr(other, phase), name))
        for phase, name in itertools.product(phases, ("contexts", "expected", "noise"))
    )


# The world, recomputed


def test_user_features_are_those_of_the_rows_in_order_of_time(world, table, folder):
    users = [line.split("|") for line in lines(folder / "u.user")]
    first, second = halves(table)
    # Rows of one second keep the order of the file, across the middle too.
    assert first[-1, 3] == second[0, 3]
    for phase, half in zip((world.learning, world.test), halves(table), strict=True):
        for contexts, row in zip(phase.contexts, half, strict=False):
            _, age, gender, occupation, _ = users[row[0] - 1]
            expected = np.zeros(30)
            expected[sum(int(age) >= edge for edge in (18, 25, 35, 45, 50, 56))] = 1
            expected[7 + "FM".index(gender)] = 1
            expected[9 + OCCUPATIONS.index(occupation)] = 1
            assert (contexts[:, :30] == expected).all()


def test_item_features_are_year_and_genres_of_the_rated_item_and_nine_others(world, table, folder):
    items = [line.split("|") for line in lines(folder / "u.item")]
    years = [float(fields[2][-4:]) for fields in items if fields[2]]
    features = {
        (((float(fields[2][-4:]) if fields[2] else np.mean(years)) - 1950) / 100, *map(float, fields[5:])): id
        for id, fields in enumerate(items, 1)
    }
    assert len(features) == len(items)
    for phase, half in zip((world.learning, world.test), halves(table), strict=True):
        for contexts, row in zip(phase.contexts, half, strict=False):
            ids = [features[tuple(context)] for context in contexts[:, 30:].tolist()]
            assert len(set(ids)) == 10
            assert row[1] in ids


def test_rewards_go_to_the_most_probable_like_above_one_half(world, table):
    streams = Streams(7)
    for name, phase, half in zip(("log", "test"), (world.learning, world.test), halves(table), strict=True):
        model = factorise(feedback(half), rank=8, rng=streams[f"{name} matrix factorisation"])
        candidates = with_others(half[:, 1] - 1, 80, 10, streams[f"{name} candidates"])
        for expected, row, others in zip(phase.expected, half, candidates, strict=False):
            u = row[0] - 1
            dots = [model.user_factors[u] @ model.item_factors[i] for i in others]
            likes = expit(model.offset + model.user_bias[u] + model.item_bias[others] + dots)
            assert expected.tolist() == [float(like >= likes.max() and like > 0.5) for like in likes]
        assert set(phase.expected.sum(axis=1)) == {0.0, 1.0}


def test_feature_names_say_what_the_columns_are(folder, world):
    names = MovieLens(folder=folder).feature_names
    assert len(set(names)) == 50
    assert names[0] == "age under 18"
    assert names[6:9] == ("age 56 and over", "gender F", "gender M")
    assert names[9:30] == tuple(f"occupation {name}" for name in OCCUPATIONS)
    assert names[30] == "release year"
    assert names[31:] == tuple(f"genre {name}" for name in GENRES)


def test_same_seed_same_bits_and_other_seeds_differ(folder, world):
    settings = MovieLens(folder=folder, **SMALL)
    other = settings.build(Streams(8))
    assert same(world, settings.build(Streams(7)))
    for one, two in ((world.learning, other.learning), (world.test, other.test)):
        assert np.array_equal(one.contexts[..., :30], two.contexts[..., :30])
        assert not np.array_equal(one.contexts, two.contexts)
        assert not np.array_equal(one.expected, two.expected)


def test_other_batch_sizes_are_the_same_steps_and_a_shorter_log_is_a_part(folder, world):
    finer = MovieLens(folder=folder, n_episodes=8, batch_size=100).build(Streams(7))
    shorter = MovieLens(folder=folder, n_episodes=1, batch_size=100).build(Streams(7))
    assert same(world, finer)
    assert finer.batch_size == 100
    assert np.array_equal(shorter.learning.contexts, world.learning.contexts[:100])
    assert np.array_equal(shorter.learning.expected, world.learning.expected[:100])


@pytest.mark.parametrize(("expert", "draws", "alpha"), [("sbucb", "step", 0.4), ("sbts", "episode", 0.05)])
def test_an_expert_lives_in_it_and_can_be_imitated(folder, expert, draws, alpha):
    run = ibcb.simulate("movielens", expert=expert, seed=7, folder=folder, **SMALL)
    assert (run.expert_settings.draws, run.expert_settings.alpha, run.expert_settings.l2) == (draws, alpha, 1.0)
    assert run.log.feature_names == run.test_log.feature_names == run.environment.feature_names
    assert (run.log.warmup, run.ood_log) == (0, None)
    assert set(np.unique(run.rewards)) <= {0.0, 1.0}
    assert run.test_log.n_steps == len(run.world.test.noise)
    assert not run.policy_coefs[0].any()
    model = ibcb.IBCB(expert=expert).fit(run.log)
    figures = ibcb.metrics.evaluate(model, run)
    assert figures["ood_bt_ar"] is None
    assert 0 <= figures["bt_fitness"] <= 1


def test_more_steps_or_candidates_than_there_are_is_refused(copy):
    with pytest.raises(ValueError, match=r"n_episodes=2 times batch_size=26 is 52 steps, but the first half .* has 50"):
        MovieLens(folder=copy, n_episodes=2, batch_size=26).build(Streams(0))
    with pytest.raises(ValueError, match="n_candidates=16 is more than the 15 items"):
        MovieLens(folder=copy, n_episodes=1, batch_size=1, n_candidates=16).build(Streams(0))


# Candidates


def test_candidates_are_distinct_hold_the_item_once_and_reach_all_others_evenly():
    items = np.repeat(np.arange(6), 5000)
    candidates = with_others(items, 6, 4, np.random.default_rng(0))
    assert (np.sort(candidates, axis=1)[:, 1:] > np.sort(candidates, axis=1)[:, :-1]).all()
    assert ((candidates == items[:, None]).sum(axis=1) == 1).all()
    positions = np.argmax(candidates == items[:, None], axis=1)
    assert np.bincount(positions) / len(items) == pytest.approx([0.25] * 4, abs=0.01)
    for item in range(6):
        sets, counts = np.unique(np.sort(candidates[items == item], axis=1), axis=0, return_counts=True)
        assert len(sets) == 10  # 3 of the 5 others
        assert counts / 5000 == pytest.approx([0.1] * 10, abs=0.02)


# Matrix factorisation


def test_loss_and_gradient_match_a_plain_sum_and_finite_differences():
    rng = np.random.default_rng(1)
    data = Feedback(rng.integers(3, size=20), rng.integers(4, size=20), rng.random(20) > 0.4, 4, 5)
    x = rng.normal(size=9 * 3)
    value, gradient = loss(x, data)
    bias, factors, share = x[:9], x[9:].reshape(9, 2), data.liked.mean()
    total = 0.5 * np.sum(x**2)
    for u, i, liked in zip(data.users, data.items, data.liked, strict=True):
        like = expit(np.log(share / (1 - share)) + bias[u] + bias[4 + i] + factors[u] @ factors[4 + i])
        total -= np.log(like if liked else 1 - like)
    assert value == pytest.approx(total)
    steps = 1e-6 * np.eye(len(x))
    numeric = [(loss(x + step, data)[0] - loss(x - step, data)[0]) / 2e-6 for step in steps]
    assert gradient == pytest.approx(np.array(numeric), abs=1e-6)


def test_factorisation_knows_the_ratings_it_was_given_and_nothing_of_the_unrated(table):
    for half in halves(table):
        data = feedback(half)
        model = factorise(data, rank=8, rng=np.random.default_rng(0))
        assert roc_auc_score(data.liked, model.logits(data.users, data.items)) > 0.9
        assert model.logits(np.array(59), np.array(79)) == pytest.approx(model.offset, abs=1e-3)
        assert expit(model.offset) == pytest.approx(np.mean(half[:, 2] >= 4))


def test_factorisation_needs_likes_and_dislikes():
    data = Feedback(np.arange(3), np.arange(3), np.ones(3, dtype=bool), 3, 3)
    with pytest.raises(ValueError, match=r"3 of 3 ratings are likes; .* needs both"):
        factorise(data, rank=2, rng=np.random.default_rng(0))


# Where the files are


def test_zip_and_enclosing_folder_give_what_the_folder_gives(folder, world, tmp_path):
    for source in (as_zip(folder, tmp_path / "a.zip"), as_zip(folder, tmp_path / "b.zip", ""), folder.parent):
        assert same(world, MovieLens(folder=source, **SMALL).build(Streams(7)))


def test_environment_variable_is_honoured_and_an_argument_goes_before_it(folder, copy, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(as_zip(folder, tmp_path / "named.zip")))
    assert len(find_files().ratings().ages) == 60
    assert len(find_files(copy).ratings().ages) == 12


def test_a_path_that_does_not_exist_is_named_with_its_origin(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder='nowhere': no such .* ml-100k.zip.* u\.data, u\.user"):
        find_files("nowhere")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"IBCB_ML100K='.*gone': no such"):
        MovieLens().build(Streams(0))


@pytest.fixture
def unnamed(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def publisher(tmp_path, unnamed):
    """A web server of our own; its address and the folder it serves."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    served = tmp_path / "served"
    served.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=served)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/ml-100k.zip", served
        server.shutdown()
        thread.join()


def test_offline_says_what_was_tried_and_how_to_supply_the_files(unnamed, monkeypatch, tmp_path):
    pytest.importorskip("pooch")
    monkeypatch.setattr(movielens_files, "URL", "http://127.0.0.1:9/ml-100k.zip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ConnectionError) as error:
        MovieLens().build(Streams(0))
    message = str(error.value)
    where = "could not be downloaded from http://127.0.0.1:9/"
    for part in ("folder=", VARIABLE, "not in the cache", where, "by hand"):
        assert part in message
    assert not list(tmp_path.rglob("*.zip"))


def test_download_is_checked_cached_and_equal_to_the_folder(publisher, folder, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    url, served = publisher
    as_zip(folder, served / "ml-100k.zip")
    digest = hashlib.md5((folder / "u.data").read_bytes()).hexdigest()
    monkeypatch.setattr(movielens_files, "_DATA_MD5", digest)
    fetched = download(url, tmp_path / "cache")
    assert fetched.contents == find_files(folder).contents
    (served / "ml-100k.zip").unlink()
    assert download(url, tmp_path / "cache").contents == fetched.contents


def test_a_wrong_checksum_or_page_is_refused_and_leaves_the_cache(publisher, folder, tmp_path):
    pytest.importorskip("pooch")
    url, served = publisher
    digest = hashlib.md5((folder / "u.data").read_bytes()).hexdigest()
    sum_expected = rf"u\.data: expected md5 6e47046882bad158b0efbb84cd5cb987, found {digest}.*removed from the cache"
    page_expected = r"is not MovieLens 100K: .*not a zip.*removed from the cache"
    as_zip(folder, served / "ml-100k.zip")
    for expected in (sum_expected, page_expected):
        with pytest.raises(MovieLensFormatError, match=expected):
            download(url, tmp_path / "cache")
        assert not list((tmp_path / "cache").iterdir())
        (served / "ml-100k.zip").write_text("<html>log in to this network</html>")


def test_without_pooch_the_message_says_how_to_install_it(unnamed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs pooch.*pip install 'ibcb\[data\]'.*by hand"):
        MovieLens().build(Streams(0))


# Damaged files


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(copy, tmp_path, name):
    (copy / name).rename(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=rf"copy: expected the file {name}, found u\."):
        find_files(copy)
    with zipfile.ZipFile(tmp_path / "part.zip", "w") as archive:
        for other in set(NAMES) - {name}:
            archive.write(copy / other, f"ml-100k/{other}")
    with pytest.raises(FileNotFoundError, match=rf"part\.zip: expected the file ml-100k/{name}, found ml-100k/u\."):
        find_files(tmp_path / "part.zip")


def change(number, value, separator="|"):
    """A damage: another value in one field of a row."""

    def damage(line):
        fields = line.split(separator)
        fields[number] = value
        return separator.join(fields)

    return damage


def cut(line):
    return line[:3]


@pytest.mark.parametrize(
    "name, row, damage, message",
    [
        ("u.data", 3, cut, r"4 fields separated by tab \(user, item, rating, timestamp\), found \d in '"),
        ("u.data", 9, change(0, "13", "\t"), r"a user of u\.user, 1 to 12, found '13'"),
        ("u.data", 2, change(2, "4.5", "\t"), r"a rating from 1 to 5, found '4\.5'"),
        ("u.data", 5, change(3, "9" * 5000, "\t"), r"a timestamp in seconds since 1970, found '9{57}\.\.\.'"),
        ("u.user", 4, change(0, "9"), "users in order, counting from 1, found '9'"),
        ("u.user", 5, change(2, "X"), "gender F or M, found 'X'"),
        ("u.item", 7, change(2, "1995"), "a release date like 01-Jan-1995, or none, found '1995'"),
        ("u.item", 8, change(6, "2"), "0 or 1 for genre genre01, found '2'"),
        ("u.item", 8, cut, r"24 fields separated by '\|' \(item, title, .* \(24 in all\)\), found \d in"),
        ("u.genre", 2, change(1, "7"), "numbers in order, counting from 0, found '7'"),
        ("u.genre", 2, change(0, "genre00"), "a name that no row before it has, found 'genre00'"),
        ("u.occupation", 3, lambda line: "", "a name that no row before it has, found ''"),
    ],
)
def test_a_damaged_row_is_named_with_what_was_expected_and_found(copy, name, row, damage, message):
    rows = lines(copy / name)
    rows[row - 1] = damage(rows[row - 1])
    (copy / name).write_bytes("".join(f"{line}\n" for line in rows).encode("latin-1"))
    with pytest.raises(MovieLensFormatError, match=rf"copy/{name}, row {row}: expected {message}"):
        find_files(copy).ratings()


def test_a_second_rating_of_an_item_is_refused(copy):
    rows = lines(copy / "u.data")
    user, item = rows[4].split("\t")[:2]
    (copy / "u.data").write_text("".join(f"{line}\n" for line in [*rows, f"{user}\t{item}\t1\t5"]))
    message = rf"u\.data, row 101: expected one rating .*user {user} rated item {item} in row 5\), found a second one"
    with pytest.raises(MovieLensFormatError, match=message):
        find_files(copy).ratings()


def test_a_cut_through_the_last_number_is_noticed(copy):
    (copy / "u.data").write_bytes((copy / "u.data").read_bytes()[:-4])
    with pytest.raises(MovieLensFormatError, match=r"u\.data, row 100: expected a line break .*\(cut off\?\)"):
        find_files(copy).ratings()


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_file_is_refused(copy, name):
    (copy / name).write_bytes(b"")
    with pytest.raises(MovieLensFormatError, match=rf"copy/{name}: expected rows of .*, found an empty file"):
        find_files(copy).ratings()


@pytest.mark.parametrize("name, count", [("u.genre", 19), ("u.occupation", 21)])
def test_a_list_of_another_length_is_refused(copy, name, count):
    (copy / name).write_text("".join(f"{line}\n" for line in lines(copy / name)[: count - 1]))
    with pytest.raises(MovieLensFormatError, match=rf"{name}: expected {count} rows, found {count - 1}"):
        find_files(copy).ratings()


def test_items_without_any_date_are_refused(copy):
    rows = [change(2, "")(line) for line in lines(copy / "u.item")]
    (copy / "u.item").write_bytes("".join(f"{line}\n" for line in rows).encode("latin-1"))
    with pytest.raises(MovieLensFormatError, match=r"u\.item: expected release dates, found none in 15 rows"):
        find_files(copy).ratings()


def test_line_breaks_of_another_system_are_read(copy):
    plain = find_files(copy).ratings()
    for name in NAMES:
        (copy / name).write_bytes((copy / name).read_bytes().replace(b"\n", b"\r\n"))
    assert np.array_equal(find_files(copy).ratings().timestamps, plain.timestamps)


def test_a_damaged_zip_is_refused(copy, tmp_path):
    whole = as_zip(copy, tmp_path / "whole.zip").read_bytes()
    middle = bytearray(whole)
    middle[200] ^= 0xFF
    for content in (b"no zip", whole[: len(whole) // 2], bytes(middle)):
        path = tmp_path / "bad.zip"
        path.write_bytes(content)
        with pytest.raises(MovieLensFormatError, match=r"bad\.zip: expected a zip like the publisher's"):
            find_files(path)
