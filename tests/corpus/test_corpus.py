"""What is said of generated logs of known truth: no more than is true, and nothing twice in two ways."""

import functools
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from corpus_logs import CORPUS, RARE, ROUTINE_FINDINGS, ROUTINE_NOTES, claims_nothing, made

import ibcb
from ibcb.report import facts

FITTED = [name for name, entry in CORPUS.items() if entry.fit is not None]
#: what "good" promises: `predict` picks what the decider's next policy prefers on so many steps (ibcb.report.verdict)
PROMISED = 0.98

#: of two sentences of one output, no two may be like these
CONTRADICTIONS = [
    ("explain every logged choice exactly", "do not fit the rest"),
    ("explain every logged choice exactly", "no exact solution"),
    ("explain every logged choice exactly", "No reward weights explain"),
    ("explain every logged choice exactly", "has no exact explanation|go(es)? against"),
    ("than chance|may be chance", "Rely on predict"),
    ("than chance|may be chance", "predict picks what the decider's next policy prefers"),
    ("than chance|may be chance", "do not fit the rest"),
    ("no linear theta explains", "Rely on predict"),
    ("No linear policy explains", "supports this model"),
    ("Do not rely on this model", "Rely on predict"),
    ("look random", "(starts|begins?) in the middle"),
    ("neither random nor", "look random"),
    ("does not tell what kind of decider", "the decider learns"),
    ("does not tell what kind of decider", "the decider draws|the decider takes"),
    ("the forecast is the last policy", "we project it forward"),
    ("order of the candidates gives the choice away", "not drawn evenly"),
    ("filled in after the choice", "not drawn evenly"),
    ("It may be the choice itself", "not drawn evenly"),
    ("nothing wrong was found", "not drawn evenly|look random|in the middle"),
    ("does not work as this model assumes", "supports this model"),
    ("Nothing was learned", "Predicts"),
]


@functools.cache
def of(name):
    """Everything that is said of a log: by `validate`, a fit, its verdict, its page and `explain`."""
    entry, case = CORPUS[name], made(name)
    said = SimpleNamespace(entry=entry, case=case, log=case.log, validation=ibcb.validate(case.log))
    said.findings = {finding.code: finding for finding in said.validation.findings}
    if entry.fit is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            said.model = ibcb.IBCB(**entry.fit).fit(case.log)
        said.verdict = said.model.verdict(case.log)
        said.facts = facts(said.model, case.log, steps=False)
        said.thoughts = ibcb.explain(said.model, case.log)
    said.sentences = sentences(said)
    return said


def sentences(said):
    """All that is said, by where it stands."""
    found = [("validate", said.validation.verdict)]
    found += [("validate", text) for each in said.validation.findings for text in (each.message, each.remedy)]
    if said.entry.fit is not None:
        verdict = said.verdict
        found += [("notes_", str(note)) for note in said.model.notes_]
        found += [("verdict", text) for text in (verdict.headline, *verdict.reasons, verdict.next_step)]
        found += [("page", text) for text in texts(said.facts.to_json()) if text.endswith(".")]
    return found


def texts(data):
    """Every string of plain data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, (dict, list)):
        for each in data.values() if isinstance(data, dict) else data:
            yield from texts(each)


def contradicting(found):
    """Sentences of which one contradicts another."""
    pairs = [[[each for each in found if re.search(one, each[1])] for one in pair] for pair in CONTRADICTIONS]
    return [pair for pair in pairs if all(pair)]


def agreement(said):
    """Share of the next day's steps at which `predict` picks what the decider prefers."""
    return float(np.mean(said.model.predict(said.case.test) == said.case.preferred))


def entries(check, names=tuple(CORPUS)):
    """Those that are checked, slow ones and those with a known lie marked."""
    return [pytest.param(name, marks=marks(check, CORPUS[name])) for name in names]


