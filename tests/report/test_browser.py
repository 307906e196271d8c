"""The page in a real Chromium: what a person meets, at a desk and on a phone."""

import csv
import functools
import io
import re
from pathlib import Path

import numpy as np
import pytest
from browser import axe, missing
from pages import HOSTILE, arms, compared, dirty, fitted, hostile, logged, plain, settled, shared, shop, wide

from ibcb.report import facts, write_report

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"{missing()}: the page is NOT tested; run make browser")

WIDTHS = (375, 1440)
LOOKS = (Path(__file__).parent / "looks.js").read_text()


def pair(expert):
    model, run = fitted(expert)
    return model, run.log


MADE = {name: functools.partial(pair, name) for name in ("sbucb", "sbts", "softmax")}
MADE |= {"compared": compared, "hostile": hostile, "changed": lambda: hostile(changed=True), "wide": wide}
MADE |= {"bare": lambda: hostile(changed=True), "plain": plain, "shared": shared, "logged": logged}
MADE |= {"dirty": lambda: dirty()[:2], "settled": settled, "arms": arms, "shop": shop}


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Pages of all kinds, by name; each is written when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name):
        path = folder / f"{name}.html"
        if not path.exists():
            write_report(*MADE[name](), path, steps=name != "bare")
        return path

    return page


class Visit:
    """A page that was opened, and all that it complained of or asked for."""

    def __init__(self, browser, path, width, scheme="light", address=""):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.set_default_timeout(8000)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + address)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def place(self):
        """Episode and step that the explorer shows."""
        return tuple(int(x) for x in re.findall(r"\d+", self.text("#stage h3")))


@pytest.fixture
def visit(browser, page_of):
    opened = []

    def open_page(name, width=1440, scheme="light", address=""):
        opened.append(Visit(browser, page_of(name), width, scheme, address))
        return opened[-1]

    yield open_page
    for each in opened:
        each.context.close()


@pytest.mark.parametrize(
    "name, width", [*((name, min(WIDTHS)) for name in MADE), ("hostile", max(WIDTHS)), ("wide", max(WIDTHS))]
)
def test_it_opens_from_disk_without_complaint_asks_for_nothing_and_nothing_overlaps(visit, name, width):
    seen = visit(name, width)
    for details in seen.page.locator("details").all():
        details.evaluate("node => node.open = true")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    # The weights fit; tables with a column per episode or feature may be scrolled.
    assert seen.page.locator("#weights .scroll").evaluate("n => n.scrollWidth <= n.clientWidth + 1")
    assert seen.page.evaluate(f"{LOOKS}.overlaps()") == []
    for label in seen.page.locator(".filters label").all():
        label.click()
    seen.page.locator("summary").first.click()
    seen.page.locator("#theme").click()
    seen.page.mouse.move(200, 300)
    assert seen.complaints == []
    assert len(seen.requests) == 1
    assert seen.requests[0].startswith("file://")


def test_the_explorer_moves_by_mouse(visit):
    seen = visit("sbucb", min(WIDTHS))
    sample = facts(*pair("sbucb")).sample
    order = [(episode.number, step.step) for episode in sample for step in episode.steps]
    assert seen.place() == order[0]
    seen.page.get_by_label("Next step").click()
    assert seen.place() == order[1]
    seen.page.get_by_label("Step before").click()
    assert seen.place() == order[0]
    assert seen.page.get_by_label("Step before").is_disabled()
    seen.page.get_by_label("Next episode").click()
    assert seen.place() == (1, sample[1].steps[0].step)
    seen.page.get_by_label("Step before").click()
    assert seen.place() == (0, sample[0].steps[-1].step)
    seen.page.locator("#pick-episode").select_option("3")
    assert seen.place() == (3, sample[3].steps[0].step)
    strip = seen.page.locator("#strip svg")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    pitch = min(14, box["width"] / len(sample[3].steps))
    strip.click(position={"x": pitch * len(sample[3].steps) - 1, "y": 15})
    assert seen.place() == (3, sample[3].steps[-1].step)


