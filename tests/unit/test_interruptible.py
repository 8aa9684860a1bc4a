"""Asynchronous work that a signal ends."""

import asyncio
import signal

import pytest

from headway.cli.main import main
from headway.interruptible import run_interruptible


@pytest.fixture
def command(monkeypatch):
    """A command that does some work, in a process that ignores SIGINT or not; its exit status."""
    before = signal.getsignal(signal.SIGINT)

    def run(work, handler):
        monkeypatch.setattr("headway.cli.main._commands", lambda: lambda **_: run_interruptible(work()))
        signal.signal(signal.SIGINT, handler)
        return main([])

    yield run
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_sigterm_cancels_work_that_may_still_report(command, handler):
    """In the foreground, and in a script's background, where a shell has SIGINT ignored."""

    async def work():
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7

    before = signal.getsignal(signal.SIGTERM)
    assert command(work, handler) == 7
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_work_that_has_nothing_to_report_is_interrupted(command, capsys, handler):
    """One line, status 130."""

    async def work():
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    assert command(work, handler) == 130
    assert capsys.readouterr().err == "headway: interrupted\n"


def test_what_a_script_has_ignored_stays_ignored(command):
    """Ctrl-C for the script is none for what it left in its background."""

    async def work():
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return 7

    assert command(work, signal.SIG_IGN) == 7
