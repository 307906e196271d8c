"""Help, names that were nearly right, and refusals: what is said before any work is done."""

import re
import sys

import numpy as np
import pytest
from commands import assert_fails, ibcb_command, succeeds
from conftest import ragged_log
from typer.main import get_command

import ibcb
from ibcb.cli import app
from ibcb.estimators.parameters import FITTING, PARAMETERS
from ibcb.io import load_options, save_options
from ibcb.log.read_options import READING, ReadOptions

VERBS = list(get_command(app).commands)
SMALL = ["--episodes", "4", "--batch-size", "50", "--candidates", "4", "--features", "3", "--warmup", "60"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a log, and models of it: of IBCB, without forecast, of a later start, and of others."""
    path = tmp_path_factory.mktemp("usage")
    succeeds("simulate", path / "run", "--noise", "0.03", "--seed", "1", *SMALL)
    (path / "run" / "log.parquet").rename(path / "log.parquet")
    log = ibcb.read_log(path / "log.parquet")
    models = {"model": ibcb.IBCB(l2=0.3), "plain": ibcb.IBCB(forecast=None), "svc": ibcb.BaseSVC()}
    models |= {"choice": ibcb.ChoiceModel(episodes=None)}
    for name, model in models.items():
        ibcb.save_model(model.fit(log), path / f"{name}.safetensors")
    ibcb.save_model(ibcb.IBCB(l2=0.3).partial_fit(log[1]).partial_fit(log[2]), path / "late.safetensors")
    wide = ibcb.simulate(n_episodes=4, batch_size=50, n_candidates=4, n_features=5).log
    ibcb.write_log(wide, path / "wide.parquet")
    ibcb.write_log(ragged_log(np.random.default_rng(0))[:2], path / "other.parquet")
    (path / "bad.safetensors").write_bytes(b"no model")
    (path / "empty").mkdir()
    return path


# -- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_what_every_option_does_on_lines_of_80_characters_and_gives_an_example(verb):
    short = succeeds(verb, "--help").stdout
    texts = [short, succeeds(verb, "--help-all").stdout] if "--help-all" in short else [short]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80
    assert succeeds(verb, "-h").stdout == short
    for option in get_command(app).commands[verb].params:
        said = option.help
        assert len(said.split()) >= 3, (option.name, said)
        assert said[0].isupper(), (option.name, said)
        assert not re.search(r"(?i)batch|foresee|``", said), (option.name, said)
        assert all(f" {name}" in texts[-1] for name in option.opts if name.startswith("--")), option.name
    listed, _, example = short.partition("Example: ")
    assert example.startswith(f"ibcb {verb}")
    for option in re.findall(r"(?<!\S)--?[a-z][a-z0-9-]*", example):
        assert re.search(rf"(?m)^ +(-\w, )?{re.escape(option)}[ ,]", listed), option


def test_the_command_alone_lists_the_verbs_in_whole_sentences():
    listed = succeeds("--help").stdout.split("Commands:")[1]
    assert all(re.search(rf"(?m)^\s+{verb}\s", listed) for verb in VERBS)
    assert len(VERBS) == 11
    assert "..." not in listed
    assert succeeds("--version").stdout.strip() == ibcb.__version__


def test_verbs_that_are_given_a_model_show_no_option_of_reading_but_take_them(here):
    for verb in ("predict", "report", "explain", "propensities", "evaluate"):
        text = succeeds(verb, "--help").stdout
        assert "--options FILE" in text
        assert not re.search("--(column|drop|one-hot|episode-every|max-memory)", text)
        assert "--one-hot" in succeeds(verb, "--help-all").stdout
    assert "--solver" not in succeeds("fit", "--help").stdout
    succeeds("predict", here / "model.safetensors", here / "log.parquet", "--max-memory", "1GB", "--json")


def test_options_are_the_same_in_python_in_files_and_on_the_command_line(tmp_path):
    """Each has words, a check that its default passes, and values that a file of options gives back."""
    for family in (READING, PARAMETERS):
        for each in family:
            assert each.help.endswith((".", ").")), each.name
            assert f"{each.name} : " in (ibcb.read_log if family is READING else ibcb.IBCB).__doc__
            if each.check is not None:
                each.check(each.name, each.default)
    written = {"columns": ["step=a", "chosen=b"], "one_hot": ["all"], "cross": ["a,b"], "episodes": "0,4"}
    written |= {"alternatives": "car, bus", "features": "a,b", "min_count": "3", "max_memory": "2GB", "warmup": "2"}
    parsed = {each.name: each.form.parse(written[each.name]) for each in READING if each.name in written}
    save_options(parsed, tmp_path / "log.toml")
    again = load_options(tmp_path / "log.toml")
    assert ReadOptions(**{**again, "cross": [tuple(names) for names in again["cross"]]}) == ReadOptions(**parsed)
    shown = {name for option in get_command(app).commands["fit"].params for name in option.opts}
    assert {each.called for each in (*READING, *FITTING) if each.form is not None} <= shown


# -- names that were nearly right ------------------------------------------------------------------------------------

WRONG_GUESSES = {
    "--sovler hard": "--sovler.*--solver",
    "--solver magic": "magic.*auto.*hard.*soft.*robust.*paper",
    "--expert thompson": "did you mean sbts",
    "--expert linucb": "did you mean sbucb",
    "--expert UCB": "did you mean sbucb",
    "--expert eps-greedy": "did you mean egreedy",
    "--expert logit": "did you mean stationary or softmax",
    "--expert top_k": "did you mean topk",
    "--column chosn=x": r"--column has a role 'chosn' \(did you mean chosen",
    "--column chosen": "--column.*chosen: write ROLE=NAME",
    "--format cvs": "did you mean csv",
    "--missing mode": "choose one of 'refuse', 'mean', 'zero'",
    "--episodes 0,x": "--episodes.*0,x: write auto, or the first step",
    "--top-k few": "--top-k.*'few' is not a whole number",
    "--episode-every 1d --episode-size 3": "--episode-every and --episode-size exclude each other",
    "--warmup -1 --missing mode --column chosn=x": "3 problems",
}


@pytest.mark.parametrize("guess, words", WRONG_GUESSES.items(), ids=list(WRONG_GUESSES))
def test_a_wrong_guess_gets_the_right_name_before_anything_is_read(guess, words):
    result = ibcb_command("fit", "log.parquet", *guess.split())
    assert_fails(result, 2)
    assert re.search(words, " ".join(result.stderr.split()))


def test_arguments_that_were_swapped_or_mistyped_are_named_in_the_right_order(here, monkeypatch):
    model, log = here / "model.safetensors", here / "log.parquet"
    for verb in ("predict", "propensities", "evaluate"):
        monkeypatch.setattr(sys, "argv", ["ibcb", verb, str(log), str(model), "--json"])
        result = ibcb_command(verb, log, model, "--json")
        assert_fails(result, 2)
        assert f"swapped. Write: ibcb {verb} {model} {log} --json" in " ".join(result.stderr.split())
    mistyped = ibcb_command("fit", log.with_name("lgo.parquet"))
    assert_fails(mistyped, 1, r"lgo\.parquet does not exist; did you mean .*log\.parquet")
    wrong = model.with_name("modle.safetensors")
    assert_fails(ibcb_command("predict", wrong, log), 1, r"does not exist; did you mean .*model\.safetensors")
    assert_fails(ibcb_command("report", model), 2, "needs the log that .* was fitted to")


# -- refusals --------------------------------------------------------------------------------------------------------


REFUSED = {
    "fti": (2, "Usage: .*(?i:error)"),
    "fit": (2, "Missing argument"),
    "fit log.parquet other.parquet": (2, "unexpected extra argument"),
    "fit log.parquet --l2 much": (2, "'much' is neither a number nor 'auto'|'much' is not a number"),
    "fit log.parquet --l2 -1": (2, "--l2=-1.0 must be finite and above 0"),
    "fit log.parquet -o m.bin": (1, r"must end in \.safetensors"),
    "fit log.parquet -o empty": (1, "empty is a folder"),
    "simulate": (2, "Missing argument"),
    "simulate new --draws batch": (2, "--draws='batch' is unknown"),
    "simulate new --seed 1.5": (2, "'--seed': '1.5' is not a whole number"),
    "simulate new --expert egredy": (2, "--expert='egredy' is unknown; did you mean egreedy"),
    "simulate new --epsilon 0.3": (2, "--epsilon=0.3: --expert='sbucb' has no epsilon; it has alpha, l2, draws"),
    "simulate new --available 2": (2, "--available; the synthetic environment has noise"),
    "simulate new --expert egreedy --epsilon 1.5": (2, "--epsilon=1.5"),
    "simulate new --noise much": (2, "'--noise': 'much' is not a number"),
    "simulate new --episodes 0": (2, "--episodes=0 must be at least 1"),
    "simulate new --top-k 0": (2, "--top-k=0 must be at least 1"),
    "simulate new --dup 99": (2, "dup=99"),
    "predict model.safetensors": (2, "Missing argument"),
    "predict model.safetensors log.parquet -o c.json": (1, r"must end in \.csv"),
    "predict model.safetensors wide.parquet -o out.csv": (1, "5 features.*fitted on 3"),
    "predict nothing.safetensors log.parquet": (1, r"nothing\.safetensors does not exist"),
    "predict bad.safetensors log.parquet": (1, r"bad\.safetensors: not a readable"),
    "predict log.parquet log.parquet": (1, r"log\.parquet: a Parquet file, not a saved model.*swapped"),
    "predict model.safetensors model.safetensors": (1, r"model\.safetensors: .*\.parquet"),
    "predict model.safetensors log.parquet --at-episode -1": (2, "--at-episode=-1 must be at least 0"),
    "predict model.safetensors log.parquet --at-episode 1.5": (2, "'--at-episode': '1.5' is not a whole number"),
    "predict model.safetensors log.parquet --at-episode 2000": (2, "is 1996 updates after the log; at most 1000"),
    "predict plain.safetensors log.parquet --at-episode 5": (2, "beyond the log's episodes 0 to 3, and .* without"),
    "predict svc.safetensors log.parquet --at-episode 1": (2, "a BaseSVC has one policy"),
    "predict late.safetensors log.parquet --at-episode 0": (2, "nothing had been learned by then"),
    "predict plain.safetensors log.parquet --certainty": (2, "fitted with --forecast"),
    "predict svc.safetensors log.parquet --certainty": (2, "needs an IBCB model"),
    "predict model.safetensors log.parquet --certainty --scores": (2, "leave out --scores"),
    "predict model.safetensors log.parquet --certainty --at-episode 1": (2, "leave out --at-episode"),
    "propensities model.safetensors log.parquet -o out.txt": (1, "must end in .csv or .parquet or .npz or .vw or"),
    "propensities choice.safetensors log.parquet": (1, "holds a ChoiceModel"),
    "evaluate model.safetensors": (2, "Missing argument"),
    "evaluate model.safetensors empty": (1, "run.json.*|ibcb simulate"),
    "evaluate model.safetensors wide.parquet": (1, "5 features.*fitted on 3"),
    "evaluate model.safetensors nothing.parquet": (1, r"nothing\.parquet does not exist"),
    "report log.parquet --log log.parquet": (1, r"log\.parquet: a Parquet file, not a saved model.*swapped"),
    "report nothing.safetensors --log log.parquet": (1, "does not exist"),
    "report model.safetensors --log nothing.parquet": (1, "does not exist"),
    "report model.safetensors --log model.safetensors": (1, "does not tell the format"),
    "report model.safetensors --log log.parquet -o page.pdf": (1, r"must end in \.html"),
    "report model.safetensors --log wide.parquet": (1, "feature|fitted"),
    "report svc.safetensors --log log.parquet": (1, "holds a BaseSVC"),
    "report model.safetensors": (2, "needs the log that model.safetensors was fitted to"),
    "explain model.safetensors": (2, "name the log"),
    "explain choice.safetensors --log log.parquet": (1, "holds a ChoiceModel"),
    "explain model.safetensors --log other.parquet": (1, "another log|features"),
    "explain model.safetensors --log log.parquet -o steps.txt": (1, "must end in .csv or .parquet"),
    "explain model.safetensors --log log.parquet --most 0": (2, "--most=0 must be at least 1"),
    "validate log.parquet --options nothing.toml": (1, "nothing.toml does not exist; give the path of a file of opt"),
    "validate log.parquet --items wide.parqet": (1, "wide.parqet does not exist; did you mean wide.parquet"),
    "validate log.parquet --save-options log.txt": (1, r"must end in \.toml"),
    "demo extra": (2, "unexpected extra argument"),
    "reproduce --table 21": (2, "table 21 does not exist"),
}


@pytest.mark.parametrize("command, expected", REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_be_is_refused_in_a_line_and_writes_nothing(here, monkeypatch, command, expected):
    monkeypatch.chdir(here)
    before = {file.name: file.read_bytes() for file in here.iterdir() if file.is_file()}
    code, words = expected
    assert_fails(ibcb_command(*command.split()), code, words)
    assert {file.name: file.read_bytes() for file in here.iterdir() if file.is_file()} == before
    assert not (here / "new").exists()