def marks(check, entry):
    known = [pytest.mark.xfail(reason=entry.lies[check], strict=True)] if check in entry.lies else []
    return [*known, *([pytest.mark.slow] if entry.slow else [])]


# -- what must and must not be said ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", entries("findings"))
def test_validate_finds_what_is_there_and_nothing_else(name):
    said = of(name)
    assert said.entry.must <= said.findings.keys()
    assert said.findings.keys() <= said.entry.must | said.entry.may | ROUTINE_FINDINGS
    assert said.validation.ok == (said.entry.fit is not None)
    for code, text in said.case.told.items():
        assert text in said.findings[code].message


@pytest.mark.parametrize("name", entries("notes", FITTED))
def test_a_fit_notes_what_there_is_to_note_and_nothing_else(name):
    said = of(name)
    codes = {note.code for note in said.model.notes_}
    # Luck has no exact explanation.
    luck = set() if said.model.decider_.deterministic else {"no-exact-solution"}
    assert said.entry.notes <= codes
    assert codes <= said.entry.notes | said.entry.may_note | ROUTINE_NOTES | luck


@pytest.mark.parametrize("name", entries("kind", FITTED))
def test_a_decider_has_its_own_name_or_none(name):
    said = of(name)
    assert said.model.expert_ in {*said.entry.truth, *claims_nothing()}


@pytest.mark.parametrize("name", entries("level", FITTED))
def test_the_level_is_one_that_the_truth_allows_and_good_keeps_its_promise(name):
    said = of(name)
    assert said.verdict.level in said.entry.levels
    if said.verdict.level == "good":
        assert said.case.preferred is not None
        assert agreement(said) >= PROMISED - 2 * np.sqrt(PROMISED * (1 - PROMISED) / len(said.case.test))


@pytest.mark.parametrize("name", entries("never"))
def test_what_is_so_is_said_and_what_is_not_is_not(name):
    said = of(name)
    for pattern in said.entry.says:
        assert [text for _, text in said.sentences if re.search(pattern, text)]
    for pattern in (*said.entry.never, *set(RARE).difference(said.entry.says, said.entry.may_say)):
        assert not [text for _, text in said.sentences if re.search(pattern, text)]


# -- whatever the log --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", entries("contradictions"))
def test_no_two_sentences_contradict_each_other(name):
    assert not contradicting(of(name).sentences)


@pytest.mark.parametrize("name", entries("accused", FITTED))
def test_no_accused_choice_is_the_one_that_the_model_prefers(name):
    said = of(name)
    accused = said.thoughts.strayed > 0.5
    chosen = said.log.chosen[said.log.policy_steps]
    assert not np.any(accused & (said.thoughts.preferred == chosen))
    assert not np.any(accused & (said.thoughts.preferred < 0))
    assert all(each.chosen != each.preferred for each in said.facts.misfits.listed)


@pytest.mark.parametrize("name", entries("advice", FITTED))
def test_no_advice_has_been_followed_already(name):
    said = of(name)
    model, log = said.model, said.log
    for where, text in said.sentences:
        assert not (model.expert == "auto" and "expert='auto'" in text), (where, text)
        assert not (model.l2 == "auto" and "l2='auto'" in text), (where, text)
        assert not (model.forecast == "auto" and "forecast='auto'" in text), (where, text)
        for warmup in re.findall(r"warmup=(\d+)", text):
            assert int(warmup) > log.warmup, (where, text)
        if "(ibcb validate)" in text and said.verdict.next_step == text and "Check features" in text:
            assert said.validation.findings, text


FIGURES = [
    (r"Predicts ([\d.]+)% of choices", "predicted"),
    (r"Best simple rival \(.*\) ([\d.]+)%", "rival_predicted"),
    (r"[cC]hance ([\d.]+)%", "chance"),
    (r"bear out (?:only )?([\d.]+)%", "borne_out"),
    (r"confirm ([\d.]+)%", "confirmed"),
    (r"on about ([\d.]+)% of steps", "agreement"),
    (r"on at least ([\d.]+)%", "agreement_low"),
]
COUNTS = [
    (r"\(last (\d+) episodes\)", "episodes"),
    (r"^([\d,]+) later choices", "steps"),
    (r"([\d,]+) choices only the rival predicts", "rival_only"),
    (r"predicts, ([\d,]+) only the model", "model_only"),
]


