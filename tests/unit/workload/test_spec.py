"""Specifications: what they mean, and that a mistake names line, field, value and what is allowed."""

import itertools
import json

import pytest

from headway.errors import BadSetting
from headway.workload import load_workload, parse_workload
from headway.workload.loading import parse_text

BASE = 'num_requests = 3\narrivals = "poisson:rate=1"\nlengths = {prompt = 10, output = 2}\n'


def load(tmp_path, text, suffix=".toml", flags=None, **options):
    path = tmp_path / f"w{suffix}"
    path.write_text(text)
    return load_workload(path, flags, **options)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", BASE),
        (".yaml", "num_requests: 3\narrivals: {process: poisson, rate: 1}\nlengths: {prompt: 10, output: 2}\n"),
        (
            ".json",
            json.dumps({"num_requests": 3, "arrivals": "poisson:rate=1", "lengths": {"prompt": 10, "output": 2}}),
        ),
    ],
)
def test_the_three_formats_mean_the_same(tmp_path, suffix, text):
    """TOML, YAML and JSON give equal requests, and so do flags."""
    items = list(load(tmp_path, text, suffix).items())
    flags = load_workload(None, {"num_requests": "3", "rate": "1", "prompt_len": "10", "output_len": "2"})
    assert items == list(flags.items())
    assert [(item.id, item.num_prompt, item.num_output) for item in items] == [
        ("r0", 10, 2),
        ("r1", 10, 2),
        ("r2", 10, 2),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'num_requests = 3\n[arrivals]\nprocess = "poisson"\nrate = -4\n',
            r"w.toml, line 4: arrivals.rate is -4; it must be a number from",
        ),
        (
            '[arrivals]\nprocess = "gamma"\nrate = 4\n',
            r"line 1: arrivals.cv is missing; it must be a number from 0.01 to 100$",
        ),
        (
            'num_requests = 3\n[arrivals]\nprocess = "poisson"\nrat = 4\n[lengths]\nprompt = 9\noutput = 9\n',
            r"arrivals.rate is missing; it must be a number from .*; is rat misspelt\?$",
        ),
        (
            'num_requests = 3\n[arrivals]\nprocess = "poisson"\nrate = 4\n[lengths]\npromt = 9\noutput = 9\n',
            r"lengths.prompt is missing; .*; is promt misspelt\?$",
        ),
        (
            '[arrivals]\nprocess = "poison"\nrate = 4\n',
            r"line 2: arrivals.process is 'poison'; it must be one of poisson, constant",
        ),
        (BASE + "numrequests = 3\n", r"line 4: numrequests is no field of a workload; did you mean num_requests\?"),
        (BASE + "rate = 3\n", r"line 4: rate is no field of a workload; known here: .*arrivals"),
        (
            BASE + "[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'b'\n[tenants.slo]\nttft_s = 'x'\n",
            r"line 9: tenants\[1\].slo.ttft_s is 'x'",
        ),
        (
            BASE + "[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'a'\n",
            r"line 7: tenants\[1\].name is 'a', which another",
        ),
        (BASE + "[[tenants]]\nshare = 1\n", r"tenants\[0\].name is missing"),
        (BASE + "[[tenants]]\nname = 'a'\nkey_env = 'HEADWAY_NO_SUCH'\n", "HEADWAY_NO_SUCH, which is not set"),
        (BASE + "[[tenants]]\nname = 'a'\nkey = 'schlüssel'\n", "key.* gives a key that no HTTP header carries"),
        (BASE + "[behaviour]\ncancel_share = 0.5\n", r"line 5: behaviour.cancel_share says how many give up; say when"),
        (BASE + "[behaviour]\ncancel_share = 2\n", r"behaviour.cancel_share is 2; it must be a number from 0 to 1"),
        (BASE + "[slo]\nttft_s = 1\nttft_ms = 1000\n", "give one of them"),
        (
            BASE.replace("prompt = 10", 'prompt = "uniform:low=5,high=2"'),
            r"line 3: lengths.prompt.low is 5; it must be at most high",
        ),
        (BASE.replace("prompt = 10", "prompt = 1.5"), r"lengths.prompt is 1.5; it must be a whole number"),
        (
            BASE.replace("prompt = 10", "prompt = true"),
            r"lengths.prompt is True; it must be a number of tokens, or a law",
        ),
        (BASE.replace("num_requests = 3\n", ""), "num_requests is missing, and so is duration_s"),
        ("num_requests = 3\nlengths = {prompt = 1, output = 1}\n", "arrivals are missing; say when requests come"),
        ('num_requests = 3\narrivals = "poisson:rate=1"\n', "lengths are missing; such as"),
        (
            'arrivals = "closed:users=3"\nlengths = {prompt = 1, output = 1}\n',
            "in a closed loop need an end: give num_requests",
        ),
        (BASE + "[prompts]\nfit = 'whole'\n", "is about a file of prompts; name it with file"),
        ("x = \n", r"w.toml is not TOML: .*line 1"),
        ('arrivals = "ramp:start_rate=0,end_rate=0,ramp_s=5"', "one of them must be above 0"),
        (
            BASE
            + '[[classes]]\nname="c"\narrivals="poisson:rate=1"\n[[tenants]]\nname="t"\narrivals="poisson:rate=2"\n',
            "tenant 't' has its own as well",
        ),
    ],
)
def test_mistakes_in_toml(tmp_path, text, message):
    """One line: where it stands, what is wrong, what is allowed."""
    with pytest.raises(BadSetting, match=message) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (
            ".yaml",
            "num_requests: 2\narrivals: 'poisson:rate=3'\nlengths:\n  prompt: 0\n  output: 3\n",
            "w.yaml, line 4: lengths.prompt is 0",
        ),
        (".yaml", "num_requests: 2\nduration_s: 1:30\n", "w.yaml, line 2: duration_s is '1:30'; it must be a number"),
        (".yaml", "a: [\n", "w.yaml, line 2 is not YAML"),
        (".yaml", "- 1\n", "must be a table of fields, not list"),
        (".yaml", "num_requests: 2\nlines: &a [*a]\n", "w.yaml, line 2: lines is no field of a workload"),
        (".yaml", "lengths: &a\n  prompt: *a\n", "w.yaml, line 2: lengths.prompt.law is missing"),
        (
            ".json",
            (
                '{\n "num_requests": 2,\n "arrivals": "poisson:rate=2",\n'
                ' "lengths": {\n  "prompt": 5,\n  "output": "normal:mean=2"}}'
            ),
            "w.json, line 6: lengths.output.std is missing",
        ),
        (".json", '{\n "num_requests": 2,,}', "w.json, line 2 is not JSON"),
        (".json", '{"lengths": {"prompt": 2, "prompt": 3}}', "w.json: the key 'prompt' is there twice in one table"),
        (
            ".yaml",
            "seed: 2\nslo:\n  ttft_ms: 3\n  ttft_ms: 4\n",
            "w.yaml, line 4 is not YAML: the key 'ttft_ms' is there",
        ),
        (".toml", "seed = 2\nseed = 3\n", "w.toml is not TOML: Cannot overwrite a value"),
        (".txt", "x", "its name ends in .txt; it must be one of .toml, .yaml"),
    ],
)
def test_mistakes_in_yaml_and_json(tmp_path, suffix, text, message):
    """The same for the other formats."""
    with pytest.raises(BadSetting, match=message):
        load(tmp_path, text, suffix)


