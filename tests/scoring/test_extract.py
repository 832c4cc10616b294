from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.scoring.extract import Extraction, extract, preamble

PROMPT = '''from typing import List


def helper(x: int) -> int:
    return x + 1


def raised(xs: List[int]) -> List[int]:
    """ Each of xs and one.
    >>> raised([1])
    [2]
    """
'''
BODY = "    return [helper(x) for x in xs]\n"
FUNCTION = f"def raised(xs: List[int]) -> List[int]:\n{BODY}"
BARE = "def raised(xs):\n    return [x + 1 for x in xs]\n"
STUB = 'def raised(xs):\n    """ Each of xs and one. """\n'
LOOP = "    result = []\n    for x in xs:\n        result.append(x + 1)\n    return result\n"
QUOTING = "def raised(xs):\n    '''\n```\n'''\n    return [x + 1 for x in xs]\n"
WRONG = "def raised(xs):\n    return xs\n"


def answer(program: str | None) -> Any:
    """What the program makes of [1, 2]; the programs are this file's own."""
    assert program is not None
    space: dict[str, Any] = {}
    exec(compile(program, "<test>", "exec", dont_inherit=True), space)
    return space["raised"]([1, 2])


RIGHT = {
    "a fence": f"```python\n{BARE}```",
    "a fence with text around it": f"Sure! Here it is:\n\n```python\n{BARE}```\n\nIt adds one.",
    "a fence without the prompt's imports and helpers": f"```python\n{FUNCTION}```",
    "a fence that repeats the whole prompt": f"```python\n{PROMPT}{BODY}```",
    "tag py": f"```py\n{BARE}```",
    "tag Python3": f"```Python3\n{BARE}```",
    "tag python3.11": f"```python3.11\n{BARE}```",
    "tag with attributes": f"```python title='a.py'\n{BARE}```",
    "tag in braces": f"``` {{.python}}\n{BARE}```",
    "no tag": f"```\n{BARE}```",
    "a strange tag": f"```code\n{BARE}```",
    "tildes": f"~~~python\n{BARE}~~~",
    "a longer fence": f"````python\n{BARE}````",
    "backticks within tildes": f"~~~~py\n{QUOTING}~~~~",
    "carriage returns": f"```python\n{BARE}```".replace("\n", "\r\n"),
    "a fence in a list": "1. So:\n\n" + textwrap.indent(f"```python\n{BARE}```\n", "   "),
    "code indented as a whole": "```python\n" + textwrap.indent(BARE, "    ") + "```",
    "a fence that is never closed": f"```python\n{BARE}",
    "a fence closed at the end of a line": f"```python\n{BARE.rstrip()}```\nDone.",
    "a fence closed by the next one": f"```python\n{STUB}\n```python\n{BARE}```",
    "usage in the first fence": f"```python\nprint(raised([1]))\n```\nwith\n```python\n{BARE}```",
    "a shell command first": f"```bash\npip install numpy\n```\n\n```python\n{BARE}```",
    "the prompt first, then the answer": f"```python\n{PROMPT}```\nbecomes\n```python\n{BARE}```",
    "usage in a later fence": f"```python\n{BARE}```\n```python\nraised = None\n```",
    "the first of two": f"```python\n{BARE}```\nor, wrongly\n```python\n{WRONG}```",
    "raw code": BARE,
    "raw code with text before": f"Here is the function:\n\n{FUNCTION}",
    "raw code with text after": f"{FUNCTION}\nThis adds one to each.",
    "raw code with imports": f"import math\n\n{BARE}",
    "prose that begins like an import": f"import taxes are high.\n\n{BARE}",
    "raw code, then a fence's end": f"{BARE}```\nThis adds one.",
    "the body with its indentation": BODY,
    "the body without its first indentation": LOOP.strip(),
    "the body without any indentation": textwrap.dedent(LOOP),
    "the body, then more code": f"{BODY}\n\nif __name__ == '__main__':\n    print(raised([1]))\n",
    "the body, then prose": f"{BODY}\nThat is all there is to it.",
    "the body, then a fence's end": f"{BODY}```\n\nThis adds one.",
    "the stripped body, then a fence's end": f"{BODY.strip()}\n```\n\nThis adds one.",
    "the body in a fence": f"```python\n{BODY}```",
    "the body in a fence without indentation": "```python\nreturn [helper(x) for x in xs]\n```",
    "a body of which the first line alone would do": (
        "```python\nif not xs: return []\nreturn [helper(x) for x in xs]\n```"
    ),
    "a stub with an import, then the answer": (
        f"```py\ndef raised(xs):\n    import math\n    'doc'\n```\n```py\n{BARE}```"
    ),
    "a lambda": "```python\nraised = lambda xs: [x + 1 for x in xs]\n```",
    "from __future__": f"```python\nfrom __future__ import annotations\n{FUNCTION}```",
    "a decorator": f"```python\nimport functools\n@functools.cache\ndef one(): return 1\n{BARE}```",
    "thinking that no parser took out": f"<think>\n```py\n{WRONG}```\n</think>\n```py\n{BARE}```",
    "thinking that the template had opened": f"Hm. raised = 1\n</think>\n\n```python\n{BARE}```",
    "an end that was cut off": f"```python\n{BARE}\nassert raised([1]) == [2\n",
    "a main that is not run": f"```python\n{BARE}\nif __name__ == '__main__':\n    input()\n```",
}  # fmt: skip


