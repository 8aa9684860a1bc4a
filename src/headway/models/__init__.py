"""What comes in files: weights, tokenizers and chat templates, checked and ready to run.

Knows nothing of requests, scheduling or devices. Start reading at `model_file.py`: what a GGUF file (`gguf_file.py`)
and a Hugging Face folder (`hf_folder.py`) both offer. `catalogue.py` says where files come from.
"""

from headway.models.architecture import known_architectures
from headway.models.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueEntry, cache_folder, resolve_model
from headway.models.chat_prompt import ChatPrompts
from headway.models.chat_template import ChatTemplate
from headway.models.config import ModelConfig
from headway.models.gguf_file import GgufFile
from headway.models.hf_folder import HfFolder
from headway.models.layout import layer_shapes
from headway.models.model_file import ModelFile, finite_tensor
from headway.models.opened import OpenedModel, open_model
from headway.models.rope import DividedRope, LinearRope, Llama3Rope, RopeScaling, rope_frequencies
from headway.models.tokenizer import Tokenizer
from headway.models.tokenizer_spec import TokenizerSpec
from headway.models.weights import LayerWeights, LlamaWeights, load_weights, random_weights

__all__ = [
    "CATALOGUE",
    "DEFAULT_MODEL",
    "CatalogueEntry",
    "ChatPrompts",
    "ChatTemplate",
    "DividedRope",
    "GgufFile",
    "HfFolder",
    "LayerWeights",
    "LinearRope",
    "Llama3Rope",
    "LlamaWeights",
    "ModelConfig",
    "ModelFile",
    "OpenedModel",
    "RopeScaling",
    "Tokenizer",
    "TokenizerSpec",
    "cache_folder",
    "finite_tensor",
    "known_architectures",
    "layer_shapes",
    "load_weights",
    "open_model",
    "random_weights",
    "resolve_model",
    "rope_frequencies",
]
