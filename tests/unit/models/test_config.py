import dataclasses

import pytest

from headway.errors import BadModelFile
from headway.models import random_weights
from tests.support.tiny_model import named_tensors, tiny_config


def test_a_config_cannot_be_changed():
    """Nobody writes to a config after it is made."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config().num_layers = 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 0),
        ("num_layers", 1 << 20),
        ("hidden_size", -1),
        ("num_kv_heads", 3),
        ("head_dim", 15),
        ("vocab_size", 1 << 30),
        ("context_length", 0),
        ("norm_eps", 0.0),
        ("norm_eps", float("nan")),
        ("rope_base", float("inf")),
        ("rope_base", float("nan")),
    ],
)
def test_impossible_numbers_are_refused_with_their_value(field, value):
    """A config that no model can have is never made; the message holds the number."""
    with pytest.raises(BadModelFile, match=str(value).replace("-", r"\-")):
        tiny_config(**{field: value})


@pytest.mark.parametrize("tied", [True, False])
def test_num_params_counts_every_weight_once(tied):
    """`num_params` is the number of elements of all arrays, tied embeddings once."""
    config = tiny_config(tied_embeddings=tied)
    assert config.num_params == sum(array.size for array in named_tensors(random_weights(config, 0)).values())
