"""The page in a real Chromium: what a person meets, at a desk and on a phone."""

import re
from pathlib import Path

import numpy as np
import pytest
from browser import missing
from pages import HOSTILE, compared, fitted, hostile, logged, plain, shared, wide

from ibcb.report import facts, write_report

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"{missing()}: the page is NOT tested; run make browser")

WIDTHS = (375, 1440)
NAMES = ("sbucb", "sbts", "softmax", "compared", "hostile", "changed", "bare", "wide", "plain", "shared", "logged")
LOOKS = (Path(__file__).parent / "looks.js").read_text()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of all kinds, by name."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "sbucb": (*pair("sbucb"), True),
        "sbts": (*pair("sbts"), True),
        "softmax": (*pair("softmax"), True),
        "compared": (*compared(), True),
        "hostile": (*hostile(), True),
        "changed": (*hostile(changed=True), True),
        "bare": (*hostile(changed=True), False),
        "wide": (*wide(), True),
        "plain": (*plain(), True),
        "shared": (*shared(), True),
        "logged": (*logged(), True),
    }
    for name, (model, log, steps) in made.items():
        write_report(model, log, folder / f"{name}.html", steps=steps)
    return folder


def pair(expert):
    model, run = fitted(expert)
    return model, run.log


class Visit:
    """A page that was opened, and all that it complained of or asked for."""

    def __init__(self, browser, path, width, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

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
def visit(browser, pages):
    opened = []

    def open_page(name, width=1440, scheme="light"):
        opened.append(Visit(browser, pages / f"{name}.html", width, scheme))
        return opened[-1]

    yield open_page
    for each in opened:
        each.context.close()


@pytest.mark.parametrize("place, name", [*enumerate(NAMES)])
def test_it_opens_from_disk_without_complaint_and_asks_for_nothing(visit, place, name):
    seen = visit(name, WIDTHS[place % 2])
    for label in seen.page.locator(".filters label").all():
        label.click()
    seen.page.locator("summary").first.click()
    seen.page.locator("#theme").click()
    seen.page.mouse.move(200, 300)
    assert seen.complaints == []
    assert len(seen.requests) == 1
    assert seen.requests[0].startswith("file://")


@pytest.mark.parametrize(
    "name, width", [*((name, min(WIDTHS)) for name in NAMES), ("hostile", max(WIDTHS)), ("wide", max(WIDTHS))]
)
def test_nothing_overlaps_and_nothing_sticks_out(visit, name, width):
    seen = visit(name, width)
    for details in seen.page.locator("details").all():
        details.evaluate("node => node.open = true")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    # The weights fit; tables with a column per episode or feature may be scrolled.
    assert seen.page.locator("#weights .scroll").evaluate("n => n.scrollWidth <= n.clientWidth + 1")
    assert seen.page.evaluate(f"{LOOKS}.overlaps()") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_explorer_moves_by_mouse(visit, width):
    seen = visit("sbucb", width)
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
    keys = seen.page.keyboard
    seen.page.locator("#stage").focus()
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    keys.press("ArrowLeft")
    assert seen.place() == (0, sample[0].steps[1].step)
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    assert seen.place() == (2, sample[2].steps[0].step)
    keys.press("ArrowUp")
    assert seen.place() == (1, sample[1].steps[0].step)
    keys.press("ArrowLeft")
    assert seen.place() == (0, sample[0].steps[-1].step)
    assert "Episode 0" in seen.text("#spoken")
    assert seen.page.evaluate("document.activeElement.id") == "stage"


def test_everything_can_be_reached_by_tab(visit):
    seen = visit("changed")
    reached = set()
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        at = "n => n && (n.id || n.dataset.go || n.value || n.className || n.textContent)"
        reached.add(seen.page.evaluate(f"({at})(document.activeElement)"))
    assert {"theme", "stage", "pick-episode", "step+1", "all", "skip"} <= reached


@pytest.mark.parametrize("name", ["sbucb", "sbts", "changed"])
def test_filters_keep_what_they_say(visit, name):
    seen = visit(name)
    found = facts(*(hostile(changed=True) if name == "changed" else pair(name)))
    steps = [(episode.number, step) for episode in found.sample for step in episode.steps]
    tests = {
        "disagree": lambda s: s.picked != s.chosen,
        "surprise": lambda s: s.predicted is not None and s.predicted != s.chosen,
        "explored": lambda s: s.explored,
        "contradicts": lambda s: s.contradicts,
    }
    for key, test in tests.items():
        label = seen.page.locator(f".filters label:has(input[value={key}])")
        kept = [(number, step.step) for number, step in steps if test(step)]
        if (key == "contradicts" and not kept) or (key == "explored" and name == "sbts"):
            assert label.count() == 0
            continue
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
    names = seen.page.locator(".weights tbody th").all_inner_texts()
    shown = numbers(seen.page.locator(".weights tbody td[data-weight]").all_inner_texts())
    order = [int(name.split()[-1]) for name in names]
    np.testing.assert_allclose(shown, policy[order], atol=6e-4 * np.abs(policy).max())
    assert shown == sorted(shown, key=abs, reverse=True)
    for selector, expected in ((".next", after), (".reward", reward)):
        shown = numbers(seen.page.locator(f".weights tbody td{selector}").all_inner_texts())
        np.testing.assert_allclose(shown, expected[order], atol=6e-4 * np.abs(expected).max())
    for side, expected in ((0, interval.lower), (1, interval.upper)):
        ends = seen.page.locator(f".weights tbody .interval span:nth-child({side + 1})").all_inner_texts()
        shown = numbers([text.removesuffix("to").strip() for text in ends])
        np.testing.assert_allclose(shown, expected[order], atol=6e-4 * np.abs(policy).max())

    seen.page.locator("#episode-table summary").click()
    predicted = seen.page.locator("#episode-table tbody tr td:nth-child(4)").all_inner_texts()
    known = [entry.predicted for entry in facts(model, run.log, steps=False).episodes]
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
    effects = numbers(seen.page.locator(".why tbody td:last-child").all_inner_texts())
    lead = numbers(re.findall(r"Expected: (\S+) for", seen.text("#stage .fine")))
    assert sum(effects) == pytest.approx(lead[0], abs=0.01 * max(map(abs, effects)))


def test_long_tables_begin_short_and_open(visit):
    seen = visit("wide")
    rows, features = seen.page.locator(".candidates tbody tr"), seen.page.locator(".why tbody tr")
    assert rows.count() <= 15
    assert features.count() == 10
    seen.page.get_by_role("button", name="Show all 30 candidates").click()
    seen.page.get_by_role("button", name="Show all 20 features").click()
    assert rows.count() == 30
    assert features.count() == 20
    seen.page.keyboard.press("ArrowRight")
    assert rows.count() == 30
    shown = seen.page.locator(".weights tbody tr:visible")
    assert shown.count() == 20


def test_hostile_names_and_ids_are_shown_as_text(visit):
    seen = visit("changed")
    shown = set(seen.page.locator(".weights tbody bdi").evaluate_all("nodes => nodes.map(n => n.textContent)"))
    # HTML text cannot hold NUL.
    assert shown == {name.replace("\x00", "") for name in HOSTILE}
    assert seen.page.locator("#stage img, #stage b, main script").count() == 0
    assert seen.page.locator("#stage .meta").evaluate("n => n.textContent").startswith("<b>id 0:")
    assert seen.page.evaluate("window.alerted") is None
    assert seen.complaints == []


def test_a_contradiction_leads_to_its_step(visit):
    seen = visit("changed")
    first = seen.page.locator(".contradictions li").first
    place = tuple(int(x) for x in re.findall(r"\d+", first.inner_text())[:2])
    first.get_by_role("link").click()
    assert seen.place() == place
    assert "contradicts" in seen.text("#stage .says")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit, scheme):
    """Contrast of 4.5 to 1 for all text: the level AA of WCAG."""
    seen = visit("changed", scheme=scheme)
    assert seen.page.evaluate(f"{LOOKS}.pale()") == []


def test_landmarks_headings_and_tables_are_there_for_a_screen_reader(visit):
    seen = visit("changed")
    for role in ("banner", "main", "contentinfo", "navigation"):
        assert seen.page.get_by_role(role).count() == 1
    assert seen.page.get_by_role("heading", level=1).count() == 1
    assert seen.page.get_by_role("heading", level=2).count() == 6
    for image in seen.page.locator("main svg[role=img]").all():
        assert "table below" in image.get_attribute("aria-label")
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
    assert len(seen.page.pdf()) > 10_000
