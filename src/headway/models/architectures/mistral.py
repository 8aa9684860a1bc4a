"""Mistral 7B (arXiv 2310.06825): a Llama whose tokens see `sliding_window` tokens back, 4,096 where nothing is said.

Contexts within the window are computed exactly; longer ones are refused. GGUF files call this family `llama`.
"""

from headway.models.architecture import Architecture

ARCHITECTURE = Architecture(gguf_rope_pairs="interleaved", default_window=4096)
