"""Llama 2 and 3 and what is built like them (SmolLM2, TinyLlama, Vicuna, ...): arXiv 2307.09288, 2407.21783."""

from headway.models.architecture import Architecture

# GGUF files of this family hold query and key rows reordered, so that neighbouring features turn together.
ARCHITECTURE = Architecture(gguf_rope_pairs="interleaved")
