"""What comes in files: weights, tokenizers and chat templates, checked and ready to run.

Knows nothing of requests, scheduling or devices. Start reading at `gguf_file.py`; `catalogue.py` says where files
come from.
"""

from headway.models.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueEntry, resolve_model
from headway.models.chat_prompt import ChatPrompts
from headway.models.chat_template import ChatTemplate
from headway.models.config import ModelConfig, RopeScaling
from headway.models.gguf_file import GgufFile
from headway.models.opened import OpenedModel, open_model
from headway.models.tokenizer import Tokenizer
from headway.models.tokenizer_spec import TokenizerSpec
from headway.models.weights import LayerWeights, LlamaWeights, finite_tensor, load_weights, random_weights

__all__ = [
    "CATALOGUE",
    "DEFAULT_MODEL",
    "CatalogueEntry",
    "ChatPrompts",
    "ChatTemplate",
    "GgufFile",
    "LayerWeights",
    "LlamaWeights",
    "ModelConfig",
    "OpenedModel",
    "RopeScaling",
    "Tokenizer",
    "TokenizerSpec",
    "finite_tensor",
    "load_weights",
    "open_model",
    "random_weights",
    "resolve_model",
]
