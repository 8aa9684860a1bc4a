import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headway.bench import Progress
from headway.bench.capacity import Capacity, Search, Trial
from headway.bench.contest import Standings
from headway.bench.score import Score
from headway.cli.bench_capacity import capacity_grid
from headway.cli.bench_options import default_executor
from headway.cli.bench_output import write, write_then
from headway.cli.bench_policies import _names, _numbers
from headway.cli.bench_screen import Screen, table
from headway.cli.bench_standings import grid, verdict
from headway.cli.main import main
from headway.errors import BadSetting
from headway.executor.registry import EXECUTORS
from headway.report import Outcome, save_run
from tests.support.tiny_model import write_tiny_gguf
from tests.unit.report.runs import refused, request, run_of, steady_run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return str(path)


def small(model):
    """An engine that is there at once."""
    return "--model", model, "--executor", "reference", "--num-blocks", "64"


def fails(capsys, *args):
    status = main(["bench", *args])
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    return status, err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["serve", "--url", "localhost:8000"], "http://127.0.0.1:8000"),
        (["serve", "--endpoint", "embeddings"], "completions, chat"),
        (["serve", "--rate", "-1"], "--rate"),
        (["serve", "--prompt-len", "lognormal:mean=5"], "cv"),
        (["serve", "--header", "x"], "NAME:VALUE"),
        (["serve", "--header", "x:é"], "--header has characters"),
        (["serve", "--api-key", "schlüssel"], "--api-key has characters"),
        (["serve", "--api-key", "old new"], "holds several keys; give the one to be shown"),
        (["serve", "--extra-body", "[1]"], "JSON object"),
        (["serve", "--extra-body", "{"], "not JSON"),
        (["serve", "--extra-body", '{"a": {"n": 1, "n": 2}}'], "--extra-body: the key 'n' is there twice"),
        (["serve", "--send-ids"], "--tokenizer"),
        (["serve", "--csv", "/no/such/folder/x.csv"], "folder"),
        (["serve", "no-such-file.toml"], "no-such-file.toml"),
        (["serve", "--bogus"], "--bogus"),
        (["bogus"], "bogus"),
        (["offline", "--rate", "x"], "--rate"),
        (["capacity"], "SLO"),
        (["capacity", "--goodput", "ttft:500", "--attainment", "2"], "attainment"),
        (["capacity", "--users", "3", "--goodput", "ttft:500"], "closed loop"),
        (["compare", "a.json"], "two results"),
        (["compare", "a.json", "b.json"], "a.json"),
        (["policies", "--policies", "vllm,bogus"], "bogus"),
        (["policies", "--set", "headway.foo=1"], "has no parameter 'foo'"),
        (["policies", "--set", "vllm.max_long_partial_prefills=1"], "no prompt counts as long"),
        (["policies", "--set", "vtc.base=ltr"], "orders its queue itself"),
        (["policies", "--set", "deadline.chunk_size=4096"], "is 2048; it must be at least 4096"),
        (["policies", "--max-model-len", "3"], "may have 3 tokens"),
        (["policies", "--base-rate", "0"], "--base-rate"),
        (["policies", "--log", "/no/such/folder/runs.jsonl"], "--log"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, args, words):
    """Every mistake is refused before anything is measured, with the flag or value at fault."""
    status, err = fails(capsys, *args)
    assert status == 2
    assert words in err


def test_a_capacity_that_no_failure_bounds_is_told_as_such():
    """Few requests come all at once at a high rate, and pass: that is no limit that was found."""
    passed, failed = Trial(rate=4.0, attainments=(1.0,), passed=True), Trial(rate=8.0, attainments=(0.1,), passed=False)
    assert "at least 4 requests/s (none failed)" in (
        open_ended := capacity_grid(Capacity([passed]), Search()).to_text()
    )
    assert "--num-requests" in open_ended
    bounded = capacity_grid(Capacity([passed, failed]), Search()).to_text()
    assert ": 4 requests/s (8 failed)" in bounded
    assert "--num-requests" not in bounded + capacity_grid(Capacity([]), Search()).to_text()


