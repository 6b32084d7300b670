"""One call to every engine core behind a server, and what each of them answered.

With data parallelism a server has several. vLLM's own call asks all and gives the first one's
answer; here every answer counts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ..errors import InternalError

__all__ = ["Answer", "ask_engines", "named", "values_of"]


@dataclass(frozen=True)
class Answer:
    """What one engine said."""

    engine: int  #: its number among those of the server
    value: Any = None
    failure: str = ""  #: why there is no value


async def ask_engines(client: Any, method: str, *args: Any) -> list[Answer]:
    """Asks all at once and waits for all, whatever some of them say. `client`: vLLM's, to cores."""
    engines = list(getattr(client, "core_engines", None) or [])
    if len(engines) > 1:
        numbers = list(getattr(client, "engine_ranks_managed", range(len(engines))))
        calls = [client._call_utility_async(method, *args, engine=engine) for engine in engines]
    else:
        numbers, calls = [0], [client.call_utility_async(method, *args)]
    told = await asyncio.gather(*calls, return_exceptions=True)
    answers = []
    for number, said in zip(numbers, told, strict=True):
        if isinstance(said, Exception):
            answers.append(Answer(number, failure=str(said) or type(said).__name__))
        elif isinstance(said, BaseException):
            raise said
        else:
            answers.append(Answer(number, said))
    return answers


def values_of(answers: list[Answer]) -> list[Any]:
    """Of all engines; raises InternalError, and says which failed, if one has none."""
    failed = [answer for answer in answers if answer.failure]
    if failed:
        raise InternalError(
            "; ".join(named(answer, answer.failure, len(answers)) for answer in failed)
        )
    return [answer.value for answer in answers]


def named(answer: Answer, text: str, engines: int) -> str:
    """`text`, with the engine that says so where there are several."""
    return f"engine {answer.engine}: {text}" if engines > 1 else text