def test_the_explorer_moves_by_keyboard(visit):
    seen = visit("sbucb")
    sample = facts(*pair("sbucb")).sample
    seen.page.locator("#stage").focus()
    first, third = [(0, sample[0].steps[1].step), (2, sample[2].steps[0].step)], (0, sample[0].steps[-1].step)
    for keys, place in zip(("Right Right Left", "Down Down", "Up Left"), (*first, third), strict=True):
        for key in keys.split():
            seen.page.keyboard.press(f"Arrow{key}")
        assert seen.place() == place
    assert "Episode 0" in seen.text("#spoken")
    assert seen.page.evaluate("document.activeElement.id") == "stage"


def test_everything_can_be_reached_by_tab(visit):
    seen = visit("changed")
    reached = set()
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        at = "n => n && (n.id || n.dataset.go || n.value || n.getAttribute('class') || n.textContent)"
        reached.add(seen.page.evaluate(f"({at})(document.activeElement)"))
    assert {"theme", "stage", "pick-episode", "step+1", "all", "skip"} <= reached


def test_filters_keep_what_they_say(visit):
    # What draws has no choice that exploration decided.
    assert visit("sbts").page.locator(".filters label:has(input[value=explored])").count() == 0
    seen = visit("changed")
    found = facts(*hostile(changed=True))
    steps = [(episode.number, step) for episode in found.sample for step in episode.steps]
    tests = {
        "misfit": lambda s: s.strayed > 0.5,
        "disagree": lambda s: s.picked != s.chosen,
        "surprise": lambda s: s.predicted is not None and s.predicted != s.chosen,
        "explored": lambda s: s.explored,
    }
    for key, test in tests.items():
        label = seen.page.locator(f".filters label:has(input[value={key}])")
        kept = [(number, step.step) for number, step in steps if test(step)]
        assert label.locator("b").inner_text() == f"{len(kept):,}"
        label.click()
        if not kept:
            assert "no step" in seen.text("#place")
            assert seen.page.locator("#stage .empty").is_visible()
            continue
        seen.page.locator("#pick-episode").select_option("0")
        shown = [seen.place()]
        while not seen.page.get_by_label("Next step").is_disabled() and len(shown) < 12:
            seen.page.get_by_label("Next step").click()
            shown.append(seen.place())
        assert shown == kept[: len(shown)]


def numbers(texts):
    return [float(text.replace("\u2212", "-").replace(",", "").rstrip("%")) for text in texts]


@pytest.mark.parametrize("expert", ["sbucb", "sbts"])
def test_the_numbers_shown_are_the_model_s(visit, expert):
    model, run = fitted(expert)
    seen = visit(expert)
    interval = model.policy_interval(0.9, direction=True)
    after, reward = model.direction(model.next_policy_coef_), model.direction(model.coef_)
    policy = interval.estimate
    found = facts(model, run.log, steps=False)
    names = seen.page.locator(".weights tbody th").all_inner_texts()
    order = [int(name.split()[-1]) for name in names]
    influence = numbers(seen.page.locator(".weights tbody td.share").all_inner_texts())
    np.testing.assert_allclose(influence, [100 * weight.influence for weight in found.weights], atol=0.06)
    assert influence == sorted(influence, reverse=True)
    spreads = np.array([weight.spread for weight in found.weights])
    for unit, factor in (("unit", 1.0), ("spread", spreads)):
        seen.page.locator(f"#units input[value={unit}]").check()
        for selector, expected in (("td[data-weight]", policy), (".next", after), (".reward", reward)):
            shown = numbers(seen.page.locator(f".weights tbody {selector}").all_inner_texts())
            np.testing.assert_allclose(shown, expected[order] * factor, rtol=6e-3, atol=6e-3 * np.abs(policy).max())
        for side, expected in ((1, interval.lower), (2, interval.upper)):
            ends = seen.page.locator(f".weights tbody .interval .{unit} span:nth-child({side})").all_inner_texts()
            shown = numbers([text.removesuffix("to").strip() for text in ends])
            np.testing.assert_allclose(shown, expected[order] * factor, rtol=6e-3, atol=6e-3 * np.abs(policy).max())

    seen.page.locator("#episode-table summary").click()
    predicted = seen.page.locator("#episode-table tbody td.predicted").all_inner_texts()
    known = [entry.predicted for entry in found.episodes]
    assert predicted == ["\u2013" if share is None else f"{share:.1%}" for share in known]

    number, step = seen.place()
    row = seen.page.locator("#stage tr.chosen")
    context = run.log[number].candidates(step + (run.log[0].n_steps - 120 if number == 0 else 0))
    candidate = int(row.get_attribute("data-candidate"))
    scale = 1.0 if expert == "sbucb" else np.linalg.norm(model.policy_coefs_[number])
    expected = context[candidate] @ model.policy_coefs_[number] / scale
    column = "td.num.part >> nth=0" if expert == "sbucb" else "td.num.total"
    np.testing.assert_allclose(numbers(row.locator(column).all_inner_texts()), [expected], atol=1e-3)