def test_what_yaml_merges_in_may_be_said_again():
    """A key beside `<<` wins over the merged one; that is no key given twice."""
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, x: 4}\n"
    assert parse_text(text, "yaml", "w")["c"] == {"x": 4, "y": 2}


@pytest.mark.parametrize(
    ("columns", "rest", "drawn"),
    [
        ("input_tokens,output_tokens", "5,2", "lengths"),
        ("conversation,turn,new_input_tokens,output_tokens", "a,0,5,2", "sessions"),
    ],
)
def test_a_trace_without_times_needs_arrivals_and_says_how(tmp_path, columns, rest, drawn):
    """What the message offers is taken: a rate."""
    text = f"{columns}\n{rest}\n"
    with pytest.raises(
        BadSetting,
        match=rf"no times to replay; give arrivals, such as --rate 4 --num-requests 100, or .* {drawn}\.trace",
    ):
        load(tmp_path, text, ".csv")
    [item] = load(tmp_path, text, ".csv", {"rate": "4", "num_requests": "1"}).items()
    assert (item.num_prompt, item.num_output) == (5, 2)


def test_flags_win_and_are_named_in_mistakes(tmp_path):
    """A flag replaces the file's field, and a mistake in it is the flag's."""
    assert len(list(load(tmp_path, BASE, flags={"num_requests": 7}).items())) == 7
    with pytest.raises(BadSetting, match="--rate is -1; it must be a number from"):
        load(tmp_path, BASE, flags={"rate": "-1"})
    with pytest.raises(BadSetting, match="--goodput 'ttf:5' must be written like ttft:500"):
        load(tmp_path, BASE, flags={"goodput": "ttf:5"})