@pytest.mark.parametrize("reply", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_reply_becomes_a_program_that_is_right(reply: str) -> None:
    found = extract(PROMPT, reply, "stop")
    assert answer(found.program) == [2, 3], found.program
    assert (found.why_none, found.truncated) == (None, False)


NONE = {
    "prose": "I would add one to each element of the list.",
    "one word": "Sure",
    "what parses as an annotation": "Note: this",
    "another language alone": "```bash\nls -l\n```",
    "an empty fence": "```python\n```",
    "a refusal": "I'm sorry, but I can't help with that.",
    "nothing": "",
    "white space": " \n\t\n",
}


@pytest.mark.parametrize("reply", NONE.values(), ids=NONE.keys())
def test_a_reply_without_code_has_no_program(reply: str) -> None:
    assert extract(PROMPT, reply, "stop") == Extraction(None, "no_code")


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [("", "I should add one"), ("\n", "x"), ("<think>add one", ""), ("<think>a</think>\n", "")],
)
def test_reasoning_without_content_is_told_apart(reply: str, reasoning: str) -> None:
    assert extract(PROMPT, reply, "stop", reasoning) == Extraction(None, "thinking_only")
    assert extract(PROMPT, reply, "length", reasoning).truncated


def test_reasoning_beside_content_does_not_matter() -> None:
    found = extract(PROMPT, f"```python\n{BARE}```", "stop", f"```python\n{WRONG}```")
    assert answer(found.program) == [2, 3]


def test_a_truncated_reply_is_tested_and_marked() -> None:
    whole = extract(PROMPT, f"```python\n{BARE}\nprint(rais", "length")
    assert whole.truncated
    assert answer(whole.program) == [2, 3]
    cut = extract(PROMPT, "```python\ndef raised(xs):\n    return [x +", "length")
    assert cut.truncated
    assert cut.program is not None
    assert "return [x +" in cut.program
    assert extract(PROMPT, "I would", "length") == Extraction(None, "no_code", truncated=True)


def test_code_that_does_not_compile_is_still_a_program() -> None:
    for reply in ("```python\ndef raised(xs)\n    return xs\n```", "    return [x +"):
        found = extract(PROMPT, reply, "stop")
        assert found.program is not None
        assert found.why_none is None


def test_a_method_is_not_the_function_asked_for() -> None:
    reply = "```python\nclass Solution:\n    def raised(self, xs):\n        return [2, 3]\n```"
    found = extract(PROMPT, reply, "stop")
    assert found.shape == "fence"
    with pytest.raises(KeyError):
        answer(found.program)


def test_the_shape_is_told() -> None:
    assert extract(PROMPT, f"```\n{BARE}```").shape == "fence"
    assert extract(PROMPT, BARE).shape == "raw"
    assert extract(PROMPT, BODY).shape == "continuation"


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    extract(PROMPT, f"```python\nopen({str(target)!r}, 'w')\n{BARE}```")
    extract(PROMPT, f"open({str(target)!r}, 'w')\n{BARE}")
    assert not target.exists()


def test_the_preamble_ends_before_the_function_and_its_decorators() -> None:
    assert preamble(PROMPT, "raised") == PROMPT[: PROMPT.index("def raised")]
    assert preamble("import a\n@a.b\n@a.c\ndef f():\n    1\n", "f") == "import a\n"
    assert preamble(PROMPT, "other") == ""


def test_long_replies_take_no_long_time() -> None:
    started = time.monotonic()
    for part in (
        "x (\n",
        "    (\n",
        "    x = 1 +\n",
        "```python\n",
        "(",
        "<think>",
        "x\n",
        '"""\n',
    ):
        extract(PROMPT, part * 5000, "length")
        extract(PROMPT, f"```python\ndef raised(xs):\n{part * 5000}", "length")
    assert time.monotonic() - started < 20
