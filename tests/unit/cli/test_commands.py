"""policies, tape, collect-env and generate, in this process."""

import json

import pytest
from rich.console import Console

from headway.sched import POLICIES

SCENE = {
    "block_size": 4,
    "num_blocks": 20,
    "requests": [
        {"id": "A", "arrival": 0, "prompt": 6, "output": 3},
        {"id": "B", "arrival": 1, "prompt": 9, "output": 2},
    ],
}
PICTURE = """\
step   0   1   2
A      6   1   1
B      .   9   1
free  18  15  15
"""


@pytest.fixture
def scene(tmp_path):
    path = tmp_path / "scene.json"
    path.write_text(json.dumps(SCENE))
    return path


def test_policies_lists_all(headway):
    """Every registered policy has a row, and an entry with its four axes."""
    status, out, _ = headway("policies")
    assert status == 0
    assert all(name in out for name in POLICIES)
    status, out, err = headway("policies", "--json")
    listed = json.loads(out)["policies"]
    assert (status, err) == (0, "")
    assert [entry["name"] for entry in listed] == sorted(POLICIES)
    assert all(set(entry["axes"]) == {"order", "sharing", "reservation", "shortage"} for entry in listed)


def test_names_of_policies_are_whole_on_a_narrow_terminal(headway, monkeypatch):
    """They are there to be copied; what describes them is cut first."""
    monkeypatch.setattr("headway.cli.policies.results", lambda: Console(width=60))
    out = headway("policies")[1]
    assert max(map(len, out.splitlines())) == 60
    assert all(name in out for name in POLICIES)