def test_flags_of_the_comparison_are_checked_before_the_model_is_opened(capsys):
    """Rates, lengths and parameters: a model that is not there is the last thing to be said."""
    for args, words in (
        (["--rates", "1.2,x"], "--rates"),
        (["--set", "chunk=3"], "POLICY.KEY=VALUE"),
        # what goes with the engine's limits, if not with a policy's own ones, comes as far as the next mistake
        (["--set", "sarathi_serve.chunk_high=1024", "--set", "sarathi_serve.chunk_low=256", "--rates", "x"], "--rates"),
        (["--max-num-batched-tokens", "8192", "--set", "deadline.chunk_size=4096", "--rates", "x"], "--rates"),
        (["--prompt-p90", "5"], "P90"),
        (["--max-num-seqs", "8"], "no-such-model.gguf"),
    ):
        status, err = fails(capsys, "policies", "--model", "no-such-model.gguf", *args)
        assert (status, words in err) == (2, True)


def test_a_rate_given_twice_is_run_once():
    """As with a policy named twice."""
    assert _numbers("--rates", "1.2,0.8,1.2") == [1.2, 0.8]
    assert _names("vllm,headway,vllm") == ["vllm", "headway"]


def test_offline_needs_words_it_can_make_prompts_of(capsys, model):
    """The tiny tokenizer has none: one line with the way out."""
    status, err = fails(capsys, "offline", *small(model), "--num-requests", "3")
    assert (status, "prompts.file" in err) == (2, True)


