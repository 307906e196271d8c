"""One browser for all tests of the page."""

from __future__ import annotations

import pytest
from browser import ARGUMENTS, chromium, missing


# Of a module, not the session: Playwright keeps an event loop running as long as it lives.
@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "test_browser" in report.nodeid]
    if missing() is not None and skipped:
        terminalreporter.section("NOT TESTED IN A BROWSER", sep="!", red=True, bold=True)
        terminalreporter.line(f"{missing()}: nothing has looked at the report's page. `make browser` installs both.")
