"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): a Llama whose queries, keys and values have biases."""

from headway.models.architecture import Architecture

ARCHITECTURE = Architecture(qkv_bias=True, window_is_optional=True)
