"""Small programming tasks, composed from parts and rendered as a signature with a docstring.

Every example value in a docstring is computed by running the task's own Python function, so
the prompts are correct. The tasks are ours; none is taken from a published benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from task_parts import (
    CHAR_FILTERS,
    CHAR_REDUCERS,
    LIST_ARG_OPS,
    NUMBER_FILTERS,
    NUMBER_MAPS,
    NUMBER_OPS,
    NUMBER_PAIR_OPS,
    NUMBER_REDUCERS,
    PAIR_OPS,
    TEXT_ARG_OPS,
    TEXT_OPS,
    WORD_FILTERS,
    WORD_MAPS,
    WORD_REDUCERS,
    Fn,
)


@dataclass(frozen=True)
class Task:
    """One function to be written."""

    name: str
    params: tuple[tuple[str, str], ...]  # (name, type annotation)
    returns: str
    description: str
    function: Fn
    sample: Callable[[random.Random], tuple[Any, ...]]


WORDS = (
    "apple",
    "river",
    "stone",
    "Anna",
    "level",
    "cloud",
    "tree",
    "Paris",
    "window",
    "a",
    "ox",
    "bee",
    "kayak",
    "Green",
    "table",
    "moon",
    "star",
    "noon",
    "code",
    "Python",
    "list",
    "queue",
    "silver",
    "orange",
    "cat",
    "dog",
    "bird",
    "Berlin",
    "lamp",
    "ice",
    "umbrella",
    "egg",
    "door",
    "radar",
    "paper",
    "music",
    "Otto",
    "sea",
    "hill",
    "garden",
    "small",
    "big",
    "fast",
)
SENTENCES = (
    "The quick brown fox",
    "Hello World",
    "abc123",
    "Room 42, floor 7",
    "A man, a plan!",
    "",
    "Mississippi",
    "Data Science 101",
    "keep calm",
    "OpenAI",
    "x = 3 + 4",
    "Good morning, Eve",
    "banana",
    "UPPER lower",
    "no-op",
    "Tea at 5 pm?",
    "zebra",
    "Level 99 Boss",
    "racecar",
)
NUMBER_PARAMS = ("numbers", "nums", "lst", "values", "arr", "xs", "items", "l", "data", "sequence")
WORD_PARAMS = ("words", "strings", "names", "lst", "items", "tokens")
TEXT_PARAMS = ("text", "s", "string", "sentence", "message", "st")


def _numbers(rng: random.Random) -> tuple[list[int]]:
    kind = rng.random()
    if kind < 0.12:
        return ([],)
    low = rng.choice((0, 1, -10, -5))
    return ([rng.randint(low, rng.choice((9, 12, 30))) for _ in range(rng.randint(2, 6))],)


def _words(rng: random.Random) -> tuple[list[str]]:
    if rng.random() < 0.12:
        return ([],)
    return (rng.sample(WORDS, rng.randint(2, 4)),)


def _text(rng: random.Random) -> tuple[str]:
    return (rng.choice(SENTENCES),)


OPENINGS = (
    "Return the",
    "Compute the",
    "Find the",
    "Calculate the",
    "Get the",
    "Return the",
    "This function returns the",
    "Write a function that returns the",
    "Give the",
    "Determine the",
)
LIST_TAILS = (
    "in the list",
    "in the given list",
    "of the list {p}",
    "in {p}",
    "in a list of integers",
    "in the input list",
    "of the given list of numbers",
)
WORD_TAILS = (
    "in the list",
    "in the given list of strings",
    "in {p}",
    "of the list {p}",
    "from the input list",
)


def _name(rng: random.Random, *parts: str) -> str:
    name = "_".join(p for p in parts if p)
    if rng.random() < 0.15:
        name = rng.choice(("find", "get", "compute", "calc")) + "_" + name
    return name


def _compose(kind: str, rng: random.Random) -> Task:
    """A filter, a map and a reduction over a list of numbers or of words."""
    if kind == "numbers":
        filters, maps, reducers = NUMBER_FILTERS, NUMBER_MAPS, NUMBER_REDUCERS
        param, element, sample = rng.choice(NUMBER_PARAMS), "int", _numbers
        tail = rng.choice(LIST_TAILS)
    else:
        filters, maps, reducers = WORD_FILTERS, WORD_MAPS, WORD_REDUCERS
        param, element, sample = rng.choice(WORD_PARAMS), "str", _words
        tail = rng.choice(WORD_TAILS)
    f_name, f_text, keep = rng.choice(filters)
    m_name, m_text, change = rng.choice(maps)
    r_name, r_text, returns, reduce = rng.choice(reducers)
    subject = f"the {m_text} {f_text}" if m_text else f"the {f_text}"
    description = f"{rng.choice(OPENINGS)} {r_text} {subject} {tail.format(p=param)}."

    def run(values: Sequence[Any]) -> Any:
        return reduce([change(v) for v in values if keep(v)])

    name = _name(rng, r_name, f_name, m_name)
    return Task(name, ((param, f"List[{element}]"),), returns, description, run, sample)


def _chars(rng: random.Random) -> Task:
    """A question about the characters of a string."""
    param = rng.choice(TEXT_PARAMS)
    f_name, f_text, keep = rng.choice(CHAR_FILTERS)
    r_name, r_text, returns, reduce = rng.choice(CHAR_REDUCERS)
    if r_name == "positions":
        description = f"Return the indices at which the {f_text} of the string stand."

        def run(text: str) -> Any:
            return [i for i, c in enumerate(text) if keep(c)]
    else:
        description = r_text.format(f_text)

        def run(text: str) -> Any:
            return reduce([c for c in text if keep(c)])

    return Task(_name(rng, r_name, f_name), ((param, "str"),), returns, description, run, _text)


def _upto(rng: random.Random) -> Task:
    """A filter, a map and a reduction over the integers 1 to n, or over the digits of n."""
    f_name, f_text, keep = rng.choice(NUMBER_FILTERS[2:])
    m_name, m_text, change = rng.choice(NUMBER_MAPS)
    r_name, r_text, returns, reduce = rng.choice(NUMBER_REDUCERS)
    digits = rng.random() < 0.35
    if digits:
        f_name, f_text, keep = rng.choice(
            [
                ("even_digits", "even digits", lambda d: d % 2 == 0),
                ("odd_digits", "odd digits", lambda d: d % 2 == 1),
                ("digits", "digits", lambda d: True),
                ("nonzero_digits", "digits other than zero", lambda d: d != 0),
            ]
        )
        tail = rng.choice(("of n", "of a non-negative integer n", "of the given number n"))
    else:
        tail = rng.choice(
            (
                "from 1 to n",
                "between 1 and n inclusive",
                "not greater than n",
                "up to and including n",
                "from 1 up to n",
            )
        )
    subject = f"the {m_text} {f_text}" if m_text else f"the {f_text}"
    description = f"{rng.choice(OPENINGS)} {r_text} {subject} {tail}."

    def run(n: int) -> Any:
        source = [int(d) for d in str(n)] if digits else range(1, n + 1)
        return reduce([change(v) for v in source if keep(v)])

    def sample(r: random.Random) -> tuple[int]:
        return (r.randint(10, 9999),) if digits else (r.randint(1, 14),)

    name = _name(rng, r_name, f_name, m_name, "" if digits else rng.choice(("up_to", "to_n", "")))
    return Task(name, (("n", "int"),), returns, description, run, sample)


def _atomic(rng: random.Random) -> Task:
    """One of the named operations above."""
    kind = rng.randrange(6)
    if kind == 0:
        name, text, returns, run = rng.choice(PAIR_OPS)
        names = rng.choice((("a", "b"), ("xs", "ys"), ("first", "second"), ("lst1", "lst2")))
        params = tuple((p, "List[int]") for p in names)
        return Task(name, params, returns, text, run, lambda r: (_numbers(r)[0], _numbers(r)[0]))
    if kind == 1:
        name, text, returns, run = rng.choice(NUMBER_PAIR_OPS)
        return Task(
            name,
            (("a", "int"), ("b", "int")),
            returns,
            text,
            run,
            lambda r: (r.randint(1, 30), r.randint(1, 20)),
        )
    if kind == 2:
        name, text, returns, run = rng.choice(LIST_ARG_OPS)
        params = ((rng.choice(NUMBER_PARAMS), "List[int]"), ("k", "int"))
        return Task(name, params, returns, text, run, lambda r: (_numbers(r)[0], r.randint(1, 4)))
    if kind == 3:
        name, text, returns, run = rng.choice(TEXT_ARG_OPS)
        params = ((rng.choice(TEXT_PARAMS), "str"), ("n", "int"))
        return Task(name, params, returns, text, run, lambda r: (_text(r)[0], r.randint(1, 5)))
    if kind == 4:
        name, text, returns, run = rng.choice(TEXT_OPS)
        return Task(name, ((rng.choice(TEXT_PARAMS), "str"),), returns, text, run, _text)
    name, text, returns, run = rng.choice(NUMBER_OPS)
    return Task(name, (("n", "int"),), returns, text, run, lambda r: (r.randint(1, 60),))


def make_task(rng: random.Random) -> Task:
    """A random task; about half of them are compositions, the rest named operations."""
    roll = rng.random()
    if roll < 0.28:
        return _compose("numbers", rng)
    if roll < 0.44:
        return _compose("words", rng)
    if roll < 0.56:
        return _chars(rng)
    if roll < 0.68:
        return _upto(rng)
    return _atomic(rng)


EXTRAS = (
    "Return the result without changing the input.",
    "The input may be empty.",
    "You may assume that the input is valid.",
    "The order of the elements must be kept.",
    "Note: the function must not print anything.",
    "Do not use any external library.",
    "If the input is empty, handle it gracefully.",
    "Use only the standard library.",
)
EXAMPLE_HEADS = ("", "", "", "Examples:", "For example:", "Example:", "For example", "Examples")


def _example(style: str, name: str, args: tuple[Any, ...], value: Any) -> list[str]:
    call = f"{name}({', '.join(map(repr, args))})"
    if style == "doctest":
        if value is None:
            return [f">>> {call} is None", "True"]
        return [f">>> {call}", repr(value)]
    return [f"{call} {style} {value!r}"]


def render(task: Task, rng: random.Random) -> str:
    """The task as the beginning of a Python file, ending with a newline after its docstring."""
    style = rng.choice(("doctest",) * 6 + ("==", "=>", "➞", "->", "returns", "should return"))
    examples: list[str] = []
    seen: set[str] = set()
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4)) * 2):
        args = task.sample(rng)
        if repr(args) in seen or len(seen) >= 4:
            continue
        value = task.function(*args)
        if len(repr(value)) > 90:
            continue
        seen.add(repr(args))
        examples += _example(style, task.name, args, value)
        if len(seen) >= 3 and rng.random() < 0.5:
            break
    typed = rng.random() < 0.65
    params = ", ".join(f"{p}: {t}" if typed else p for p, t in task.params)
    bare = typed and rng.random() < 0.3  # plain `list` in place of `List[int]`
    header = f"def {task.name}({params})" + (f" -> {task.returns}" if typed and not bare else "")
    if bare:
        header = header.replace("List[int]", "list").replace("List[str]", "list")
    imports = [t for t in ("Dict", "List", "Tuple") if t + "[" in header]
    text = task.description
    if rng.random() < 0.35:
        text += " " + rng.choice(EXTRAS)
    lines = _wrap(text, rng.choice((72, 88, 100)))
    head = rng.choice(EXAMPLE_HEADS)
    body = [*lines]
    if examples:
        if rng.random() < 0.5:
            body.append("")
        if head:
            body.append(head)
        body += examples
    quote = rng.choice(('"""', '"""', '"""', "'''"))
    first = rng.random()
    indent = "    "
    if first < 0.45:
        doc = [indent + quote + body[0], *(indent + b if b else "" for b in body[1:])]
    elif first < 0.7:
        doc = [indent + quote + " " + body[0], *(indent + b if b else "" for b in body[1:])]
    else:
        doc = [indent + quote, *(indent + b if b else "" for b in body)]
    doc.append(indent + quote)
    if imports:
        top = [f"from typing import {', '.join(imports)}", "", ""]
    else:
        top = rng.choice(([], [""]))
    return "\n".join([*top, header + ":", *doc]) + "\n"


def _wrap(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