@pytest.mark.parametrize("name", entries("numbers", FITTED))
def test_numbers_in_sentences_are_those_of_the_data(name):
    said = of(name)
    text, figures, accused = " ".join(said.verdict.reasons), said.verdict.figures, np.sum(said.thoughts.strayed > 0.5)
    for pattern, figure in FIGURES:
        for number in re.findall(pattern, text):
            assert float(number) == pytest.approx(100 * getattr(figures, figure), abs=0.05001)
    for pattern, figure in COUNTS:
        for number in re.findall(pattern, text):
            assert int(number.replace(",", "")) == getattr(figures, figure)
    for misfits, steps in re.findall(r"([\d,]+) of ([\d,]+) choices \([\d.]+%\) do not fit", text):
        assert int(misfits.replace(",", "")) == accused == said.facts.misfits.total
        assert int(steps.replace(",", "")) == said.log.policy_steps.stop - said.log.policy_steps.start
    for note in said.model.notes_:
        if note.code in ("learner-forecast", "last-policy-forecast"):
            missed = note.figures["compared"] - note.figures["predicted"]
            assert f"{missed:,} of {note.figures['compared']:,}" in note.text
        if note.code in ("kind-chosen", "kind-open"):
            assert f"{note.figures['log_likelihood']:.4f} per choice" in note.text
            running = [each for each in said.model.evidence_ if not each.out_after]
            (own,) = [each for each in running if each.name == note.figures["kind"]]
            assert note.figures["log_likelihood"] == own.log_likelihood
            if "predicts best" in note.text:
                assert own.log_likelihood == max(each.log_likelihood for each in running)


@pytest.mark.parametrize("name", entries("chance", FITTED))
def test_chance_is_one_of_the_candidates_recomputed(name):
    said = of(name)
    figures, log = said.verdict.figures, said.log
    if figures is not None:
        sizes = np.diff(log.step_offsets)[log.n_steps - figures.steps :]
        assert figures.chance == pytest.approx(np.mean(1 / sizes))


@pytest.mark.parametrize("name", entries("bound", FITTED))
def test_a_cautious_bound_is_one(name):
    """Under its condition, that choices depend on these features alone."""
    said = of(name)
    if said.case.preferred is None or not any("by a cautious bound" in text for text in said.verdict.reasons):
        return
    here = agreement(said)
    slack = 2 * np.sqrt(here * (1 - here) / len(said.case.test))
    assert said.verdict.figures.agreement_low <= here + slack


def test_a_corpus_of_forty_or_more():
    assert len(CORPUS) >= 40


# -- that the checks can fail ----------------------------------------------------------------------------------------


@functools.cache
def words():
    """All sentences of the source, each on one line."""
    source = Path(ibcb.__file__).parent
    found = " ".join(path.read_text(encoding="utf-8") for kind in ("py", "toml") for path in source.rglob(f"*.{kind}"))
    found = re.sub(r'"\s*\n\s*f?"', "", found)
    return re.sub(r"(\s|\\\n)+", " ", found)


@pytest.mark.parametrize("pattern", sorted({pattern for pair in CONTRADICTIONS for pattern in pair}))
def test_what_may_contradict_is_still_said_somewhere(pattern):
    for one in re.sub(r"\(.*?\)\??", ".*?", pattern).split("|"):
        assert re.search(one, words()), one


def test_contradictions_are_seen():
    for one, other in CONTRADICTIONS:
        assert one != other
    assert contradicting([("page", "this is no better than chance."), ("page", "Rely on predict and the weights.")])
    assert not contradicting([("page", "Rely on predict and the weights.")])