def test_flags_imply_processes():
    """A CV makes it gamma, users a closed loop, an infinite rate everything at once, burstiness is 1/cv²."""
    lengths = {"prompt_len": "lognormal:mean=50,cv=1", "output_len": 2, "num_requests": 4}
    by_cv = list(load_workload(None, lengths | {"rate": 2, "cv": "2"}).items())
    assert by_cv == list(load_workload(None, lengths | {"arrivals": "gamma:rate=2,cv=2"}).items())
    assert by_cv == list(load_workload(None, lengths | {"rate": 2, "burstiness": 0.25}).items())
    assert [item.at_s for item in load_workload(None, lengths | {"rate": "inf"}).items()] == [0, 0, 0, 0]
    closed = load_workload(None, lengths | {"users": 2, "think_s": "exponential:mean=1"})
    assert closed.is_closed_loop
    assert [(item.session, item.turn, item.at_s is None) for item in closed.items()] == [
        ("top-0", 0, False),
        ("top-0", 1, True),
        ("top-1", 0, False),
        ("top-1", 1, True),
    ]


def test_flags_for_tenants_and_limits():
    """Tenants and SLOs can be given without a file."""
    flags = {"rate": 1, "num_requests": 50, "prompt_len": 5, "output_len": 5}
    flags |= {"tenant": ["name=a,share=3,weight=2", "name=b,lengths.output=uniform:low=1;high=3,lengths.prompt=9"]}
    flags |= {"goodput": ["ttft:500", "e2el:2000"]}
    workload = load_workload(None, flags)
    items = list(workload.items())
    assert workload.weights == {"a": 2.0, "b": 1.0}
    assert {item.slo.ttft_s for item in items} == {0.5}
    assert {item.slo.e2e_s for item in items} == {2.0}
    assert {item.num_prompt for item in items if item.tenant == "b"} == {9}
    assert 0.55 < sum(item.tenant == "a" for item in items) / 50 < 0.95


def test_keys_are_kept_and_never_shown(tmp_path, monkeypatch):
    """A tenant's key reaches the sender and no result file."""
    monkeypatch.setenv("HEADWAY_TEST_KEY", "from-environment")
    text = BASE + "[[tenants]]\nname = 'a'\nkey = 'secret'\n[[tenants]]\nname = 'b'\nkey_env = 'HEADWAY_TEST_KEY'\n"
    workload = load(tmp_path, text)
    assert workload.keys == {"a": "secret", "b": "from-environment"}
    assert "secret" not in json.dumps(workload.content)
    assert "secret" not in repr(workload)


def test_levels_inherit(tmp_path):
    """A class wins over the top, a tenant over its class; what neither says is the top's."""
    text = BASE + (
        "num_requests = 400\n".replace("num_requests", "seed")
        + "priority = 5\n[slo]\nttft_s = 1\n"
        + "[[classes]]\nname = 'chat'\npriority = 1\n[[classes]]\nname = 'batch'\nshare = 2\n"
        + "[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'b'\npriority = 9\n[tenants.slo]\ntpot_ms = 50\n"
    )
    workload = load(tmp_path, text.replace("num_requests = 3", "num_requests = 600"))
    seen = {
        (item.tenant, item.traffic_class): (item.priority, item.slo.ttft_s, item.slo.tpot_s)
        for item in workload.items()
    }
    assert seen == {
        ("a", "chat"): (1, 1.0, None),
        ("a", "batch"): (5, 1.0, None),
        ("b", "chat"): (9, None, 0.05),
        ("b", "batch"): (9, None, 0.05),
    }


def test_a_trace_file_is_a_workload(shared_data):
    """A .csv or .jsonl file is replayed as it is."""
    workload = load_workload(shared_data / "traces" / "lmsys_arena_27clients_vtc.csv")
    items = list(workload.items())
    assert (len(items), items[4].tenant, items[4].at_s) == (1500, "2", 1.1578)


def test_replay_scales(tmp_path):
    """Times and lengths of a replay can be stretched; shared blocks stretch with the prompts."""
    (tmp_path / "t.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1024, "output_length": 10, "hash_ids": [1, 2]}\n'
        '{"timestamp": 4000, "input_length": 600, "output_length": 20, "hash_ids": [1, 3]}\n'
    )
    text = '[trace]\nfile = "t.jsonl"\ntime_scale = 0.5\nprompt_scale = 0.5\noutput_scale = 2\n'
    items = list(load(tmp_path, text).items())
    assert [(item.at_s, item.num_prompt, item.num_output, item.prefix_block) for item in items] == [
        (0, 512, 20, 256),
        (2, 300, 40, 256),
    ]
    timed = list(
        load(
            tmp_path, 'num_requests = 3\narrivals = "constant:rate=2"\n' + text.replace("time_scale = 0.5\n", "")
        ).items()
    )
    assert [(item.at_s, item.num_output) for item in timed] == [(0.5, 20), (1.0, 40), (1.5, 20)]


