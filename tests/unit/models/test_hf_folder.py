import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import BadModelFile
from headway.models import HfFolder, LinearRope, Llama3Rope, load_weights, open_model, random_weights
from tests.support.families import FAMILIES, config_json, family_weights, tokenizer_json, write_folder
from tests.support.tiny_model import CHAT_TEMPLATE, named_tensors, tiny_tokenizer_spec

MISTRAL_WINDOW = FAMILIES["mistral"].context_length


def change_json(path, **changes):
    """Replaces keys of a JSON file; a value of None removes one."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def refusal(folder):
    """The one line with which a folder is refused."""
    with pytest.raises(BadModelFile) as caught:
        HfFolder.open(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert str(folder) in message
    return message


@pytest.fixture
def folder(tmp_path):
    """The tiny Llama 3 in a folder of its own."""
    write_folder(tmp_path / "tiny-llama3", family_weights("llama3"))
    return tmp_path / "tiny-llama3"


@pytest.mark.parametrize("name", FAMILIES)
def test_config_comes_back_as_written(tmp_path, name):
    """What config.json says is what `config` holds, for every family."""
    write_folder(tmp_path, family_weights(name))
    expected = dataclasses.replace(FAMILIES[name], name=tmp_path.name)
    assert HfFolder.open(tmp_path).config == dataclasses.replace(expected, context_length=expected.context_length)


@pytest.mark.parametrize("num_shards", [1, 3])
def test_float32_weights_come_back_bit_for_bit(tmp_path, num_shards):
    """From one file or from shards."""
    weights = family_weights("qwen2")
    write_folder(tmp_path, weights, num_shards=num_shards)
    loaded = named_tensors(load_weights(HfFolder.open(tmp_path)))
    for name, array in named_tensors(weights).items():
        np.testing.assert_array_equal(loaded[name], array)


@pytest.mark.parametrize(("kind", "error"), [("BF16", 2**-8), ("F16", 2**-10)])
def test_half_precision_comes_back_within_its_rounding(tmp_path, kind, error):
    """Every number to the precision of its type, and the config says which type that was."""
    weights = family_weights("llama2")
    write_folder(tmp_path, weights, kind=kind)
    file = HfFolder.open(tmp_path)
    assert file.config.quantisation == kind
    loaded = named_tensors(load_weights(file))
    for name, array in named_tensors(weights).items():
        np.testing.assert_allclose(loaded[name], array, rtol=error, atol=1e-7)


def test_a_folder_opens_as_a_model(folder):
    """Name, tokenizer, template: all that a server needs before weights are read."""
    opened = open_model(str(folder))
    assert opened.name == "tiny-llama3"
    assert opened.tokenizer.eos_ids == {0, 2}
    assert (opened.tokenizer.bos_text, opened.tokenizer.eos_text) == ("<|im_start|>", "<|im_end|>")
    ids = opened.prompts.encode([{"role": "user", "content": "Hi <|im_end|>"}])
    assert opened.tokenizer.decode(ids) == "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(2) == 1


def test_a_sliding_window_bounds_the_context(tmp_path):
    """Within the window it changes nothing; beyond it nothing is accepted. Where Qwen switches it off it is off."""
    for number, (name, changes, expected) in enumerate(
        [
            ("mistral", {"sliding_window": 100}, 100),
            ("mistral", {"sliding_window": None}, 512),
            ("mistral", {"sliding_window": 4096}, 512),
            ("qwen2", {"sliding_window": 100, "use_sliding_window": False}, 512),
            ("qwen2", {"sliding_window": 100}, 512),
            ("qwen3", {"sliding_window": 100, "use_sliding_window": True}, 100),
        ]
    ):
        write_folder(tmp_path / f"{number}", family_weights(name), changes=changes)
        assert HfFolder.open(tmp_path / f"{number}").config.context_length == expected
    # A config that does not speak of it means what the makers' code means.
    write_folder(tmp_path / "old", family_weights("mistral"), changes={"max_position_embeddings": 32768})
    change_json(tmp_path / "old" / "config.json", sliding_window=None)
    assert HfFolder.open(tmp_path / "old").config.context_length == 4096


def test_rope_is_read_under_its_old_and_its_new_names(folder):
    """`rope_scaling` with `type` or `rope_type`, and `rope_parameters` of transformers 5."""
    for changes, scaling, base in [
        ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 10000}, LinearRope(2.0), 10_000.0),
        ({"rope_scaling": {"rope_type": "default"}, "rope_theta": 5e5}, None, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}, "rope_theta": None}, None, 7e5),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 5e5,
                    "factor": 32.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                }
            },
            Llama3Rope(32.0, 1.0, 4.0, 8192),
            5e5,
        ),
    ]:
        change_json(folder / "config.json", **changes)
        config = HfFolder.open(folder).config
        assert (config.rope_scaling, config.rope_base) == (scaling, base)


def test_the_template_has_a_file_of_its_own_or_a_name(folder):
    """chat_template.jinja goes first; of several named templates the default one counts."""
    assert HfFolder.open(folder).chat_template == CHAT_TEMPLATE
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    change_json(folder / "tokenizer_config.json", chat_template=named)
    assert HfFolder.open(folder).chat_template == "d"
    (folder / "chat_template.jinja").write_text("own")
    assert HfFolder.open(folder).chat_template == "own"


def test_end_tokens_are_those_of_all_files(folder):
    """config.json, generation_config.json and tokenizer_config.json together."""
    change_json(folder / "config.json", eos_token_id=7)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    change_json(folder / "tokenizer_config.json", eos_token={"content": "<|endoftext|>"})
    spec = HfFolder.open(folder).tokenizer_spec
    assert spec.eos_ids == {0, 2, 7, 8, 9}  # 2 by its name
    assert spec.eos_id == 0


def test_embeddings_beyond_the_tokens_have_names(tmp_path):
    """Many models pad their embeddings; a padded id decodes to something and never fails."""
    num_tokens = len(tiny_tokenizer_spec().tokens)
    padded = random_weights(dataclasses.replace(FAMILIES["qwen2"], vocab_size=num_tokens + 5), seed=1)
    write_folder(tmp_path, padded)
    opened = open_model(str(tmp_path))
    assert opened.tokenizer.vocab_size == num_tokens + 5
    assert opened.tokenizer.decode([num_tokens + 4]) == f"<unused {num_tokens + 4}>"


class TestRefusals:
    """A folder that cannot be used is refused when it is opened, in one line that says what and where."""

    def test_no_config(self, tmp_path):
        """Some other folder."""
        assert "config.json" in refusal(tmp_path)

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"model_type": "mamba"}, "architecture 'mamba' is not supported; supported: llama, mistral, qwen2, qwen3"),
            ({"model_type": None}, "architecture None"),
            ({"quantization_config": {"quant_method": "awq"}}, "quantization_config 'awq' is not supported"),
            ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "RoPE scaling 'yarn' is not supported"),
            ({"rope_scaling": {"rope_type": "longrope"}}, "'longrope'"),
            ({"rope_scaling": {"rope_type": "linear"}}, "no factor"),
            ({"rope_scaling": {"rope_type": "linear", "factor": -1.0}}, "factor is -1.0"),
            ({"rope_scaling": [1]}, "not an object"),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
            ({"attention_bias": True}, "attention_bias"),
            ({"mlp_bias": True}, "mlp_bias"),
            ({"hidden_act": "gelu"}, "'gelu'"),
            ({"hidden_size": 128}, "has shape"),
            ({"num_hidden_layers": "two"}, "'two'"),
            ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight' is missing"),
            ({"num_hidden_layers": 1}, "model.layers.1."),
            ({"rms_norm_eps": None}, "rms_norm_eps"),
            ({"tie_word_embeddings": "no"}, "'no'"),
            ({"eos_token_id": 999}, "999"),
        ],
    )
    def test_a_wrong_value_is_shown(self, folder, changes, what):
        """What is not supported, and what contradicts the tensors."""
        change_json(folder / "config.json", **changes)
        assert what in refusal(folder)

    def test_what_is_not_supported_is_named_before_weights_are_looked_at(self, folder):
        """No weights are needed to say that they could not be run."""
        change_json(folder / "config.json", model_type="mamba")
        (folder / "model.safetensors").unlink()
        assert "'mamba'" in refusal(folder)

    def test_files_that_are_not_there(self, folder):
        """Weights in another format, a shard or a tokenizer that was not fetched."""
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        assert "model.safetensors" in refusal(folder)
        where = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(where))
        assert "model-00001-of-00002.safetensors" in refusal(folder)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret"}}))
        assert "not in this folder" in refusal(folder)

    def test_no_tokenizer(self, folder):
        """A folder whose tokenizer comes in another format."""
        (folder / "tokenizer.json").unlink()
        assert "no tokenizer.json" in refusal(folder)

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"model": {"type": "Unigram", "vocab": []}}, "'Unigram' is not supported"),
            ({"model": 3}, "not supported"),
            ({"added_tokens": [{"id": 1}]}, "has no id and content"),
            ({"added_tokens": [{"id": 999, "content": "x", "special": True}]}, "embeddings for"),
        ],
    )
    def test_a_tokenizer_of_another_kind(self, folder, changes, what):
        """Only BPE, whose ids lie within the embeddings."""
        change_json(folder / "tokenizer.json", **changes)
        assert what in refusal(folder)

    @pytest.mark.parametrize("cut", [3, 100, 5000])
    def test_cut_weights(self, folder, cut):
        """A download that stopped."""
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-cut] if cut != 3 else path.read_bytes()[:3])
        assert "model.safetensors is no whole safetensors file" in refusal(folder)

    def test_another_type(self, folder):
        """Quantised or integer tensors that no config key announced."""
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes().replace(b'"dtype": "F32"', b'"dtype": "I32"', 1))
        assert "stored as I32" in refusal(folder)

    @pytest.mark.parametrize("text", ["", "[1]", "{", "\x00", "[" * 100_000])
    def test_damaged_json(self, folder, text):
        """A config that is none."""
        (folder / "config.json").write_text(text)
        assert "config.json" in refusal(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
PLACES = [
    *[("config.json", key) for key in config_json(FAMILIES["llama3"])],
    ("config.json", "rope_parameters"),
    ("config.json", "sliding_window"),
    *[("tokenizer.json", key) for key in tokenizer_json(tiny_tokenizer_spec())],
    *[("tokenizer_config.json", key) for key in ("bos_token", "eos_token", "chat_template", "add_bos_token")],
    ("generation_config.json", "eos_token_id"),
]


@given(damage=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=2))
def test_any_value_anywhere_opens_or_is_refused(tmp_path_factory, damage):
    """Whatever stands under the keys that are read leads to a model that opens or to one refusal, and nothing else."""
    folder = tmp_path_factory.mktemp("damaged")
    write_folder(folder, family_weights("llama3"))
    (folder / "generation_config.json").write_text("{}")
    for (name, key), value in damage:
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(values | {key: value}))
    message = ""
    try:
        opened = open_model(str(folder))
        assert opened.tokenizer.vocab_size == opened.file.config.vocab_size
    except BadModelFile as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 600
