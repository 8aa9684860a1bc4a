"""The face of the command line: help, exit statuses, one clear line per mistake."""

import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time
import weakref

import pytest
import typer.main

from headway import __version__
from headway.cli.main import main, make_app
from headway.cli.start import start

COMMANDS = sorted(typer.main.get_command(make_app()).commands)


def run(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "headway", *args], capture_output=True, text=True, check=False, **kwargs
    )


@pytest.mark.parametrize(
    ("closed", "words", "status"),
    [("2>&-", "policies vllm --json", 0), (">&-", "policies vllm --json", 0), ("2>&-", "nonsense", 2)],
)
def test_a_closed_stream_takes_what_is_said_there(closed, words, status):
    """Nothing stands elsewhere for it, and the status is the same."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m headway {words} {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert bool(done.stdout) == (closed == "2>&-" and not status)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_is_not_there_is_no_terminal(monkeypatch, name):
    """Commands ask whether it is one."""
    monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr("headway.cli.main.main", lambda: int(getattr(sys, name).isatty()))
    assert start() == 0
    getattr(sys, name).close()


def test_every_flag_has_one_line_of_help():
    """Each command, argument and flag says what it is for."""
    group = typer.main.get_command(make_app())
    assert {"serve", "chat", "complete", "generate", "policies", "tape", "collect-env"} <= set(group.commands)
    for command in group.commands.values():
        assert command.help
        for parameter in command.params:
            assert parameter.help, f"{command.name} {parameter.name}"
            assert "\n" not in parameter.help


@pytest.mark.parametrize("args", [["--help"], ["-h"], [], *([name, "--help"] for name in COMMANDS)])
def test_help(headway, args):
    """Help goes to stdout and is no mistake; so does a bare `headway`."""
    status, out, err = headway(*args)
    assert (status, err) == (0, "")
    assert "headway" in out


def test_help_keeps_its_brackets(headway):
    """The name of a table is no mark-up."""
    assert "[policy]" in headway("serve", "--help")[1]


def test_version(headway):
    """--version prints the version alone."""
    assert headway("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_end_a_command_alike(monkeypatch, number):
    """Status 130, whatever the process did with SIGINT before: a script ignores it for what runs in its background."""

    def busy(**_):
        if number == signal.SIGTERM:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.raise_signal(number)
        pytest.fail("the signal did nothing")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("headway.cli.main._commands", lambda: busy)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # these tests may run in a script's background, too
    try:
        assert main([]) == 130
        assert signal.getsignal(signal.SIGTERM) == before[1]
    finally:
        signal.signal(signal.SIGINT, before[0])


def test_an_interruption_while_the_commands_are_loaded_says_so(capsys, monkeypatch):
    """The console script, and `python -m headway`, are there before what they need: Ctrl-C at once is no traceback."""

    class Pressed:
        def find_spec(self, name, *_):
            if name == "headway.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "headway.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    assert start() == 130
    assert capsys.readouterr() == ("", "headway: interrupted\n")
    with pytest.raises(SystemExit, match="130"):
        runpy.run_module("headway", run_name="__main__")
    assert capsys.readouterr() == ("", "headway: interrupted\n")


def test_the_console_script_runs_the_command_line(capsys, monkeypatch):
    """Its arguments are the process's."""
    monkeypatch.setattr(sys, "argv", ["headway", "--version"])
    assert start() == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("args", "work"),
    [
        (["policies"], "cli.policies._show_list"),
        (["bench", "compare", "a.json", "b.json"], "report.load_run"),
        (["simulate"], "cli.simulate_run._measure"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_interrupted_command_says_so(headway, monkeypatch, args, work):
    """One line and status 130, whatever the version of typer makes of Ctrl-C, and in commands of commands, too."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"headway.{work}", interrupted)
    assert headway(*args) == (130, "", "headway: interrupted\n")


@pytest.mark.parametrize("group", ["bench", "admin"])
def test_a_group_alone_shows_its_help_and_what_is_missing(headway, group):
    """Status 2: nothing was done."""
    status, out, err = headway(group)
    assert (status, err) == (2, f"headway {group}: which command? (see headway {group} --help)\n")
    assert f"Usage: headway {group}" in out


@pytest.mark.parametrize(
    ("command", "flag"),
    [("serve", "--port"), ("admin set", "--url"), ("bench serve", "--url"), ("simulate", "--policy")],
)
def test_a_flag_without_its_value_points_to_the_help_of_its_command(headway, command, flag):
    """In commands of commands, too."""
    said = f"headway {command}: Option '{flag}' requires an argument (see headway {command} --help)\n"
    assert headway(*command.split(), flag) == (2, "", said)


def test_a_signal_is_not_lost_where_python_throws_exceptions_away(monkeypatch, capsys):
    """One that comes in the callback of a weak reference, of which imports have many, still ends the command."""

    class Thing:
        pass

    def busy(**_):
        thing = Thing()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
        assert reference() is None
        time.sleep(10.0)
        pytest.fail("the signal did nothing")

    before = sys.unraisablehook, signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr("headway.cli.main._commands", lambda: busy)
    assert main([]) == 130
    assert (sys.unraisablehook, signal.getsignal(signal.SIGALRM)) == before
    assert capsys.readouterr().err == "headway: interrupted\n"


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_one_line():
    """Results that nothing can take: status 1, no traceback, not even when the interpreter ends."""
    with pathlib.Path("/dev/full").open("w") as full:
        script = "import sys; from headway.cli.main import main; sys.exit(main(['policies', 'vllm', '--json']))"
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "headway: cannot write the output: No space left on device\n")


def test_a_terminal_without_the_letters_is_one_line():
    """The table of policies has a Greek letter; ASCII has none."""
    done = run("policies", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stderr == "headway: '\\u03b1' cannot be written as ascii: set PYTHONIOENCODING=utf-8\n"


def test_help_loads_nothing_heavy():
    """The list of commands is there before anything of the engine, the server or a client is imported."""
    script = "import headway.cli.main, sys; print(*({'numpy', 'fastapi', 'httpx', 'tokenizers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("args", "mention"),
    [
        (["frobnicate"], "frobnicate"),
        (["policies", "--frobnicate"], "--frobnicate"),
        (["policies", "frobnicate"], "known: "),
        (["tape", "scene.json"], "--policy"),
        (["tape", "no/such/scene.json", "--policy", "vllm"], "no/such/scene.json"),
        (["tape", "scene.json", "--policy", "vllm", "--set", "x"], "key=value"),
        (["generate", "--prompt", "a", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "--prompt", "a", "--max-tokens", "0"], "max_tokens"),
        (["generate", "--prompt", "a", "--kv-cache-memory", "1 parsec"], "1GiB"),
        (["generate", "no/such/model.gguf", "--prompt", "a"], "no/such/model.gguf"),
        (["generate"], "--input"),
        (["serve", "--port", "99999"], "99999"),
        (["serve", "--policy", "frobnicate", "--port", "0"], "frobnicate"),
        (["serve", "--log-level", "loud"], "debug"),
        (["serve", "--num-blocks", "8", "--kv-cache-memory", "1G"], "num_blocks"),
        (["serve", "--block-size", "0"], "block_size"),
        (["serve", "--allowed-origins", "[1"], "JSON"),
        (["serve", "no/such/model.gguf", "--port", "0"], "no/such/model.gguf"),
        (["chat", "hi", "--url", "ftp://example.com"], "http://"),
        (["complete", ""], "PROMPT"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(headway, args, mention):
    """Bad usage and bad input: status 2, nothing on stdout, one line on stderr that names the trouble."""
    status, out, err = headway(*args)
    assert (status, out) == (2, "")
    assert err.startswith("headway")
    assert len(err.splitlines()) == 1
    assert mention in err


WRONG = ("tape", "no-scene.json", "--policy", "vllm")


@pytest.mark.server
def test_status_reaches_the_shell(nursery):
    """A process of its own ends with the same status, without a traceback."""
    process = nursery.start("headway.cli.main:main", *WRONG)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert len(err.splitlines()) == 1


@pytest.mark.slow  # imports everything anew
def test_status_of_an_interpreter_reaches_the_shell():
    """The same of one that a user starts."""
    done = run(*WRONG)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_leaves_is_no_error():
    """`headway policies | head -0`: no traceback, no complaint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "policies", "vllm", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1
