"""From a reply to the program that is tested, or why there is none. Pure: nothing is executed.

Replies hold a fenced block, several, one that is cut off, bare code, or only what comes after the
prompt. What the prompt has before its function (imports, helpers) goes before a reply's function.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

WhyNone = Literal["no_code", "thinking_only"]
Shape = Literal["fence", "raw", "continuation"]

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_PYTHON = re.compile(r"(py|python|ipython)?[\d.]*", re.I)
_CODE_STARTS = re.compile(
    r"^(from\s+\w[\w.]*\s+import\b|import\s+\w|def\s+\w|async\s+def\s|class\s+\w|@\w)"
)
_FUTURE = re.compile(r"^from __future__ import .*\n?", re.M)
_TRIES = 200
_WORK = 2_000_000
"""At most so many cuts, and characters compiled, in search of the longest start that compiles."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a reply amounts to."""

    program: str | None
    """Source to be tested; it need not compile. None: there is none, `why_none` says why."""
    why_none: WhyNone | None = None
    """`thinking_only`: reasoning, but no visible content; `no_code`: content without code."""
    truncated: bool = False
    """The reply ended at its token limit; its program, if there is one, is tested all the same."""
    shape: Shape | None = None
    """How the code stood in the reply."""


def extract(
    prompt: str,
    reply: str,
    finish_reason: str | None = None,
    reasoning: str = "",
    entry_point: str | None = None,
) -> Extraction:
    """The program a reply to `prompt` amounts to.

    prompt: the problem's own source, without an instruction around it.
    entry_point: the function asked for; by default the last that `prompt` defines.
    """
    truncated = finish_reason == "length"
    visible, thought = _without_thinking(reply)
    if not visible.strip():
        thinking = bool(reasoning.strip() or thought)
        return Extraction(None, "thinking_only" if thinking else "no_code", truncated)
    name = entry_point or _last_function(prompt)
    found = _program(prompt, visible.replace("\r\n", "\n"), name)
    if found is None:
        return Extraction(None, "no_code", truncated)
    shape, program = found
    return Extraction(program, truncated=truncated, shape=shape)


def preamble(prompt: str, entry_point: str) -> str:
    """What stands in the prompt before the entry point: imports, helpers, constants."""
    lines = prompt.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if re.match(rf"(async\s+)?def\s+{re.escape(entry_point)}\b", line):
            while number and lines[number - 1].startswith("@"):
                number -= 1
            return "".join(lines[:number])
    return ""


def _without_thinking(reply: str) -> tuple[str, bool]:
    """The reply without a <think> block that no parser took out, and whether there was one."""
    before, opened, rest = reply.partition("<think>")
    if "</think>" in reply:
        # Without the opening tag, the prompt's template had it.
        after = reply.rpartition("</think>")[2]
        return (before + after if opened and "</think>" in rest else after), True
    if opened and not before.strip():  # never closed
        return "", True
    return reply, False


def _last_function(prompt: str) -> str:
    names = re.findall(r"^(?:async\s+)?def\s+(\w+)", prompt, re.M)
    return names[-1] if names else ""


def _program(prompt: str, reply: str, name: str) -> tuple[Shape, str] | None:
    fences = [code for tag, code in _fences(reply) if _is_python(tag) or _defines(code, name)]
    whole = [code for code in fences if _defines(code, name)]
    if whole:
        # A block that only repeats the prompt has its function, but no body.
        code = next((code for code in whole if _has_body(code, name)), whole[0])
        return "fence", _assembled(prompt, name, _longest_that_compiles(code, name))
    # The text up to the first fence: a fence may close what the prompt had opened.
    outside = _before_first_fence(reply)
    raw = _raw_code(outside, name)
    if raw is not None:
        return "raw", _assembled(prompt, name, raw)
    if not fences:
        continued = _continuation(prompt, outside)
        return None if continued is None else ("continuation", continued)
    continued = _continuation(prompt, outside)
    for code in fences:
        continued = continued or _continuation(prompt, code)
        if continued is not None:
            return "continuation", continued
        if code.strip():
            return "fence", _assembled(prompt, name, code)
    return None


def _fences(reply: str) -> Iterator[tuple[str, str]]:
    """(tag, code) of each fenced block; one that is not closed reaches to the end."""
    opened: re.Match[str] | None = None
    lines: list[str] = []
    for line in reply.split("\n"):
        match = _FENCE.match(line)
        if opened is None:
            if match:
                opened, lines = match, []
            continue
        if match and _closes(match, opened):
            yield opened["info"].strip(), _tidy(lines, opened["indent"])
            opened = None
        elif match and match["info"].strip() and _is_python(match["info"]):
            # The block before was never closed.
            yield opened["info"].strip(), _tidy(lines, opened["indent"])
            opened, lines = match, []
        elif line.rstrip().endswith(opened["marks"]):
            lines.append(line.rstrip().removesuffix(opened["marks"]))
            yield opened["info"].strip(), _tidy(lines, opened["indent"])
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        yield opened["info"].strip(), _tidy(lines, opened["indent"])


def _closes(match: re.Match[str], opened: re.Match[str]) -> bool:
    same = match["marks"][0] == opened["marks"][0]
    return same and len(match["marks"]) >= len(opened["marks"]) and not match["info"].strip()