def test_comparing_with_another_candidate_adds_up(visit):
    seen = visit("sbucb")
    seen.page.locator("#stage .candidates tbody tr button").nth(3).click()
    other = seen.page.locator("#stage .candidates tbody tr").nth(3).get_attribute("data-candidate")
    assert seen.text("#stage h4").endswith(f"and not {other}?")
    *effects, whole = numbers(seen.page.locator(".why td.effect").all_inner_texts())
    assert sum(effects) == pytest.approx(whole, abs=0.01 * max(map(abs, effects)))
    assert seen.page.locator(".why tr.bonus .fall.bonus").count() == 1
    totals = numbers(seen.page.locator("#stage td.total").all_inner_texts())
    order = [int(row.get_attribute("data-candidate")) for row in seen.page.locator("#stage tbody tr[role=row]").all()]
    taken = int(seen.page.locator("#stage tr.chosen").get_attribute("data-candidate"))
    lead = totals[order.index(taken)] - totals[order.index(int(other))]
    assert whole == pytest.approx(lead, abs=0.01 * max(map(abs, effects)))


def test_a_choice_not_predicted_can_be_seen_as_it_was_foreseen(visit):
    seen = visit("sbucb")
    seen.page.locator(".filters label:has(input[value=surprise])").click()
    number, step = seen.place()
    sampled = next(s for e in facts(*pair("sbucb")).sample if e.number == number for s in e.steps if s.step == step)
    first = seen.page.locator("#stage .candidates tbody tr").first
    assert int(first.get_attribute("data-candidate")) == sampled.picked
    assert "now believed" in seen.text("#stage h4 + .fine")
    seen.page.get_by_label("as then foreseen").check()
    assert int(first.get_attribute("data-candidate")) == sampled.predicted != sampled.chosen
    assert "predicted" in seen.text("#stage h4 + .fine")
    *effects, whole = numbers(seen.page.locator(".why td.effect").all_inner_texts())
    assert sum(effects) == pytest.approx(whole, abs=0.01 * max(map(abs, effects)))
    assert whole <= 0
    seen.page.reload()
    assert seen.place() == (number, step)
    assert seen.page.get_by_label("as then foreseen").is_checked()


def test_long_tables_begin_short_and_open(visit):
    seen = visit("wide")
    rows, features = seen.page.locator(".candidates tbody tr"), seen.page.locator(".why tbody tr")
    assert rows.count() <= 15
    # Ten features, the others together, the bonus and the whole.
    assert features.count() == 13
    seen.page.get_by_role("button", name="Show all 30 candidates").click()
    seen.page.get_by_role("button", name="Show all 20 features").click()
    assert rows.count() == 30
    assert features.count() == 22
    seen.page.keyboard.press("ArrowRight")
    assert rows.count() == 30
    shown = seen.page.locator(".weights tbody tr:visible")
    assert shown.count() == 20


