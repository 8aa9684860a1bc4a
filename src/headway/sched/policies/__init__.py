"""One file per policy; each states its order, sharing, reservation and shortage.

Must not know: pools, clocks, executors. Start reading at `vllm`.
"""

__all__: list[str] = []
