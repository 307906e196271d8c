"""The command line, run inside the test process."""

from typer.testing import CliRunner

from ibcb.cli import app


def ibcb_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeeds(*arguments):
    result = ibcb_command(*arguments)
    assert result.exit_code == 0, result.output
    return result