def test_hostile_names_and_ids_are_shown_as_text(visit):
    seen = visit("changed")
    shown = seen.page.locator(".weights tbody bdi").evaluate_all("nodes => nodes.map(n => [n.title, n.textContent])")
    # HTML cannot hold NUL: an attribute has U+FFFD instead, text nothing.
    assert {title for title, _ in shown} == {name.replace("\x00", "\ufffd") for name in HOSTILE}
    for title, text in shown:
        whole, (head, _, tail) = title.replace("\ufffd", ""), text.partition("…")
        assert text == whole or (len(text) <= 80 and whole.startswith(head) and whole.endswith(tail))
    assert seen.page.locator("#stage img, #stage b, main script").count() == 0
    assert seen.page.locator("#stage .meta").evaluate("n => n.textContent").startswith("<b>id 0:")
    assert seen.page.evaluate("window.alerted") is None
    assert seen.complaints == []


def test_a_choice_that_does_not_fit_leads_to_its_step(visit):
    seen = visit("changed")
    model, log = hostile(changed=True)
    worst = facts(model, log).misfits.listed[0]
    seen.page.get_by_role("link", name="Show it").first.click()
    assert seen.place() == (worst.episode, worst.step)
    assert "does not fit" in seen.text("#stage .says")
    assert seen.page.evaluate("document.activeElement.id") == "stage"
    assert seen.page.url.endswith(f"#step={worst.episode}:{worst.step}")
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="Download as CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert (int(rows[0]["episode"]), int(rows[0]["step"])) == (worst.episode, worst.step)
    seen.page.locator("#certificate summary").click()
    assert seen.page.locator(".contradictions li").count() > 1


def test_every_step_has_an_address(visit):
    sample = facts(*pair("sbucb")).sample
    seen = visit("sbucb", address="#step=2:7")
    assert seen.place() == (2, 7)
    assert seen.page.locator("#stage").evaluate("n => n.getBoundingClientRect().top < innerHeight")
    seen.page.locator("#jump-to").fill("4:11")
    seen.page.keyboard.press("Enter")
    assert seen.place() == (4, 11)
    assert seen.page.url.endswith("#step=4:11")
    seen.page.locator("#jump-to").fill("99:1")
    seen.page.keyboard.press("Enter")
    assert "not among the steps shown" in seen.text("#jump-said")
    assert seen.place() == (4, 11)
    # A reload finds it again, even after a link to elsewhere.
    seen.page.get_by_role("link", name="Evolution").click()
    seen.page.reload()
    assert seen.place() == (4, 11)
    seen.page.goto(seen.page.url.partition("#")[0] + f"#step=1:{sample[1].steps[3].step}")
    assert seen.place() == (1, sample[1].steps[3].step)


def test_a_step_can_be_copied_as_csv(visit):
    seen = visit("sbucb")
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("button", name="Copy as CSV").click()
    seen.page.get_by_role("button", name="Copied").wait_for()
    rows = list(csv.DictReader(io.StringIO(seen.page.evaluate("navigator.clipboard.readText()"))))
    episode = facts(*pair("sbucb")).sample[0]
    assert [int(row["candidate"]) for row in rows] == episode.steps[0].candidates
    assert [float(row["expected"]) for row in rows] == episode.steps[0].expected
    assert [float(row["feature 2"]) for row in rows] == [values[2] for values in episode.steps[0].values]


def test_counts_of_the_whole_log_stand_beside_those_of_the_sample(visit):
    seen = visit("dirty")
    found = facts(*dirty()[:2])
    shown = sum(len(episode.steps) for episode in found.sample)
    label = seen.text(".filters label:has(input[value=all]) b")
    assert label == (f"{shown:,}" if shown == found.n_steps else f"{shown:,} shown of {found.n_steps:,}")
    named = sum(step.strayed > 0.5 for episode in found.sample for step in episode.steps)
    assert named == found.misfits.total
    assert seen.text(".filters label:has(input[value=misfit]) b") == f"{named:,}"
    assert "could not be predicted" in seen.page.locator("#pick-episode option").first.inner_text()
    assert seen.text("#place") == f"1 of {len(found.sample[0].steps):,} shown"


