"""The documentation as a site, from disk: complete, searchable, without network."""

import json
import re
import subprocess
import sys
from statistics import fmean
from urllib.parse import unquote, urldefrag

import pytest
from browser import missing
from documents import ROOT

pytest.importorskip("mkdocs", reason="MkDocs is not installed: the site is NOT built; run make docs")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: the site is NOT built; run make docs")
pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: the site is NOT built; run make docs")

WIDEST = 1440


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the site was built, without a warning."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    found = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return folder


@pytest.fixture
def page(request):
    """A page of a real browser."""
    if missing() is not None:
        pytest.skip(f"{missing()}: the site is NOT looked at in a browser; run make browser")
    found = request.getfixturevalue("browser").new_page()
    yield found
    found.close()


def pages(site):
    return sorted(page for page in site.glob("**/*.html") if page.name not in ("404.html", "report.html"))


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.glob("**/*.html"):
        text = page.read_text()
        assert not re.search(r"<(?:script|img|iframe)[^>]+src=.?https?:", text), page
        assert not re.search(r"<link[^>]+href=.?https?:(?![^>]*canonical)", text), page


def test_links_within_the_site_lead_somewhere_also_from_disk(site):
    for page in pages(site):
        for link in re.findall(r'<a [^>]*href="([^"]+)"', page.read_text()):
            target, _ = urldefrag(unquote(link))
            if target and not re.match(r"[a-z]+:", target):
                assert (page.parent / target).resolve().is_file(), (page.name, link)


def test_the_reference_and_the_sample_report_are_there(site):
    assert "partial_fit" in (site / "reference" / "estimators.html").read_text()
    assert "--no-steps" in (site / "reference" / "commands.html").read_text()
    assert "delivery days" in (site / "sample" / "report.html").read_text()


def test_no_section_holds_a_page_of_its_own_name(site):
    """As in Reference > Reference; the page of a section stands behind its heading."""
    text = (site / "index.html").read_text()
    navigation = text[text.index('data-md-level="0"') :]
    for label in ("Reference", "Decisions"):
        names = re.findall(rf'<span class="md-ellipsis">\s*{label}\s*</span>', navigation)
        assert len(names) <= 2, label  # the heading, and its copy for phones


def test_formulas_are_mathml_and_no_dollar_is_left(site):
    text = (site / "method.html").read_text()
    source = (ROOT / "docs" / "method.md").read_text()
    display = re.findall(r"(?m)^\$\$.+\$\$$", source)
    inline = re.findall(r"(?<!\$)\$[^$\n]+\$(?!\$)", source)
    assert len(display) >= 5
    assert text.count("<math") == len(display) + len(inline)
    assert "$" not in re.sub(r"<(script|style|math|code).*?</\1>", "", text[text.index("<article") :], flags=re.S)


def test_the_chart_of_results_shows_the_recorded_figures(site):
    text = (site / "results.html").read_text()
    chart = text[text.index('<figure class="summary">') : text.index("</figure>")]
    assert text.index("<h1") < text.index(chart) < text.index("<h2")
    cells = [json.loads(line) for line in (ROOT / "docs" / "results.jsonl").read_text().splitlines()]
    settings = {f"synthetic/sbts/std={noise}" for noise in ("0", "0.03", "0.07", "0.1")}
    mean = fmean(c["metrics"]["bt_fitness"] for c in cells if c["setting"] in settings and c["algorithm"] == "BaseSVC")
    assert f'<g data-share="{mean:.4f}"><title>Synthetic, SBTS: behaviour cloning {mean:.1%}' in chart


def test_search_works_from_disk(site, page):
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("propensities")
    result = page.locator(".md-search-result__link").first
    result.wait_for(timeout=20_000)
    assert "ropensities" in result.inner_text()
    assert not [url for url in requested if not url.startswith(("file:", "data:", "about:"))]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_code_is_cut_on_a_desktop_and_no_page_overflows_on_a_phone(site, page, scheme):
    page.emulate_media(color_scheme=scheme)
    for file in pages(site):
        page.set_viewport_size({"width": WIDEST, "height": 900})
        page.goto(file.as_uri())
        cut = "[...document.querySelectorAll('pre > code')].filter(code => code.scrollWidth > code.clientWidth + 1)"
        assert page.evaluate(f"{cut}.map(code => code.textContent.slice(0, 60))") == [], file
        page.set_viewport_size({"width": 375, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, file