def _is_python(info: str) -> bool:
    """`py`, `Python3`, `python3.11 title=…`, `{.python}`, or nothing at all."""
    word = re.split(r"[\s:,}]", info.strip().lstrip("{."), maxsplit=1)[0]
    return _PYTHON.fullmatch(word) is not None


def _tidy(lines: list[str], indent: str) -> str:
    """A block in a list is indented as its fence is; one that begins a program, as a whole."""
    code = "\n".join(line.removeprefix(indent) for line in lines) + "\n"
    first = next((line for line in lines if line.strip()), "")
    return textwrap.dedent(code) if _CODE_STARTS.match(first.strip()) else code


def _before_first_fence(reply: str) -> str:
    lines = reply.split("\n")
    end = next((n for n, line in enumerate(lines) if _FENCE.match(line)), len(lines))
    return "\n".join(lines[:end])


def _raw_code(text: str, name: str) -> str | None:
    """Bare code that defines the function, without the prose around it."""
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if not _CODE_STARTS.match(line):
            continue
        code = "\n".join(lines[start:]) + "\n"
        if not _defines(code, name):
            return None
        longest = _longest_that_compiles(code, name)
        # Prose may begin with a word of Python's: "import taxes are …".
        if _parsed(longest) is not None or start == len(lines) - 1:
            return longest
        if line.startswith(("def", "async", "@", "class")):
            return longest
    return None


def _continuation(prompt: str, text: str) -> str | None:
    """The prompt with `text` as its function's body; None if that is no code."""
    body = text.strip("\n")
    if not body.strip():
        return None
    first, _, rest = body.partition("\n")
    indented = textwrap.indent(body, "    ")
    # As it is; with the first line's indentation restored, which servers strip; a level deeper.
    variants = [body, f"    {first.strip()}\n{rest}", indented]
    is_indented = first[:1] in (" ", "\t")
    head = prompt if prompt.endswith("\n") else prompt + "\n"
    found = [_compiling_start(v, head) for v in (variants if is_indented else variants[1:])]
    bodies = [v for v in found if v and _is_body(v, needs_return=not is_indented)]
    if bodies:
        return head + max(bodies, key=lambda kept: kept.rstrip().count("\n"))
    # Cut off or wrong, but code by its look: it is tested as it stands, and fails.
    if is_indented and re.match(r"\s+(return|for|while|if|\w+\s*=)\b", first):
        return head + body + "\n"
    return None


def _is_body(body: str, needs_return: bool) -> bool:
    """Holds a statement that prose is not: "Sure" parses as a name, "Note: this" as annotated.

    needs_return: what was not indented is a function's body only if it returns something.
    """
    tree = _parsed("def f():\n" + body)
    if tree is None:
        return False
    inner = list(ast.iter_child_nodes(tree.body[0]))
    while inner:
        node = inner.pop()
        if isinstance(node, ast.Return | ast.Yield):
            return True
        said = isinstance(node, ast.Expr | ast.AnnAssign) or not isinstance(node, ast.stmt)
        if not needs_return and not said:
            return True
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            inner += ast.iter_child_nodes(node)
    return False


def _assembled(prompt: str, name: str, code: str) -> str:
    """The prompt's preamble, then the code; `from __future__` stays at the very top."""
    future = "".join(line.rstrip("\n") + "\n" for line in _FUTURE.findall(code))
    before = preamble(prompt, name)
    return f"{future}{before}\n{_FUTURE.sub('', code)}" if before.strip() else code


def _longest_that_compiles(code: str, name: str) -> str:
    """Without the end that does not compile, if the function is whole before it; else as it is."""
    kept = _compiling_start(code)
    return code if kept is None or not _has_body(kept, name) else kept


def _compiling_start(text: str, head: str = "") -> str | None:
    """The most lines of `text`, at least one, that compile after `head`; None if none do."""
    lines = text.split("\n")
    above, end = head.count("\n"), len(lines)
    for _ in range(min(_TRIES, 1 + _WORK // (1 + len(head) + len(text)))):
        kept = "\n".join(lines[:end]) + "\n"
        fault = _fault(head + kept)
        if fault is None:
            return kept
        # What is wrong in a line is wrong in every start that holds it.
        end = min(end - 1, fault - above - 1) if fault else end - 1
        if end < 1:
            return None
    return None


def _defines(code: str, name: str) -> bool:
    """At the top level, by a def or by assignment; by its look where the code does not compile."""
    tree = _parsed(code)
    if tree is None:
        return bool(re.search(rf"^(async\s+)?def\s+{re.escape(name)}\b", code, re.M))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == name:
                return True
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            return True
    return False


def _has_body(code: str, name: str) -> bool:
    """More than a docstring, imports, `pass` and `...`; True where the code does not compile."""
    tree = _parsed(code)
    if tree is None:
        return True
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    if not functions:
        return _defines(code, name)
    return not all(
        isinstance(node, ast.Pass | ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in functions[-1].body
    )


def _parsed(code: str) -> ast.Module | None:
    """The tree of code that compiles, more than parses: `return` in its place."""
    if _fault(code) is not None:
        return None
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(code)


def _fault(code: str) -> int | None:
    """None if it compiles, else the line that is at fault, from 1; 0 where that is not told."""
    try:
        # Warnings of a reply's odd escapes are not ours to print.
        with warnings.catch_warnings(action="ignore"):
            compile(code, "<reply>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return 0
    return None