# -- the first screen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dirty", "shop", "settled"])
def test_two_questions_are_answered_without_scrolling(visit, name):
    """What does it want, and can I trust this?"""
    seen = visit(name)
    for selector in (".card", "#verdict", "#verdict .step", "#verdict li"):
        for node in seen.page.locator(selector).all():
            assert node.evaluate("n => n.getBoundingClientRect().bottom <= 900"), selector
    assert seen.page.locator(".settings").evaluate("n => n.getBoundingClientRect().top > 900")


def test_a_price_in_cents_has_digits_and_one_hot_levels_stand_together(visit):
    seen = visit("shop")
    price = seen.page.locator(".weights tr", has_text="price_cents").locator("td[data-weight]").inner_text()
    assert re.search(r"[1-9]\d\d", price)
    assert seen.page.locator(".weights tr.group").count() == 1
    opener = seen.page.get_by_role("button", name="3 weights")
    members = seen.page.locator(".weights tr.member:visible")
    assert members.count() == 3
    opener.click()
    assert members.count() == 0
    rows = visit("shared").page.locator(".weights tbody tr:has(.undetermined)")
    assert rows.count() == 2


def test_many_rows_are_printed_and_shown_without_a_script(browser, page_of, visit):
    seen = visit("arms")
    rows = seen.page.locator(".weights tbody tr")
    hidden = rows.count() - seen.page.locator(".weights tbody tr:visible").count()
    assert hidden > 20
    seen.page.emulate_media(media="print")
    assert seen.page.locator(".weights tbody tr:visible").count() == rows.count()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of("arms").as_uri())
    assert page.locator(".weights tbody tr:visible").count() == rows.count()
    context.close()


# -- charts ------------------------------------------------------------------------------------------------------------


def test_charts_take_the_focus_and_tell_values_by_arrow_keys_and_taps(visit):
    seen = visit("sbucb")
    found = facts(*pair("sbucb"), steps=False)
    seen.page.locator("#chart-today svg").focus()
    seen.page.keyboard.press("Home")
    assert seen.text("#read-today") == f"Episode 0: same choice {found.episodes[0].today:.1%}"
    seen.page.keyboard.press("ArrowRight")
    assert seen.text("#read-today") == f"Episode 1: same choice {found.episodes[1].today:.1%}"
    seen.page.keyboard.press("End")
    assert seen.text("#read-today").startswith("After 5 updates")
    chart = seen.page.locator("#multiples svg").first
    chart.focus()
    seen.page.keyboard.press("Home")
    weight = found.weights[found.lines[0]]
    shown = seen.text("#read-evolution")
    assert shown.startswith(f"Episode 0: {weight.name}")
    told = numbers(re.findall(r"[\u2212\d.]+", shown.partition(weight.name)[2]))
    expected = [found.evolution[0][0], found.lower[0][0], found.upper[0][0]]
    np.testing.assert_allclose(told, expected, atol=2e-3 * abs(weight.last))
    seen.page.locator("#chart-prediction svg").focus()
    seen.page.keyboard.press("Home")
    assert "could not be predicted" in seen.text("#read-prediction")
    box = seen.page.locator("#chart-regret svg").bounding_box()
    seen.page.locator("#chart-regret svg").click(position={"x": 46, "y": box["height"] / 2})
    assert seen.text("#read-regret") == f"Episode 0: regret {found.episodes[0].regret:.1%}"


def test_the_log_s_end_is_marked_and_the_forecast_has_no_kink(visit):
    seen = visit("sbucb")
    charts = seen.page.locator("#multiples .chart")
    assert charts.count() == 4
    assert seen.page.locator("#multiples .ribbon").count() == 4
    assert seen.page.locator("#chart-today .ends-label").inner_html() == "log ends"
    for chart in charts.all():
        past, ahead = (node.get_attribute("d") for node in chart.locator("path.series").all())
        assert past.split("L")[-1] == ahead.removeprefix("M").split("L")[0]


