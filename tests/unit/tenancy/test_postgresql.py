"""Usage in PostgreSQL. Wants a database: HEADWAY_TEST_POSTGRESQL=postgresql+psycopg://USER:PASSWORD@HOST/NAME.

The table `headway_usage` in it is dropped.
"""

import json
import os
import threading
from datetime import date

import pytest

from headway.cli.main import main
from headway.errors import BadSetting
from headway.tenancy import Usage, UsageBook, UsageKey, UsageWriter, open_store

DAY = date(2026, 1, 2)
KEY = UsageKey(DAY, "a", "m")


@pytest.fixture
def url():
    url = os.environ.get("HEADWAY_TEST_POSTGRESQL")
    if not url:
        pytest.skip("HEADWAY_TEST_POSTGRESQL names no database")
    execute(url, "DROP TABLE IF EXISTS headway_usage")
    return url


def execute(url, statement):
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(statement))
    engine.dispose()


def test_rows_are_added_to(url):
    """Counts beyond 32 bits too; another opening finds them."""
    open_store(url).add({KEY: Usage(requests=1, output_tokens=5_000_000_000)})
    open_store(url).add({KEY: Usage(requests=2)})
    assert open_store(url).read(DAY) == [(KEY, Usage(requests=3, output_tokens=5_000_000_000))]


def test_servers_that_share_a_table_lose_nothing(url):
    """Four at once, each adding to the same rows: what a conflict refuses is kept and tried again."""
    stores = [open_store(url) for _ in range(4)]

    def work(store):
        left = 25
        while left:
            try:
                store.add({KEY: Usage(requests=1), UsageKey(DAY, "b", "m"): Usage(output_tokens=2)})
                left -= 1
            except OSError:
                continue

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [usage for _, usage in stores[0].read(DAY)] == [Usage(requests=100), Usage(output_tokens=200)]


def test_a_database_that_fails_for_a_while_loses_nothing(url, caplog):
    """What it did not take is written when it does again; the log says so once."""
    book = UsageBook("m", lambda: DAY)
    writer = UsageWriter(book, open_store(url))
    execute(url, "ALTER TABLE headway_usage RENAME TO headway_elsewhere")
    for _ in range(2):
        book.refused("a")
        assert not writer.write()
    execute(url, "ALTER TABLE headway_elsewhere RENAME TO headway_usage")
    assert writer.write()
    assert open_store(url).read(DAY) == [(KEY, Usage(refused=2))]
    assert len(caplog.records) == 1


def test_the_command_reads_it(url, capsys):
    """`headway usage` with the same URL."""
    open_store(url).add({KEY: Usage(requests=3)})
    assert main(["usage", "--store", url, "--since", "2026-01-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_database_that_is_not_there_is_one_line(capsys):
    """Neither the password nor a traceback."""
    pytest.importorskip("psycopg")
    with pytest.raises((BadSetting, OSError)) as caught:
        open_store("postgresql+psycopg://someone:secret@127.0.0.1:9/nowhere")
    assert "secret" not in str(caught.value)
