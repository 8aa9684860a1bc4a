"""`headway generate`: prompts in, texts out, without a server."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import flags
from headway.cli.output import print_json
from headway.cli.values import parse_settings
from headway.errors import BadSetting, InvalidRequest

if TYPE_CHECKING:
    from headway.cli.tasks import Task
    from headway.engine import LLM, Generation


def generate(
    model: flags.Model = None,
    *,
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt; repeatable.", show_default=False)] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A JSONL file of prompts or messages.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write results there, one JSON object a line.", show_default="stdout")
    ] = None,
    as_json: flags.Json = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Share of likely tokens to draw from.")] = 1.0,
    seed: flags.Seed = None,
    stop: flags.Stops = None,
    policy: flags.PolicyName = "headway",
    settings: flags.Settings = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    max_model_len: flags.MaxModelLen = None,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
    executor: flags.Executor = "native",
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    kernels: flags.Kernels = None,
    threads: flags.Threads = None,
) -> None:
    """Complete prompts offline, all of them sharing the machine by continuous batching."""
    _generate(locals())


def _generate(given: dict[str, Any]) -> None:
    tasks = _tasks(given)
    output = given["output"]
    if output is not None and not output.resolve().parent.is_dir():
        raise BadSetting(f"--output {output}: there is no folder {output.resolve().parent}")
    from headway.engine import LLM, EngineConfig, build_engine

    ours = {field.name: given[field.name] for field in fields(EngineConfig) if field.name in given}
    llm = LLM(engine=build_engine(EngineConfig(policy_settings=parse_settings(given["settings"] or ()), **ours)))
    results = [_result(task, one) for task, one in zip(tasks, run(llm, tasks), strict=True)]
    llm.close()
    _write(results, given)


def _tasks(given: dict[str, Any]) -> list[Task]:
    from headway.cli.tasks import read_tasks, tasks_from_prompts
    from headway.core import SamplingParams

    params = SamplingParams(
        max_tokens=given["max_tokens"],
        temperature=given["temperature"],
        top_p=given["top_p"],
        seed=given["seed"],
        stop=tuple(given["stop"] or ()),
    )
    if bool(given["prompt"]) == bool(given["input_file"]):
        raise BadSetting("give either --prompt or --input FILE.jsonl")
    if given["input_file"]:
        return read_tasks(given["input_file"], params)
    return tasks_from_prompts(given["prompt"], params)


def run(llm: LLM, tasks: list[Task]) -> list[Generation]:
    """Generate all tasks at once, results in their order. Raises `InvalidRequest` naming the first task at fault."""
    prompts = [_prompt_ids(llm, task) for task in tasks]
    try:
        return llm.generate(prompts, [task.params for task in tasks])
    except InvalidRequest:
        for task, ids in zip(tasks, prompts, strict=True):
            _check(llm, task, ids)
        raise


def _prompt_ids(llm: LLM, task: Task) -> list[int]:
    if isinstance(task.prompt, str):
        return llm.engine.tokenizer.encode_prompt(task.prompt)
    if task.prompt is not None:
        return list(task.prompt)
    try:
        return llm.engine.prompts.encode(task.messages, add_generation_prompt=True)
    except InvalidRequest as error:
        raise InvalidRequest(f"{task.where}: {error}") from None


def _check(llm: LLM, task: Task, ids: list[int]) -> None:
    from headway.engine.door import Extras

    try:
        llm.engine.door.request(task.id, ids, task.params, 0.0, Extras())
    except InvalidRequest as error:
        raise InvalidRequest(f"{task.where}: {error}") from None


def _result(task: Task, generation: Generation) -> dict[str, Any]:
    return {
        "id": task.id,
        "choices": [
            {"text": choice.text, "finish_reason": str(choice.finish_reason), "stop_reason": choice.stop_reason}
            for choice in generation.choices
        ],
        "usage": {
            "prompt_tokens": generation.usage.num_prompt,
            "completion_tokens": generation.usage.num_output,
            "cached_tokens": generation.usage.num_cached,
        },
    }


def _write(results: list[dict[str, Any]], given: dict[str, Any]) -> None:
    """JSON as one document, JSONL for a file in or out, else the bare texts."""
    lines = "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results)
    if given["output"] is not None:
        try:
            given["output"].write_text(lines, encoding="utf-8")
        except OSError as error:
            raise BadSetting(f"cannot write {given['output']}: {error.strerror}") from None
    if given["as_json"]:
        print_json({"results": results})
    elif given["output"] is None and given["input_file"]:
        sys.stdout.write(lines)
    elif given["output"] is None:
        for result in results:
            for choice in result["choices"]:
                print(choice["text"])