def test_whole_texts_need_a_tokenizer(tmp_path):
    """Prompts sent as they are have the lengths the tokenizer says; without one, the message says so."""
    (tmp_path / "p.jsonl").write_text('{"prompt": "a b c"}\n{"prompt": "d e"}\n')
    prompts = 'prompts = {file = "p.jsonl", fit = "whole"}'
    text = f'num_requests = 3\narrivals = "poisson:rate=1"\nlengths = {{output = 4}}\n{prompts}\n'
    items = list(load(tmp_path, text, count_tokens=lambda words: len(words.split())).items())
    assert [(item.num_prompt, item.text_row) for item in items] == [(3, 0), (2, 1), (3, 0)]
    with pytest.raises(BadSetting, match="need the target's tokenizer"):
        load(tmp_path, text)
    with pytest.raises(BadSetting, match=r"row 1: there is no text under 'question' or 'conversations'; it has prompt"):
        load(
            tmp_path,
            text.replace('fit = "whole"', 'field = "question"').replace("output = 4", "prompt = 3, output = 4"),
        )


def turns(*said):
    return {"id": "x", "conversations": [{"from": who, "value": value} for who, value in said]}


def test_a_list_of_conversations_is_a_workload(tmp_path):
    """ShareGPT's form: first questions in turn, as long as they are, with outputs as long as their answers."""
    path = tmp_path / "share.json"
    entries = [
        turns(("human", "a b c"), ("gpt", "d e"), ("human", "f"), ("gpt", "g")),
        turns(("gpt", "goes on")),
        turns(("human", "no answer")),
        turns(("human", "a picture"), ("gpt", " ")),
        turns(("system", "be short"), ("human", "h"), ("gpt", "i j k l")),
        turns(),
    ]
    path.write_text(f" \n{json.dumps(entries)}")
    flags = {"rate": "1", "num_requests": "3"}
    workload = load_workload(path, flags, count_tokens=lambda text: len(text.split()))
    rows = [(item.text_row, item.num_prompt, item.num_output) for item in workload.items()]
    assert rows == [(0, 3, 2), (1, 1, 4), (0, 3, 2)]
    assert workload.texts.read() == ["a b c", "h"]
    assert workload.left_out() == [f"{path}: conversations without a question and its answer are left out: 4"]
    shorter = load_workload(path, {**flags, "output_len": "7"}, count_tokens=lambda text: len(text.split()))
    assert [item.num_output for item in shorter.items()] == [7, 7, 7]
    exact = {**flags, "prompts_file": str(path), "prompt_len": "9", "output_len": "7"}
    assert [(item.num_prompt, item.num_output) for item in load_workload(None, exact).items()] == [(9, 7)] * 3
    with pytest.raises(BadSetting, match="need the target's tokenizer"):
        load_workload(path, flags)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"num_prompt": 3}, "entry 2: there is no text under 'prompt' or 'conversations'; it has num_prompt"),
        ([1], "entry 2: there is no text under 'prompt' or 'conversations'; it has list"),
        ({"conversations": "hi"}, "entry 2: conversations is str; it must be a list of turns"),
        (turns(("human", "x"), ("gpt", 5)), 'entry 2, turn 2: it must be an object with two texts, "from" and "value"'),
        ({"conversations": ["x"]}, "entry 2, turn 1: it must be an object"),
    ],
)
def test_an_entry_that_is_no_conversation_is_named(tmp_path, entry, message):
    """The file, its number, and what is wrong."""
    path = tmp_path / "share.json"
    path.write_text(json.dumps([turns(("human", "a"), ("gpt", "b")), entry]))
    with pytest.raises(BadSetting, match=f"prompts {path}, {message}"):
        load_workload(path, {"rate": "1", "num_requests": "3"}, count_tokens=len)


def test_content_of_any_shape_ends_in_our_error():
    """Nonsense values in known fields never end in a traceback."""
    fields = ["arrivals", "lengths", "prompts", "sessions", "behaviour", "slo", "tenants", "classes", "trace", "seed"]
    for field, value in itertools.product(
        fields, [[], [1], {}, "x", "x:y", 3, -1.5, True, {"a": 1}, [{}], float("inf")]
    ):
        content = {"num_requests": 1, "arrivals": "poisson:rate=1", "lengths": {"prompt": 1, "output": 1}, field: value}
        try:
            list(parse_workload(content).items())
        except BadSetting:
            continue


@pytest.mark.parametrize(
    "given", [{"trace": "FILE"}, {"lengths_trace": "FILE", "rate": "1"}, {"sessions_trace": "FILE", "rate": "1"}]
)
def test_rows_that_are_no_requests_are_told(tmp_path, given):
    """However a trace is used: replayed, for its lengths, or for its conversations."""
    path = tmp_path / "t.csv"
    path.write_text("conversation,turn,at_s,input_tokens,output_tokens\na,0,0,5,1\na,1,1,9,0\nb,0,2,5,2\n")
    flags = {name: str(path) if value == "FILE" else value for name, value in given.items()}
    workload = load_workload(None, {**flags, "num_requests": "1"})
    assert workload.left_out() == [f"{path}: rows without a prompt or an output are left out: 1"]
