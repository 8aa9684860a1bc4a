"""A recording holds every request, no text, and is a workload; a full disk costs lines and nothing else."""

import json
import threading
from pathlib import Path

import pytest

from headway.core import (
    Admitted,
    Arrived,
    Cause,
    Finished,
    FinishReason,
    Refusal,
    Rejected,
    Request,
    SamplingParams,
    TokenEmitted,
)
from headway.errors import BadSetting
from headway.obs.recorder import PREFIX_BLOCK, Recorder
from headway.obs.rotating import LineWriter, RotatingFile
from headway.workload import read_trace


def request(name, prompt, arrival_s=0.0, **more):
    return Request(
        id=name, prompt_ids=tuple(prompt), max_output=9, arrival_s=arrival_s, params=SamplingParams(), **more
    )


def life(one, num_output=2):
    """All events of a request that is answered."""
    at_s = one.arrival_s
    return [
        Arrived(one, at_s),
        Admitted(one.id, one.id, 0, True, at_s + 1),
        *(TokenEmitted(one.id, one.id, 0, index, 7, at_s + 2 + index) for index in range(num_output)),
        Finished(one, FinishReason.LENGTH, num_output, 0, at_s + 2 + num_output),
    ]


def record(path, events, **settings):
    recorder = Recorder(path, **settings)
    recorder.on_events(events)
    recorder.close()
    return recorder


def test_a_recording_is_a_workload(tmp_path):
    """Times, lengths, tenants and priorities come back through the trace reader."""
    path = tmp_path / "r.jsonl"
    one = request("a", range(100), 5.0, tenant="t", priority=3)
    record(path, [*life(one), *life(request("b", range(200, 210), 6.5), 4)])
    rows = read_trace(path).rows
    assert [(row.at_s, row.num_prompt, row.num_output, row.max_output) for row in rows] == [
        (0.0, 100, 2, 9),
        (1.5, 10, 4, 9),
    ]
    assert (rows[0].tenant, rows[0].priority, rows[0].prefix_block, len(rows[0].prefix)) == ("t", 3, PREFIX_BLOCK, 1)


def test_times_are_the_intervals_of_the_metrics(tmp_path):
    """queue = s − a, TTFT = t₁ − a, E2E = tₙ − a."""
    path = tmp_path / "r.jsonl"
    record(path, life(request("a", range(3), 5.0)))
    line = json.loads(path.read_text())
    assert (line["queue_s"], line["ttft_s"], line["e2e_s"], line["outcome"]) == (1.0, 2.0, 3.0, "length")


def test_equal_prefixes_have_equal_ids_and_only_those(tmp_path):
    """An id depends on all tokens before it and on the cache salt."""
    path = tmp_path / "r.jsonl"
    base = list(range(2 * PREFIX_BLOCK))
    other = [*base[:PREFIX_BLOCK], *range(900, 900 + PREFIX_BLOCK)]
    requests = [request("a", base), request("b", base), request("c", other), request("d", base, cache_salt="x")]
    record(path, [event for one in requests for event in life(one)])
    a, b, c, d = (json.loads(line)["prefix"] for line in path.read_text().splitlines())
    assert a == b
    assert c[0] == a[0]
    assert c[1] != a[1]
    assert not set(d) & set(a)


def test_ids_say_nothing_across_recordings(tmp_path):
    """Each recording hashes with a key of its own, so that nobody can look up a text that he guesses."""
    lines = []
    for name in ("1", "2"):
        record(tmp_path / name, life(request("a", range(PREFIX_BLOCK))))
        lines.append(json.loads((tmp_path / name).read_text())["prefix"])
    assert lines[0] != lines[1]


def test_a_refused_request_is_recorded_with_its_cause(tmp_path):
    """It has no output, so that a replay leaves it out and says so."""
    path = tmp_path / "r.jsonl"
    refused = request("b", range(3))
    record(path, [*life(request("a", range(3))), Arrived(refused, 0.0), Rejected(refused, "no", 1.0)])
    assert json.loads(path.read_text().splitlines()[1])["outcome"] == "refused: policy"
    assert read_trace(path).num_skipped == 1