@pytest.mark.parametrize(
    ("name", "told"), [("vllm", "default: max_num_batched_tokens, max_num_seqs,"), ("static", None)]
)
def test_policies_tells_which_defaults_come_from_a_flag(headway, name, told):
    """`serve` has a budget of its own, 512, whatever the policy's table says."""
    out = " ".join(headway("policies", name)[1].split())
    assert told in out if told else "flag of the same name" not in out


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policies_shows_one(headway, name):
    """One policy: axes, source, and each parameter with default, type and meaning."""
    status, out, _ = headway("policies", name, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["name"] == name
    assert found["summary"]
    assert found["source"]
    assert not {"§", "ALGORITHMS"} & set(found["source"].replace("§", " § ").split()), "no paper or system of that name"
    status, out, _ = headway("policies", name)
    assert status == 0
    for parameter in found["parameters"]:
        assert parameter["name"] in out
        assert parameter["type"]
        assert parameter["help"]


def test_tape_draws(headway, scene):
    """Without --json: the picture, to be checked by eye."""
    assert headway("tape", scene, "--policy", "vllm") == (0, PICTURE, "")


def test_tape_json(headway, scene):
    """With --json: one document; its params are all that was in force, defaults included."""
    status, out, err = headway(
        "tape", scene, "--scheduling-policy", "vllm", "--json", "--set", "max_num_seqs=1", "--set", "prefix_cache=radix"
    )
    tape = json.loads(out)
    assert (status, err) == (0, "")
    assert tape["policy"] == "vllm"
    assert (tape["params"]["max_num_seqs"], tape["params"]["chunked"]) == (1, True)
    assert tape["params"]["prefix_cache"] == "radix"
    assert [step["grants"] for step in tape["steps"]] == [{"A": 6}, {"A": 1}, {"A": 1}, {"B": 9}, {"B": 1}]


def test_tape_of_a_config_file(headway, scene, tmp_path):
    """The policy and its parameters from a file, as `serve` takes them."""
    path = tmp_path / "policy.toml"
    path.write_text('[policy]\nname = "vllm"\nmax_num_seqs = 1\nprefix_cache = "radix"\n')
    _, by_flags, _ = headway(
        "tape", scene, "--policy", "vllm", "--set", "max_num_seqs=1", "--set", "prefix_cache=radix", "--json"
    )
    assert headway("tape", scene, "--config", path, "--json") == (0, by_flags, "")


def test_tape_of_a_broken_scene(headway, tmp_path):
    """A scene that is no JSON: one line that says where."""
    path = tmp_path / "scene.json"
    path.write_text("{")
    status, out, err = headway("tape", path, "--policy", "vllm")
    assert (status, out) == (2, "")
    assert "scene.json, line 1 is not JSON" in err


def test_collect_env(headway, monkeypatch):
    """What a bug report needs, as text and as JSON; nothing from the environment."""
    monkeypatch.setenv("HEADWAY_API_KEY", "hush-hush")
    status, out, _ = headway("collect-env")
    assert status == 0
    assert "python" in out
    assert "reference: numpy" in out
    assert "None" not in out.split()
    assert "{'" not in out
    status, as_json, err = headway("collect-env", "--json")
    found = json.loads(as_json)
    assert (status, err) == (0, "")
    assert set(found) == {"headway", "system", "cpu", "memory", "libraries"}
    assert found["memory"]["total_bytes"] is None or found["memory"]["total_bytes"] > 1 << 20
    assert "hush-hush" not in out + as_json


class TestGenerate:
    """Offline generation with a tiny model of random weights."""

    SMALL = ("--num-blocks", "64", "--max-tokens", "4", "--temperature", "0")

    def test_prompt(self, headway, tiny_gguf):
        """One prompt: its text on stdout, and nothing else anywhere."""
        status, out, err = headway("generate", tiny_gguf, "--prompt", "hello", *self.SMALL)
        assert (status, err) == (0, "")
        assert out.endswith("\n")

    def test_json(self, headway, tiny_gguf):
        """--json: one document with text, reason and usage for each prompt, in order."""
        _, plain, _ = headway("generate", tiny_gguf, "--prompt", "hello", *self.SMALL)
        status, out, err = headway("generate", tiny_gguf, "--prompt", "hello", "--prompt", "x", "--json", *self.SMALL)
        assert (status, err) == (0, "")
        first, second = json.loads(out)["results"]
        assert (first["id"], second["id"]) == ("0", "1")
        assert first["choices"][0]["text"] + "\n" == plain
        assert first["choices"][0]["finish_reason"] in ("stop", "length")
        assert first["usage"]["completion_tokens"] <= 4

    def test_file_in_file_out(self, headway, tiny_gguf, tmp_path):
        """A JSONL file of texts, ids and conversations gives one line each, in order, with their own settings."""
        source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        lines = [
            {"id": "a", "prompt": "hello", "max_tokens": 2, "ignore_eos": True},
            {"prompt": [5, 6, 7], "n": 2, "temperature": 1, "seed": 3},
            {"id": "c", "messages": [{"role": "user", "content": "hé"}], "stop": "zz"},
        ]
        source.write_text("\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        status, out, err = headway("generate", tiny_gguf, "--input", source, "--output", target, *self.SMALL)
        assert (status, out, err) == (0, "", "")
        results = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
        assert [result["id"] for result in results] == ["a", "1", "c"]
        assert results[0]["usage"]["completion_tokens"] == 2
        assert len(results[1]["choices"]) == 2
        assert results[2]["usage"]["prompt_tokens"] > 5

    @pytest.mark.parametrize(
        ("line", "mention"),
        [
            ("{bad", "not JSON"),
            ('{"prompt": "a", "n": 1, "n": 2}', "line 3: the key 'n' is there twice in one table; remove one"),
            ("[]", "object"),
            ("{}", "prompt or messages"),
            ('{"prompt": "a", "messages": []}', "prompt or messages"),
            ('{"prompt": 3}', "text or a list"),
            ('{"prompt": [1, "2"]}', "text or a list"),
            ('{"messages": "hi"}', "messages"),
            ('{"prompt": "a", "temprature": 1}', "'temprature'"),
            ('{"prompt": "a", "temperature": "hot"}', "temperature"),
            ('{"prompt": "a", "temperature": NaN}', "temperature"),
            ('{"prompt": "a", "n": 1.5}', "n is"),
            ('{"prompt": "a", "top_k": null}', "top_k"),
            ('{"prompt": "a", "stop": [1]}', "stop"),
            ('{"prompt": "a", "ignore_eos": 1}', "ignore_eos"),
            ('{"prompt": "a", "stop_token_ids": "x"}', "stop_token_ids"),
            ('{"prompt": "a", "max_tokens": 0}', "max_tokens"),
        ],
    )
    def test_a_bad_line_is_named(self, headway, tmp_path, line, mention):
        """Before anything is loaded: the file, the number of the line, and what is wrong with it."""
        source = tmp_path / "in.jsonl"
        source.write_text(f'{{"prompt": "fine"}}\n\n{line}\n')
        status, out, err = headway("generate", "no-such-model.gguf", "--input", source)
        assert (status, out) == (2, "")
        assert f"{source}, line 3" in err
        assert mention in err

    def test_what_only_the_model_can_refuse_is_named_too(self, headway, tiny_gguf, tmp_path):
        """A prompt that does not fit, found after loading, is named by its line as well."""
        source = tmp_path / "in.jsonl"
        source.write_text('{"prompt": "fine"}\n{"prompt": [100000]}')
        status, out, err = headway("generate", tiny_gguf, "--input", source, *self.SMALL)
        assert (status, out) == (2, "")
        assert "line 2" in err
        assert "100000" in err

    @pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"])
    def test_a_file_without_prompts(self, headway, tmp_path, content):
        """Nothing to do, or no text at all: refused."""
        source = tmp_path / "in.jsonl"
        source.write_bytes(content)
        status, _, err = headway("generate", "--input", source)
        assert (status, str(source) in err) == (2, True)

    def test_an_output_that_cannot_be_is_refused_first(self, headway, tmp_path):
        """A missing folder is noticed before the work is done."""
        status, _, err = headway("generate", "nothing.gguf", "--prompt", "a", "--output", tmp_path / "no" / "out.jsonl")
        assert (status, "no folder" in err) == (2, True)
