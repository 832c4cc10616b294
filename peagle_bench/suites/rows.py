"""One row of anybody's traffic as prompts: OpenAI bodies, batch lines, ShareGPT, plain prompts.

A chat request is sent as it was captured, up to its last message that is not the assistant's.
Turns that were only ever the user's (SPEED-Bench's `turns`, ShareGPT) are sent one after another,
with the model's own reply between them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import ValidationError

from peagle_bench.core.suite import NO_CATEGORY, Columns, Message, Prompt, Suite
from peagle_bench.suites.loaded import Unusable

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
"""How a text of SPEED-Bench begins that has yet to be fetched from the data set it belongs to."""
LONGEST_LABEL = 60
LONGEST_ID = 200
TEMPLATE_OPTIONS = ("chat_template_kwargs", "reasoning_effort", "documents")
"""Fields of a chat request that change how its prompt is rendered: sent as they were."""
LEFT_OUT = ("response_format", "stop", "n", "logit_bias", "guided_json", "structured_outputs")
"""Fields that change the reply alone: not sent, and said."""
ID_KEYS = ("custom_id", "question_id", "prompt_id", "task_id", "id")
_SHAREGPT_USER = {"human", "user"}
_SHAREGPT_ASSISTANT = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}
_SPEED_KEYS = {"question_id", "category", "sub_category"}


def prompts_of(row: Any, name: str, suite: Suite) -> list[Prompt]:
    """The prompts of one row, whatever its shape.

    name: what the row is called where it has no id of its own. suite: how plain prompts are
    asked. Raises Unusable.
    """
    if not isinstance(row, Mapping):
        raise Unusable("no JSON object")
    name = row_id(row) or name
    category = label(row.get("category")) or NO_CATEGORY
    body = row.get("body")
    if isinstance(body, Mapping):  # a line of the batch API
        if not str(row.get("url", "/completions")).endswith("/completions"):
            raise Unusable("no generation request")
        return of_body(body, name, category)
    messages = row.get("messages")
    if row.get("turns") is not None:
        return [of_turns(row["turns"], name, category)]
    if row.keys() >= _SPEED_KEYS and _is_list(messages):
        return [of_turns([_field(m, "content") for m in messages or ()], name, category)]
    if row.get("model") is None and isinstance(row.get("prompt"), str):
        return [of_text(row["prompt"], name, category, suite)]
    return of_body(row, name, category)


def sendable(prompt: Prompt) -> Prompt:
    """The prompt itself. Raises Unusable for what no server can be sent, and for a placeholder."""
    if any(PLACEHOLDER in text for text in prompt.texts()):
        raise Unusable("a placeholder of SPEED-Bench, whose text is not here")
    try:
        sent: list[Any] = [
            prompt.prompt_id,
            prompt.category,
            prompt.conversation(()),
            prompt.follow_ups,
        ]
        sent += [prompt.completion, prompt.tools, prompt.template_options]
        json.dumps(sent, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Unusable("text that is no valid Unicode") from error
    except (ValueError, RecursionError) as error:
        raise Unusable("nested too deeply, or a number that is none") from error
    return prompt


def label(value: Any, most: int = LONGEST_LABEL) -> str:
    """An id or a category fit for a table, a file and a terminal: one line, printable, not long."""
    text = " ".join(str("" if value is None else value).split())
    return "".join(c if c.isprintable() else "?" for c in text)[:most]


def row_id(row: Mapping[str, Any]) -> str | None:
    """The row's own id, or None."""
    for key in ID_KEYS:
        value = row.get(key)
        if isinstance(value, (str, int)) and label(value):
            return label(value, LONGEST_ID)
    return None


def of_body(body: Mapping[str, Any], name: str, category: str = "all") -> list[Prompt]:
    """The body of a chat or completions request, or a ShareGPT conversation. Raises Unusable."""
    if body.get("messages") is not None:
        return [_chat(body, name, category)]
    for key in ("conversations", "conversation"):
        if body.get(key) is not None:
            return [of_sharegpt(body[key], name, category)]
    if body.get("prompt") is not None:
        return _completions(body["prompt"], name, category, _cap(body))
    if isinstance(body.get("inputs"), str):  # text-generation containers
        parameters = body.get("parameters")
        cap = _cap(parameters) if isinstance(parameters, Mapping) else None
        return _completions(body["inputs"], name, category, cap)
    raise Unusable("neither messages nor a prompt")


def of_text(text: str, name: str, category: str, suite: Suite) -> Prompt:
    """A plain prompt as the user's message, or as raw text where the suite says so.

    Raises Unusable for an empty one.
    """
    if not text.strip():
        raise Unusable("an empty prompt")
    asked = suite.template.replace("{prompt}", text)
    if suite.endpoint == "completions":
        return Prompt(prompt_id=name, completion=asked, category=category)
    message = Message(role="user", content=asked)
    return Prompt(prompt_id=name, messages=(message,), category=category)


def of_turns(turns: Any, name: str, category: str) -> Prompt:
    """The user's turns of a conversation. Raises Unusable."""
    if not _is_list(turns) or not turns:
        raise Unusable("no list of turns")
    if not all(isinstance(t, str) and t.strip() for t in turns):
        raise Unusable("an empty turn")
    opening = Message(role="user", content=turns[0])
    return Prompt(
        prompt_id=name, messages=(opening,), follow_ups=tuple(turns[1:]), category=category
    )


