"""Processes without the seconds that imports take: one parent imports everything, and forks a child for each order.

A child is a process of its own, with its own standard output and error, signals and exit status.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from tests.support.certificates import read_once

PRELOADED = ("tests.support.serve_fake", "headway.cli.main", "headway.cli.serve", "headway.bench", "headway.report")


class Child:
    """What tests use of `subprocess.Popen`: `stdout` and `stderr` are text, `returncode` is there after the end."""

    def __init__(self, out, err, status):
        self.stdout, self.stderr = (os.fdopen(fd, encoding="utf-8") for fd in (out, err))
        self._status = os.fdopen(status, encoding="ascii")
        self.pid, self.returncode = int(self._status.readline()), None

    def send_signal(self, number):
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=30):
        """Read both to their ends and wait; a child that goes on longer than `timeout` seconds is killed."""
        if self.stdout.closed:
            return "", ""
        watch = threading.Timer(timeout, self.kill)
        watch.start()
        errors = []
        reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
        reader.start()
        output = self.stdout.read()
        reader.join()
        self.returncode = int(self._status.readline())
        watch.cancel()
        for file in (self.stdout, self.stderr, self._status):
            file.close()
        return output, errors[0]


class Nursery:
    """`start` a child that calls a function of no arguments, `module:name`, with words in `sys.argv`."""

    def __init__(self):
        self._ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())]
            self._parent = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def start(self, function, *words, **environment):
        order = json.dumps([function, [str(word) for word in words], dict(os.environ | environment)]).encode()
        pipes = [os.pipe() for _ in range(3)]
        socket.send_fds(self._ours, [len(order).to_bytes(4, "big")], [to for _, to in pipes])
        self._ours.sendall(order)
        for _, to in pipes:
            os.close(to)
        return Child(*(source for source, _ in pipes))

    def close(self):
        self._ours.close()
        self._parent.wait(30)


def serve(fd):
    """The parent: a fork for each order, and in between one that waits and tells the status."""
    for name in PRELOADED:
        importlib.import_module(name)
    read_once()
    with socket.socket(fileno=fd) as orders, orders.makefile("rb") as text:
        while True:
            size, fds, _, _ = socket.recv_fds(orders, 4, 3)
            if not size:
                return
            message = text.read(int.from_bytes(size, "big"))
            if os.fork() == 0:
                orders.close()
                _wait_for(json.loads(message), *fds)
            for one in fds:
                os.close(one)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _wait_for(order, out, err, status):
    if (child := os.fork()) == 0:
        os.close(status)
        _live(order, out, err)
    os.close(out)
    os.close(err)
    os.write(status, b"%d\n" % child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, b"%d\n" % code)
    os._exit(0)


def _live(order, out, err):
    function, words, environment = order
    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored where tests run
        sys.argv = [function, *words]
        module, _, name = function.partition(":")
        code = getattr(importlib.import_module(module), name)() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does: a traceback, and status 1
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
