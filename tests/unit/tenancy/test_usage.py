import sqlite3
import subprocess
import sys
from datetime import date

import pytest

from headway.core import Admitted, Arrived, Finished, FinishReason, Rejected, Request, TokenEmitted
from headway.errors import BadSetting
from headway.tenancy import Usage, UsageBook, UsageKey, UsageWriter, open_store

DAY = date(2026, 1, 2)


def events_of(name, tenant, num_output, end=FinishReason.STOP):
    request = Request(id=name, prompt_ids=(1, 2, 3), max_output=9, tenant=tenant)
    yield Arrived(request, 0.0)
    yield Admitted(name, name, 2, is_first=True, at_s=1.0)
    for index in range(num_output):
        yield TokenEmitted(name, name, 0, index, 7, 2.0)
    if end is not None:
        yield Finished(request, end, num_output, 2, 3.0)


def book_of(*streams):
    book = UsageBook("m", lambda: DAY)
    for events in streams:
        book.on_events(list(events))
    return book


def test_tokens_count_when_they_come_and_requests_when_they_end():
    """A running request's tokens are there; one that was refused after queueing counts as refused."""
    late = Request(id="late", prompt_ids=(1,), max_output=1, tenant="b")
    book = book_of(
        events_of("x", "a", 4), events_of("y", "a", 2, end=None), [Arrived(late, 0.0), Rejected(late, "", 1.0)]
    )
    book.refused("b")
    assert book.totals() == {
        "a": Usage(requests=1, prompt_tokens=6, cached_tokens=4, output_tokens=6),
        "b": Usage(refused=2),
    }
    assert book.take().keys() == {UsageKey(DAY, "a", "m"), UsageKey(DAY, "b", "m")}
    assert book.take() == {}


URLS = {"sqlite": "sqlite:///{}", "SQLAlchemy": "sqlite+pysqlite:///{}"}


@pytest.fixture(params=URLS)
def url(request, tmp_path):
    if request.param == "SQLAlchemy":
        pytest.importorskip("sqlalchemy")
    return URLS[request.param].format(tmp_path / "usage.sqlite")


def test_rows_are_added_to(url):
    """Each write adds to its day, tenant and model; another opening finds them; `since` is a first day."""
    store, key = open_store(url), UsageKey(DAY, "a", "m")
    store.add({key: Usage(requests=1, output_tokens=5)})
    open_store(url).add({key: Usage(requests=2), UsageKey(date(2026, 1, 3), "a", "m"): Usage(requests=7)})
    assert store.read(DAY)[0] == (key, Usage(requests=3, output_tokens=5))
    assert [usage.requests for _, usage in store.read(date(2026, 1, 3))] == [7]


def test_what_a_store_does_not_take_is_kept_and_tried_again(tmp_path, caplog):
    """A locked or full disk loses nothing: the book has it until a write succeeds. The log says so once."""
    path = tmp_path / "usage.sqlite"
    store = open_store(f"sqlite:///{path}")
    book = book_of(events_of("x", "a", 4))
    writer = UsageWriter(book, store)
    path.unlink()
    path.mkdir()
    assert not writer.write()
    book.on_events(list(events_of("y", "a", 1)))
    assert not writer.write()
    assert len(caplog.records) == 1
    path.rmdir()
    for left in tmp_path.iterdir():
        left.unlink()
    writer = UsageWriter(book, open_store(f"sqlite:///{path}"))
    assert writer.write()
    assert store.read(DAY) == [(UsageKey(DAY, "a", "m"), Usage(2, 0, 6, 4, 5))]


def test_the_last_of_it_is_written_at_the_end(tmp_path):
    """Closing writes what the period has not reached; closing again does nothing."""
    store = open_store(f"sqlite:///{tmp_path / 'usage.sqlite'}")
    writer = UsageWriter(book_of(events_of("x", "a", 4)), store, period_s=3600)
    writer.start()
    writer.close()
    writer.close()
    assert store.read(DAY)[0][1].output_tokens == 4


KILLED = """
import os, sys
from datetime import date
from headway.tenancy import Usage, UsageKey, open_store
store = open_store(sys.argv[1])
for _ in range(20):
    store.add({UsageKey(date(2026, 1, 2), f"t{n}", "m"): Usage(requests=1, output_tokens=2) for n in range(5)})
connection = __import__("sqlite3").connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE headway_usage SET requests = 999")
os.kill(os.getpid(), 9)
"""


def test_a_kill_in_the_middle_of_a_write_leaves_whole_writes(tmp_path):
    """SIGKILL inside a transaction: the file opens again, with every finished write and nothing of the other."""
    url = f"sqlite:///{tmp_path / 'usage.sqlite'}"
    done = subprocess.run([sys.executable, "-c", KILLED, url], check=False, timeout=60)
    assert done.returncode == -9
    store = open_store(url)
    assert {usage.requests for _, usage in store.read(DAY)} == {20}
    store.add({UsageKey(DAY, "t0", "m"): Usage(requests=1)})


def test_a_store_that_cannot_be_used_is_a_bad_setting_without_its_password(tmp_path):
    """Known at the start; a URL's password is in no message."""
    with pytest.raises(BadSetting, match="cannot use"):
        open_store(f"sqlite:///{tmp_path}/no/such/folder/x.sqlite")
    (tmp_path / "text").write_text("not a database, and long enough to be looked at as one" * 100)
    with pytest.raises(BadSetting):
        open_store(f"sqlite:///{tmp_path / 'text'}")
    pytest.importorskip("sqlalchemy")
    with pytest.raises(BadSetting) as caught:
        open_store("nosuchdatabase://user:secret@host/name")
    assert "secret" not in str(caught.value)


def test_the_file_is_plain_sqlite(tmp_path):
    """Anything that reads SQLite reads usage."""
    path = tmp_path / "usage.sqlite"
    open_store(f"sqlite:///{path}").add({UsageKey(DAY, "a", "m"): Usage(requests=1)})
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT day, tenant, requests FROM headway_usage").fetchall() == [
            ("2026-01-02", "a", 1)
        ]
    connection.close()
