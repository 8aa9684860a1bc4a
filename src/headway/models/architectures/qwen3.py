"""Qwen3, dense (arXiv 2505.09388): a Llama whose heads of queries and keys are normalised before they are rotated."""

from headway.models.architecture import Architecture

ARCHITECTURE = Architecture(qk_norm=True, window_is_optional=True, head_dim=128)