def test_axes_have_dates_where_there_are_any(visit):
    ticks = visit("shop").page.locator("#chart-prediction .tick")
    assert ticks.first.inner_html() == "Feb 27"
    assert visit("sbucb").page.locator("#chart-prediction .tick").first.inner_html() == "0"


@pytest.mark.parametrize("name, explores", [("sbts", 1), ("compared", 1), ("settled", 0)])
def test_only_a_decider_that_explores_has_a_chart_of_it(visit, name, explores):
    seen = visit(name)
    assert seen.page.locator("#chart-exploration").count() == explores
    assert seen.page.locator("#chart-exploration .ribbon").count() == (name == "compared")
    assert ("Thompson" in seen.page.locator("main").inner_text()) == (name == "sbts")
    assert seen.page.locator(".evidence tr.chosen").count() == (name == "compared")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_text_stand_out_and_leaders_have_the_colour_of_their_line(visit, scheme):
    """Contrast of 4.5 to 1 for all text: the level AA of WCAG."""
    seen = visit("changed", scheme=scheme)
    assert seen.page.evaluate(f"{LOOKS}.faint()") == seen.page.evaluate(f"{LOOKS}.pale()") == []
    for group in seen.page.locator("#chart-prediction g[data-series]").all():
        line, leader = (group.locator(f"path.{kind}").first for kind in ("series", "leader"))
        colour = "n => getComputedStyle(n).stroke"
        assert line.evaluate(colour) == leader.evaluate(colour)


@pytest.mark.skipif(axe() is None, reason="axe-core is not installed: accessibility is NOT tested; run make browser")
@pytest.mark.parametrize(
    "name, width, scheme",
    [
        ("shop", 375, "light"),
        ("changed", 1024, "dark"),
        ("logged", 1440, "light"),
    ],
)
def test_axe_finds_nothing(visit, name, width, scheme):
    seen = visit(name, width, scheme)
    for details in seen.page.locator("details").all():
        details.evaluate("node => node.open = true")
    seen.page.evaluate(axe().read_text() + "; void 0")
    found = seen.page.evaluate("axe.run()")["violations"]
    assert [(rule["id"], node["html"][:120]) for rule in found for node in rule["nodes"]] == []


def test_light_and_dark_follow_the_system_and_the_button(visit):
    def ground(seen):
        colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour))

    day, night = visit("sbucb", scheme="light"), visit("sbucb", scheme="dark")
    assert ground(day) > 600
    assert ground(night) < 120
    night.page.locator("#theme").click()
    assert ground(night) == ground(day)
    day.page.locator("#theme").click()
    assert ground(day) < 120


def test_landmarks_headings_and_tables_are_there_for_a_screen_reader(visit):
    seen = visit("changed")
    for role in ("banner", "main", "contentinfo", "navigation"):
        assert seen.page.get_by_role(role).count() == 1
    assert seen.page.get_by_role("heading", level=1).count() == 1
    # The four cards, the verdict and the other six sections.
    assert seen.page.get_by_role("heading", level=2).count() == 11
    for image in seen.page.locator("main svg[role=img]").all():
        assert re.search("table .*(below|above)", image.get_attribute("aria-label"))
    for table in seen.page.locator("table").all():
        assert table.locator("caption").count() == 1
    unnamed = "nodes => nodes.filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).length"
    assert seen.page.locator("button, select, input").evaluate_all(unnamed) == 0


def test_it_prints_light_without_its_controls(visit, tmp_path):
    seen = visit("sbucb", scheme="dark")
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert not seen.page.locator(".controls").is_visible()
    assert not seen.page.locator("#theme").is_visible()
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.page.evaluate(f"{LOOKS}.pale()") == seen.page.evaluate(f"{LOOKS}.faint()") == []
    assert len(seen.page.pdf()) > 10_000