def of_sharegpt(held: Any, name: str, category: str) -> Prompt:
    """A ShareGPT conversation: the human's turns; the model under test gives the replies."""
    if not _is_list(held):
        raise Unusable("no list of turns")
    system: list[Message] = []
    turns: list[str] = []
    for part in held:
        if not isinstance(part, Mapping):
            raise Unusable("no list of turns")
        speaker = str(part.get("from", part.get("role", ""))).lower()
        text = part.get("value", part.get("content"))
        if not isinstance(text, str):
            raise Unusable("content that is not text")
        if speaker == "system" and not turns:
            system = [Message(role="system", content=text)]
        elif speaker in _SHAREGPT_USER:
            turns.append(text)
        elif speaker not in _SHAREGPT_ASSISTANT:
            raise Unusable("a speaker that is neither user nor assistant")
    if not turns:
        raise Unusable("no user message")
    prompt = of_turns(turns, name, category)
    return prompt.model_copy(update={"messages": (*system, *prompt.messages)})


def of_columns(row: Mapping[str, Any], columns: Columns, name: str, suite: Suite) -> Prompt:
    """A data set's row by its column mapping. Raises Unusable."""
    if columns.id is not None:
        name = label(row.get(columns.id), LONGEST_ID) or name
    category = NO_CATEGORY
    if columns.category is not None:
        category = label(row.get(columns.category)) or category
    if columns.prompt is not None:
        if not isinstance(row[columns.prompt], str):
            raise Unusable("content that is not text")
        return of_text(row[columns.prompt], name, category, suite)
    if columns.turns is not None:
        return of_turns(row[columns.turns], name, category)
    if columns.conversations is not None:
        return of_sharegpt(row[columns.conversations], name, category)
    assert columns.messages is not None
    return _chat({"messages": row[columns.messages]}, name, category)


def _chat(body: Mapping[str, Any], name: str, category: str) -> Prompt:
    held = body["messages"]
    if not _is_list(held):
        raise Unusable("messages that are no list")
    messages = [_message(m) for m in held]
    while messages and messages[-1].role == "assistant":  # what was answered then
        messages.pop()
    asked = [m.content or "" for m in messages if m.role == "user"]
    if not asked:
        raise Unusable("no user message")
    if not any(text.strip() for text in asked):
        raise Unusable("an empty prompt")
    tools = body.get("tools") or ()
    if not _is_list(tools) or not all(isinstance(t, Mapping) for t in tools):
        raise Unusable("tools that are no list of objects")
    options = {k: body[k] for k in TEMPLATE_OPTIONS if body.get(k) is not None}
    return Prompt(
        prompt_id=name,
        messages=tuple(messages),
        tools=tuple(tools),
        template_options=options,
        max_tokens=_cap(body),
        left_out=tuple(k for k in LEFT_OUT if body.get(k) not in (None, 1, [], {})),
        category=category,
    )


def _message(held: Any) -> Message:
    if not isinstance(held, Mapping):
        raise Unusable("a message that is no object")
    content = held.get("content")
    if _is_list(content):
        if not all(isinstance(p, Mapping) and isinstance(p.get("text"), str) for p in content):
            raise Unusable("content that is not text")
        content = "\n".join(p["text"] for p in content)  # as vLLM joins text parts
    if content is not None and not isinstance(content, str):
        raise Unusable("content that is not text")
    if content is None and not held.get("tool_calls"):
        raise Unusable("a message without content")
    fields = {k: held[k] for k in ("name", "tool_calls", "tool_call_id") if held.get(k)}
    try:
        return Message(role=held.get("role"), content=content, **fields)  # type: ignore[arg-type]
    except ValidationError as error:
        raise Unusable("a message with an unknown role or malformed tool calls") from error


def _completions(held: Any, name: str, category: str, cap: int | None) -> list[Prompt]:
    """A completions prompt: text, token ids, or a list of either (one prompt each)."""
    if isinstance(held, str) or _are_ids(held):
        held = [held]
    if not _is_list(held):
        raise Unusable("a prompt that is neither text nor token ids")
    if not held:
        raise Unusable("an empty prompt")
    out = []
    for number, one in enumerate(held, 1):
        if isinstance(one, str) and not one.strip():
            raise Unusable("an empty prompt")
        if not isinstance(one, str) and not _are_ids(one):
            raise Unusable("a prompt that is neither text nor token ids")
        out.append(
            Prompt(
                prompt_id=name if len(held) == 1 else f"{name}.{number}",
                completion=one if isinstance(one, str) else tuple(one),
                max_tokens=cap,
                category=category,
            )
        )
    return out


def _are_ids(held: Any) -> bool:
    return (
        isinstance(held, (list, tuple))
        and bool(held)
        and all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**31 for i in held)
    )


def _is_list(held: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(held, Sequence) and not isinstance(held, (str, bytes))


def _field(held: Any, name: str) -> Any:
    return held.get(name) if isinstance(held, Mapping) else None


def _cap(body: Mapping[str, Any]) -> int | None:
    """The output cap that the request itself named."""
    for key in ("max_completion_tokens", "max_tokens", "max_new_tokens"):
        value = body.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
    return None
