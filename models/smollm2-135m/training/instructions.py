"""General instructions, written by us: coding in several languages, explanations, small maths.

They keep the heads from knowing nothing but "complete this function".
"""

from __future__ import annotations

import random

LANGUAGES = (
    "Python",
    "Python",
    "Python",
    "JavaScript",
    "Java",
    "C++",
    "C",
    "Go",
    "Rust",
    "TypeScript",
    "Bash",
    "SQL",
    "Ruby",
)
THINGS = (
    "a stack with push and pop",
    "a queue based on two stacks",
    "binary search",
    "bubble sort",
    "merge sort",
    "quick sort",
    "a linked list",
    "a binary tree traversal",
    "a word counter",
    "the Fibonacci sequence",
    "the factorial of a number",
    "a prime sieve",
    "a simple calculator",
    "a temperature converter",
    "reading a CSV file",
    "writing a JSON file",
    "a bank account class",
    "a shopping cart",
    "a to-do list",
    "a rectangle class with area and perimeter",
    "a matrix multiplication",
    "a least-recently-used cache",
    "matching brackets",
    "a retry decorator",
    "a logger",
    "a rate limiter",
    "parsing a date",
    "a number guessing game",
    "a random password generator",
    "an anagram check",
    "counting vowels",
    "a phone book",
    "removing duplicates from a list",
    "the greatest common divisor",
    "a breadth-first search",
    "a depth-first search",
    "a histogram of letters",
    "an email validation with a regex",
    "reversing a string",
    "a timer context manager",
    "an HTTP GET request with error handling",
)
CONCEPTS = (
    "recursion",
    "a hash table",
    "a pointer",
    "garbage collection",
    "a closure",
    "inheritance",
    "polymorphism",
    "a generator",
    "a decorator",
    "a mutex",
    "a deadlock",
    "an index in a database",
    "a REST API",
    "version control",
    "unit testing",
    "continuous integration",
    "a linked list",
    "time complexity",
    "a binary tree",
    "a compiler",
    "an interpreter",
    "type hints",
    "list comprehensions",
    "exception handling",
    "a virtual environment",
    "caching",
    "a load balancer",
    "a foreign key",
    "encryption",
    "a regular expression",
    "photosynthesis",
    "gravity",
    "the water cycle",
    "inflation",
    "a neural network",
    "overfitting",
    "probability",
    "the median",
    "a prime number",
    "compound interest",
    "democracy",
    "an ecosystem",
)
CODE_TEMPLATES = (
    "Write a {l} program for {t}.",
    "Implement {t} in {l}.",
    "Show me {t} in {l} with comments.",
    "Write {l} code for {t} and explain how it works.",
    "How do I write {t} in {l}?",
    "Give a short {l} example of {t}.",
    "Write a {l} function for {t} with an example of its use.",
    "Write unit tests in Python for {t}.",
)
CONCEPT_TEMPLATES = (
    "Explain {c} in simple terms.",
    "What is {c}? Give an example.",
    "Why is {c} useful? Answer in a few sentences.",
    "Explain {c} to a beginner, step by step.",
    "List three facts about {c}.",
    "Write a short paragraph about {c}.",
    "What are the advantages and disadvantages of {c}?",
)
BROKEN = (
    ("def mean(xs):\n    return sum(xs) / len(x)", "raises a NameError"),
    ("def last(xs):\n    return xs[len(xs)]", "raises an IndexError"),
    ("def is_even(n):\n    return n % 2 == 1", "returns the wrong answer"),
    ("for i in range(10)\n    print(i)", "has a syntax error"),
    ("def add(item, bag=[]):\n    bag.append(item)\n    return bag", "keeps old items"),
    ("def fact(n):\n    return n * fact(n - 1)", "never stops"),
    ("total = 0\nfor x in [1, 2, 3]:\n    total = x\nprint(total)", "prints 3 instead of 6"),
    (
        "def longest(words):\n    best = ''\n    for w in words:\n        if len(w) < len(best):\n"
        "            best = w\n    return best",
        "always returns an empty string",
    ),
    ("d = {'a': 1}\nprint(d['b'])", "raises a KeyError"),
    ("def area(r):\n    return 2 * 3.14159 * r", "computes the wrong thing"),
    ("x = input()\nprint(x + 1)", "raises a TypeError"),
    (
        "def find(xs, y):\n    for i, x in enumerate(xs):\n        if x == y:\n"
        "            return i\n        else:\n            return -1",
        "misses most elements",
    ),
)
FIX_TEMPLATES = (
    "Fix this Python code, it {b}:\n\n```python\n{s}\n```",
    "The following code {b}. Why, and how do I repair it?\n\n```python\n{s}\n```",
    "Refactor this code and correct the bug (it {b}).\n\n```python\n{s}\n```",
    "Explain what this code does.\n\n```python\n{s}\n```",
    "Add type hints and a docstring to this code.\n\n```python\n{s}\n```",
)
MATHS = (
    "A shop sells {a} apples at {b} cents each. How much do they cost together?",
    "What is {a} times {b}? Show the steps.",
    "A train travels {a} km in {b} hours. How fast is it?",
    "If x + {a} = {b}, what is x?",
    "A rectangle is {a} cm long and {b} cm wide. Find its area.",
    "Anna has {a} coins and gives away a third of them, then finds {b}. How many has she now?",
    "What is the sum of all integers from {a} to {b}?",
    "Convert {a} degrees Celsius to Fahrenheit.",
    "List the prime factors of {a}.",
    "What is {a} percent of {b}?",
)


def make_instruction(rng: random.Random) -> str:
    """One general instruction: half of them about code."""
    roll = rng.random()
    if roll < 0.5:
        return rng.choice(CODE_TEMPLATES).format(l=rng.choice(LANGUAGES), t=rng.choice(THINGS))
    if roll < 0.75:
        return rng.choice(CONCEPT_TEMPLATES).format(c=rng.choice(CONCEPTS))
    if roll < 0.9:
        source, bug = rng.choice(BROKEN)
        return rng.choice(FIX_TEMPLATES).format(s=source, b=bug)
    return rng.choice(MATHS).format(a=rng.randint(3, 90), b=rng.randint(2, 60))