def test_offline_takes_prompts_from_a_file(capsys, model, tmp_path):
    """A text a line, sent as it is; answers as long as asked; JSON with vLLM's keys on stdout and nothing else."""
    texts = tmp_path / "prompts.txt"
    texts.write_text("the end\nonce upon a time\n")
    load = ["--num-requests", "4", "--prompts-file", str(texts), "--prompts-fit", "whole", "--output-len", "3"]
    assert main(["bench", "offline", *small(model), *load, "--num-warmups", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["completed"], document["failed"]) == (4, 0)
    assert document["headway"]["whole_run"]["total_output_tokens"] == 12
    assert document["headway"]["server"]["generation_tokens"] == 12


def test_the_default_executor_is_one_that_is_registered():
    """Native where it is built."""
    assert default_executor() in EXECUTORS


@pytest.mark.parametrize("command", ["serve", "offline", "capacity", "policies", "compare"])
def test_help_of_every_sub_command(capsys, command):
    """`--help` reaches the sub-command."""
    assert main(["bench", command, "--help"]) == 0
    assert f"headway bench {command}" in capsys.readouterr().out


def test_help_tells_what_stands_where_nothing_is_given(capsys, monkeypatch):
    """Also the answers of prompts that are sent whole: they have the length of all others."""
    monkeypatch.setenv("COLUMNS", "180")
    assert main(["bench", "serve", "--help"]) == 0
    told = capsys.readouterr().out
    for value in ("inf", "100", "256", "64"):
        assert f"({value} without WORKLOAD)" in told
    assert "whole: as they are, answers by --output-len" in told


def test_a_run_at_a_glance():
    """Progress, outcomes, rate and latencies; no bar where nobody knows the end."""
    progress = Progress(
        elapsed_s=2.0,
        num_total=10,
        num_sent=6,
        num_in_flight=2,
        ended={Outcome.OK: 3, Outcome.REFUSED: 1, Outcome.FAILED: 0, Outcome.CANCELLED: 0},
        num_output=60,
        ttft_s=0.25,
    )
    for total, words in ((10, "4 of 10 in 2 s"), (None, "4 in 2 s")):
        console = Console(file=io.StringIO(), width=120)
        console.print(table("7/9  vllm", replace(progress, num_total=total)))
        drawn = console.file.getvalue()
        for part in ("7/9  vllm", words, "in flight 2", "ok 3", "refused 1", "30 tokens/s", "TTFT 250 ms", "TPOT -"):
            assert part in drawn


def test_where_no_terminal_is_a_line_now_and_then_says_that_it_goes_on(capsys):
    """Every half minute of each run, and not for each look."""
    some = Progress(elapsed_s=0.0, num_total=10, num_sent=6, num_in_flight=2, ended={Outcome.OK: 4}, num_output=60)
    with Screen() as screen:
        for heading, last_s in (("vllm", 61), ("orca", 40)):
            for elapsed_s in range(last_s):
                screen.show(heading, replace(some, elapsed_s=float(elapsed_s)))
    assert capsys.readouterr().err.splitlines() == [
        "vllm: 4 of 10 in 30 s, 2 in flight, 2 tokens/s",
        "vllm: 4 of 10 in 60 s, 2 in flight, 1 tokens/s",
        "orca: 4 of 10 in 30 s, 2 in flight, 2 tokens/s",
    ]


def test_a_comparison_with_a_run_that_is_no_measure_says_so_first(capsys, tmp_path):
    """A run of refusals: which one, and why, in the text and in the JSON."""
    bad = run_of([*(request(k) for k in range(20)), *(refused(k) for k in range(20))])
    files = [str(tmp_path / name) for name in ("good.json", "bad.json")]
    for file, run in zip(files, (replace(steady_run(), label="good"), replace(bad, label="bad")), strict=True):
        save_run(run, Path(file))
    assert main(["bench", "compare", *files]) == 0
    text = capsys.readouterr().out
    warning = "bad: 50% of the requests were refused (20) or failed (0)"
    assert f"! {warning}" in text.partition("Comparison")[0]
    assert main(["bench", "compare", *files, "--json"]) == 0
    assert any(said.startswith(warning) for said in json.loads(capsys.readouterr().out)["warnings"])


def test_standings_are_a_table_with_claims():
    """The rate, what the figures are medians of, and what came of the claims."""
    scores = dict.fromkeys(Score.__dataclass_fields__, 1)
    late = Score(**scores | {"lag_p99_ms": 7.04})
    standings = Standings(base_rate=2.0, scores={(1.2, "vllm"): [Score(**scores)], (1.2, "headway"): [late]})
    text = grid(standings, 1.2).to_text()
    assert "2.4 requests/s" in text
    assert all(name in text for name in ("vllm", "headway", "median of 1", "wasted"))
    assert "woke up to 7 ms late (P99, at worst: headway)" in " ".join(text.split())
    assert all(claim["holds"] for claim in verdict(standings, 1.2))


def test_only_rounds_that_all_have_finished_are_compared():
    """An interruption left one policy a round ahead, whose requests were others: that run is counted, not compared."""
    one = Score(**dict.fromkeys(Score.__dataclass_fields__, 1))
    ahead = [one, replace(one, output_throughput=99)]
    standings = Standings(base_rate=2.0, scores={(1.2, "vllm"): ahead, (1.2, "headway"): [one], (1.2, "orca"): []})
    assert standings.middles(1.2) == {"vllm": one, "headway": one}
    text = " ".join(grid(standings, 1.2).to_text().split())
    assert "median of 1" in text
    assert "as not all policies have finished their rounds: 1 runs." in text
    whole = Standings(base_rate=2.0, scores={(1.2, "vllm"): ahead, (1.2, "headway"): [one, one]})
    assert whole.middles(1.2)["vllm"].output_throughput == 50
    assert "not all policies" not in grid(whole, 1.2).to_text()


def test_files_are_written_before_the_reader_of_stdout_can_leave(tmp_path):
    """`headway bench ... -o run.json | head` keeps the file; a file that fails costs neither others nor words."""

    def leave():
        assert kept.read_text() == "measured"
        raise BrokenPipeError

    def save(path):
        write(path, "measured")

    kept, nowhere, said = tmp_path / "run.json", tmp_path / "none" / "run.csv", []
    with pytest.raises(BrokenPipeError):
        write_then({kept: save, None: save}, leave)
    kept.unlink()
    with pytest.raises(BadSetting, match=r"cannot write .*run\.csv"):
        write_then({nowhere: save, kept: save}, lambda: said.append("figures"))
    assert (kept.read_text(), said) == ("measured", ["figures"])
