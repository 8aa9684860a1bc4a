"""The engine for scripts: give prompts, get texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from headway.core import Event, Finished, FinishReason, PromptScored, Rejected, SamplingParams
from headway.core.result import Logprobs
from headway.engine.build import Engine, build_engine
from headway.engine.config import EngineConfig
from headway.engine.door import Extras
from headway.engine.outputs import Completion, Delta, Generation, Usage
from headway.errors import ExecutorFault, Overloaded

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]


class LLM:
    """A model in this process. All prompts of a call share the machine by continuous batching.

    >>> LLM().generate(["The capital of France is"], SamplingParams(temperature=0.0))[0].text
    """

    def __init__(self, model: str | None = None, *, engine: Engine | None = None, **settings: Any) -> None:  # noqa: ANN401  # EngineConfig checks them
        """Load `model` under `settings` (fields of `EngineConfig`), or use an `engine` that is built already."""
        self.engine = engine or build_engine(EngineConfig(model=model, **settings))
        self._num_requests = 0
        self._open: dict[str, _Collected] = {}
        self.engine.core.listen(self._on_events)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Generation]:
        """Complete each prompt (a text or token ids); results in the order of the prompts.

        `params` is one for all or one each. Raises `InvalidRequest` before anything runs when one is at fault.
        """
        return self._run([self._ids(prompt) for prompt in _each_prompt(prompts)], params)

    def chat(
        self,
        conversations: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **variables: Any,  # noqa: ANN401  # template variables
    ) -> list[Generation]:
        """Answer each conversation under the model's chat template; `variables` are the template's own."""
        several = cast("Sequence[Messages]", [conversations] if _is_messages(conversations) else conversations)
        variables = {"add_generation_prompt": True, **variables}
        return self._run([self.engine.prompts.encode(one, **variables) for one in several], params)

    def close(self) -> None:
        """Give back memory and threads; idempotent."""
        self.engine.core.executor.close()

    def _ids(self, prompt: Prompt) -> list[int]:
        return self.engine.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else list(prompt)

    def _run(
        self, prompts: list[list[int]], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[Generation]:
        each = self._each(params, len(prompts))
        core, now_s = self.engine.core, self.engine.clock.now()
        first = self._num_requests
        requests = [
            self.engine.door.request(f"llm-{first + at}", ids, one, now_s, Extras())
            for at, (ids, one) in enumerate(zip(prompts, each, strict=True))
        ]
        self._num_requests += len(requests)
        collected = [_Collected(list(request.prompt_ids), request.params.n) for request in requests]
        self._open = {request.id: one for request, one in zip(requests, collected, strict=True)}
        try:
            for request in requests:
                core.submit(request)
            while core.has_work:
                core.step()
        finally:
            for request in requests:
                core.abort(request.id)
            core.flush_events()
            self._open = {}
        return [one.generation(request.id) for request, one in zip(requests, collected, strict=True)]

    @staticmethod
    def _each(params: SamplingParams | Sequence[SamplingParams] | None, num: int) -> list[SamplingParams]:
        if params is None or isinstance(params, SamplingParams):
            return [params or SamplingParams()] * num
        if len(params) != num:
            raise ValueError(f"{num} prompts, but {len(params)} sampling params; give one for all or one each")
        return list(params)

    def _on_events(self, events: list[Event]) -> None:
        for request_id, delta in self.engine.text.deltas(events):
            if request_id in self._open:
                self._open[request_id].add(delta)
        for event in events:
            match event:
                case Finished(request, _, num_output, num_cached, _) if request.id in self._open:
                    usage = Usage(num_prompt=request.num_prompt, num_output=num_output, num_cached=num_cached)
                    self._open[request.id].usage = usage
                case PromptScored(request_id, logprobs) if request_id in self._open:
                    self._open[request_id].prompt_logprobs = list(logprobs)
                case Rejected(_, reason, _):
                    raise Overloaded(reason)
                case _:
                    pass


class _Collected:
    """One request's deltas put together."""

    def __init__(self, prompt_ids: list[int], num_choices: int) -> None:
        self._prompt_ids = prompt_ids
        self._choices = [Completion("", [], FinishReason.ABORT) for _ in range(num_choices)]
        self.usage: Usage | None = None
        self.prompt_logprobs: list[Logprobs] = []

    def add(self, delta: Delta) -> None:
        choice = self._choices[delta.choice]
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        choice.logprobs += delta.logprobs
        if delta.finish_reason is not None:
            choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason

    def generation(self, request_id: str) -> Generation:
        if any(choice.finish_reason is FinishReason.ERROR for choice in self._choices):
            raise ExecutorFault(f"request {request_id} failed in the executor; the log says why")
        assert self.usage is not None, f"{request_id} ended without usage"
        return Generation(request_id, self._prompt_ids, self._choices, self.usage, self.prompt_logprobs)


def _each_prompt(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Prompts as a list, where a single one (a text, or token ids) may have been given."""
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [cast("Prompt", prompts)]
    return cast("Sequence[Prompt]", prompts)


def _is_messages(conversations: Messages | Sequence[Messages]) -> bool:
    return len(conversations) > 0 and isinstance(conversations[0], Mapping)
