"""Flags that commands have in common, with their help. Engine flags are named like the fields of `EngineConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.config_file import add_from_file, use_config_file
from headway.cli.values import parse_memory

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=use_config_file,
        is_eager=True,
        help="A TOML file with flags as keys and a \\[policy] table for --set; flags on the line win.",
        show_default=False,
    ),
]

_SCHEDULING, _MEMORY, _MODEL = "Scheduling", "Memory", "Model and executor"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A .gguf file, a Hugging Face folder, or a name in the catalogue.",
        show_default="SmolLM2-135M-Instruct, fetched once",
    ),
]
Executor = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="What runs the model: native (compiled) or reference (NumPy).", rich_help_panel=_MODEL
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="int8|float32", help="Number format of the weights.", show_default="int8", rich_help_panel=_MODEL
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        metavar="float16|int8|float32",
        help="Number format of the KV cache.",
        show_default="float16",
        rich_help_panel=_MODEL,
    ),
]
Kernels = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Compiled kernels: scalar, avx2, avx512, avx512_vnni.",
        show_default="the best that this processor runs",
        rich_help_panel=_MODEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="Threads of the executor.", show_default="all physical cores", rich_help_panel=_MODEL),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of requests that bring none.", show_default="a fresh one per request", rich_help_panel=_MODEL
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        help="Most tokens of one sequence, prompt and output.",
        show_default="the model's context, or what the KV cache holds",
        rich_help_panel=_MODEL,
    ),
]

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        "--scheduling-policy",
        metavar="NAME",
        is_eager=True,  # whose parameters --set and a file give is known before these are read
        help="Scheduling policy: a name of `headway policies`, or module:Class.",
        rich_help_panel=_SCHEDULING,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        callback=add_from_file,
        help="A parameter of the policy; repeat it for more.",
        show_default=False,
        rich_help_panel=_SCHEDULING,
    ),
]
MaxNumSeqs = Annotated[int, typer.Option(help="Most sequences that run at once.", rich_help_panel=_SCHEDULING)]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Token budget of a step.", rich_help_panel=_SCHEDULING)]
LongPrefill = Annotated[
    int, typer.Option(help="Most tokens of one prompt in a step; 0: no cap.", rich_help_panel=_SCHEDULING)
]

MaxNumPrefill = Annotated[
    int,
    typer.Option(
        "--max-num-prefill-tokens", help="Most prefill tokens of a step; 0: no own cap.", rich_help_panel=_SCHEDULING
    ),
]
ItlTarget = Annotated[
    float,
    typer.Option(
        "--itl-target-ms", help="P99 inter-token latency to keep, ms; 0: no target.", rich_help_panel=_SCHEDULING
    ),
]

BlockSize = Annotated[int, typer.Option(help="Tokens in a block of the KV cache.", rich_help_panel=_MEMORY)]
NumBlocks = Annotated[
    int | None,
    typer.Option(
        "--num-blocks",
        "--num-gpu-blocks-override",
        help="Blocks of the KV cache.",
        show_default="what the memory for it holds",
        rich_help_panel=_MEMORY,
    ),
]
KvCacheMemory = Annotated[
    int | None,
    typer.Option(
        parser=parse_memory,
        metavar="SIZE",
        help="Memory of the KV cache: bytes, 512MiB, 1GiB, 1G ...",
        show_default="a quarter of what is free, at most 2GiB",
        rich_help_panel=_MEMORY,
    ),
]
HostMemory = Annotated[
    int | None,
    typer.Option(
        parser=parse_memory,
        metavar="SIZE",
        help="Host memory for swapped sequences.",
        show_default="none",
        rich_help_panel=_MEMORY,
    ),
]
KvLimit = Annotated[
    float,
    typer.Option(
        "--kv-cache-utilization-limit",
        help="Share of the blocks that admission may fill; 0.75 is a careful start.",
        rich_help_panel=_MEMORY,
    ),
]
Watermark = Annotated[
    float, typer.Option(help="Share of all blocks kept free at admission, 0 to 0.9.", rich_help_panel=_MEMORY)
]
PrefixCache = Annotated[
    str, typer.Option(metavar="none|hashed|radix", help="How shared prefixes are found.", rich_help_panel=_MEMORY)
]

Url = Annotated[str, typer.Option(help="Where the server is.")]
ApiKey = Annotated[
    str | None, typer.Option(help="The server's key.", envvar="HEADWAY_API_KEY", show_default=False, metavar="KEY")
]
ServedModel = Annotated[
    str | None, typer.Option("--model", help="Which model to ask.", show_default="the first one that the server names")
]
MaxTokens = Annotated[int | None, typer.Option(help="Most tokens of an answer.", show_default="the server's")]
Temperature = Annotated[float | None, typer.Option(help="0: always the likeliest token.", show_default="the server's")]
TopP = Annotated[float | None, typer.Option(help="Share of likely tokens to draw from.", show_default="the server's")]
SampleSeed = Annotated[int | None, typer.Option("--seed", help="Repeat a draw.", show_default="a fresh one")]
Stops = Annotated[
    list[str] | None, typer.Option("--stop", help="Text that ends the answer; repeatable.", show_default=False)
]
