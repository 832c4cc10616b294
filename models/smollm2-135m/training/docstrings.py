"""Signatures and docstrings of Python functions that are installed here, as prompts.

The sources are parsed, never imported. Each prompt is a function's signature and the beginning
of its docstring (summary and, where there are some, interpreter examples).
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Permissively licensed (PSF, BSD, MIT) and rich in small documented functions.
PACKAGES = (
    "networkx",
    "sympy",
    "numpy",
    "scipy",
    "mpmath",
    "sortedcontainers",
    "fontTools",
    "pandas",
    "pygments",
    "docstring_parser",
    "packaging",
    "requests",
    "rich",
    "click",
)
SKIPPED_PARTS = {
    "test",
    "tests",
    "testing",
    "idlelib",
    "lib2to3",
    "site-packages",
    "encodings",
    "turtledemo",
    "ensurepip",
    "distutils",
    "_vendor",
}
MAX_DOC_CHARS = 600


def source_files() -> Iterator[tuple[str, Path]]:
    """(origin, path) of each source file: "stdlib" or the name of the package."""
    paths = sysconfig.get_paths()
    roots = [("stdlib", Path(paths["stdlib"]))]
    roots += [(name, Path(paths["purelib"]) / name) for name in PACKAGES]
    for origin, root in roots:
        for path in sorted(root.rglob("*.py")):
            if not SKIPPED_PARTS & set(path.relative_to(root).parts):
                yield origin, path


def _is_prose(paragraph: list[str]) -> bool:
    """Whether a paragraph is plain text rather than a heading, a list or a field."""
    text = " ".join(paragraph)
    return (
        len(text) > 30
        and text[0].isalpha()
        and not any(mark in text for mark in ("---", "===", "::", ":param", ">>>", "|", " : "))
    )


def _shorten(doc: str, paragraphs: int) -> str | None:
    """The first paragraphs and the first few interpreter examples, or None if unusable."""
    lines = doc.expandtabs().splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() and summary:
            break
        if line.strip():
            summary.append(line.strip())
    if not summary or summary[0].startswith((".. ", ">>>", ":")):
        return None
    if paragraphs > 1:
        blocks = [b.splitlines() for b in "\n".join(map(str.strip, lines)).split("\n\n")]
        for block in [b for b in blocks if b][1:paragraphs]:
            if not _is_prose(block):
                break
            summary = [*summary[:6], *block[:5]]
    examples: list[str] = []
    in_example = False
    for line in lines:
        text = line.strip()
        in_example = text.startswith(">>>") or (in_example and bool(text))
        if in_example:
            examples.append(text)
        if len(examples) >= 8:
            break
    body = summary[: 6 * paragraphs] + (["", *examples] if examples else [])
    text = "\n".join(body)
    return text if 30 <= len(text) <= MAX_DOC_CHARS else None


def function_prompts(source: str, paragraphs: int = 1) -> Iterator[str]:
    """Prompts from one file: top-level functions with a docstring and a short signature."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        doc = ast.get_docstring(node)
        short = _shorten(doc, paragraphs) if doc else None
        signature = f"def {node.name}({ast.unparse(node.args)})"
        if short is None or len(signature) > 100 or '"""' in short or "\\" in short:
            continue
        if node.returns is not None:
            signature += f" -> {ast.unparse(node.returns)}"
        body = "\n".join("    " + line if line else "" for line in short.splitlines())
        yield f'{signature}:\n    """{body.lstrip()}\n    """\n'


def harvest(paragraphs: int = 1) -> Iterator[tuple[str, str]]:
    """(origin, prompt) of every usable function, in the order of the file system's names."""
    for origin, path in source_files():
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for prompt in function_prompts(source, paragraphs):
            yield origin, prompt