def test_a_request_turned_away_at_the_door_is_recorded(tmp_path):
    """With what it asked for and why it was refused; a replay leaves it out, as it leaves out all without output."""
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path)
    recorder.on_events(life(request("a", range(3))))
    recorder.on_refusal(
        Refusal(at_s=2.0, num_prompt=70, max_output=9, cause=Cause.QUEUE_FULL, tenant="t", priority=1, choices=2)
    )
    recorder.close()
    answered, refused = (json.loads(line) for line in path.read_text().splitlines())
    assert answered.keys() == refused.keys()
    assert (refused["outcome"], refused["num_output"], refused["num_prompt"]) == ("refused: queue_full", 0, 70)
    assert (refused["at_s"], refused["tenant"], refused["priority"], refused["choices"]) == (2.0, "t", 1, 2)
    assert read_trace(path).num_skipped == 1


def test_the_size_is_bounded(tmp_path):
    """The file and the one before it hold at most `max_bytes` each, in whole lines."""
    path = tmp_path / "r.jsonl"
    record(path, [event for n in range(200) for event in life(request(f"r{n}", range(3)))], max_bytes=1000)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["r.jsonl", "r.jsonl.1"]
    for file in files:
        assert file.stat().st_size <= 1000
        assert all(json.loads(line) for line in file.read_text().splitlines())


def test_an_earlier_recording_is_kept(tmp_path):
    """What was in the file becomes the part before."""
    path = tmp_path / "r.jsonl"
    path.write_text("old\n")
    record(path, life(request("a", range(3))))
    assert (tmp_path / "r.jsonl.1").read_text() == "old\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """The server does not start with a recording that cannot be written."""
    with pytest.raises(BadSetting, match=r"cannot record to .*nowhere"):
        Recorder(tmp_path / "nowhere" / "r.jsonl")


@pytest.mark.parametrize("name", ["folder", "/", "/dev/null"])
def test_only_ordinary_files_are_recorded_to(tmp_path, name):
    """A folder or a device keeps its name: the file before a recording is renamed, these never are."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "precious").touch()
    with pytest.raises(BadSetting, match="no ordinary file"):
        RotatingFile(folder if name == "folder" else Path(name), 1000)
    assert (folder / "precious").exists()


class Disk:
    """A raw file that takes `room` bytes and then is full."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, line):
        num = min(len(line), self.room)
        self.room -= num
        if not num:
            raise OSError(28, "No space left on device")
        return self.file.write(line[:num])

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """What was written of a line when the disk was full is cut off; the next one fits again when there is room."""
    path = tmp_path / "r"
    file = RotatingFile(path, 1000)
    disk = file._file = Disk(file._file, 15)
    file.write(b"123456789\n")
    with pytest.raises(OSError, match="full"):
        file.write(b"abcdefghi\n")
    disk.room = 100
    file.write(b"ABCDEFGHI\n")
    file.close()
    assert path.read_bytes() == b"123456789\nABCDEFGHI\n"


def test_a_full_disk_is_survived(tmp_path):
    """Lines are lost and counted; nobody waits, nobody sees an error, and writing goes on when it can."""
    path = tmp_path / "r"
    file = RotatingFile(path, 1000)
    disk = file._file = Disk(file._file, 0)
    writer = LineWriter(file, lambda entry: entry, retry_s=0.0)
    failed = threading.Event()
    write = file.write

    def watched(line):
        try:
            write(line)
        finally:
            failed.set()

    file.write = watched
    writer.put(b"lost\n")
    assert failed.wait(10)
    disk.room = 100
    writer.put(b"kept\n")
    writer.close()
    assert (writer.num_lost, path.read_bytes()) == (1, b"kept\n")


def test_a_slow_disk_costs_lines_and_no_time(tmp_path):
    """Beyond the lines that may wait, lines are lost."""
    gate = threading.Event()

    def slow(entry):
        gate.wait(10)
        return entry

    writer = LineWriter(RotatingFile(tmp_path / "r", 1000), slow, capacity=2)
    for _ in range(10):
        writer.put(b"x\n")
    gate.set()
    writer.close()
    num_kept = len((tmp_path / "r").read_bytes()) // 2
    assert 2 <= num_kept <= 3
    assert writer.num_lost == 10 - num_kept
