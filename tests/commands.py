"""The command line, run inside the test process."""

import re

from typer.testing import CliRunner

from ibcb.cli import app


def ibcb_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeeds(*arguments):
    result = ibcb_command(*arguments)
    assert result.exit_code == 0, result.output
    return result


def assert_fails(result, code=1, *words):
    """With this code and nothing on stdout; with code 1, in one line."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code == 1:
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("error: ")
    for word in words:
        assert re.search(word, " ".join(result.stderr.split())), result.stderr
