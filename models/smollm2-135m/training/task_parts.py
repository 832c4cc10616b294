"""The parts that tasks are composed of: tables of filters, changes, reductions and operations.

A row holds a name, a phrase or a sentence, for some tables the type of the result, and the
function that computes the values of the examples.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

Fn = Callable[..., Any]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def _digit_sum(n: int) -> int:
    return sum(int(d) for d in str(abs(n)))


def _divisor_count(n: int) -> int:
    n = abs(n)
    return sum(1 for d in range(1, n + 1) if n % d == 0)


NUMBER_FILTERS: list[tuple[str, str, Fn]] = [
    ("", "numbers", lambda x: True),
    ("", "elements", lambda x: True),
    ("even", "even numbers", lambda x: x % 2 == 0),
    ("odd", "odd numbers", lambda x: x % 2 == 1),
    ("positive", "positive numbers", lambda x: x > 0),
    ("negative", "negative numbers", lambda x: x < 0),
    ("nonzero", "nonzero values", lambda x: x != 0),
    ("prime", "prime numbers", _is_prime),
    ("composite", "composite numbers", lambda x: x > 3 and not _is_prime(x)),
    ("square", "perfect squares", lambda x: x >= 0 and math.isqrt(x) ** 2 == x),
    ("two_digit", "two-digit numbers", lambda x: 9 < abs(x) < 100),
    ("one_digit", "single-digit values", lambda x: abs(x) < 10),
    ("small", "numbers below ten", lambda x: x < 10),
    ("large", "numbers of at least twenty", lambda x: x >= 20),
    ("multiples_of_three", "multiples of three", lambda x: x % 3 == 0),
    ("multiples_of_four", "multiples of 4", lambda x: x % 4 == 0),
    ("multiples_of_five", "multiples of 5", lambda x: x % 5 == 0),
    ("multiples_of_seven", "multiples of 7", lambda x: x % 7 == 0),
    ("not_divisible_by_three", "numbers that 3 does not divide", lambda x: x % 3 != 0),
    ("ending_in_one", "numbers whose last digit is 1", lambda x: abs(x) % 10 == 1),
    ("odd_digit_sum", "numbers with an odd digit sum", lambda x: _digit_sum(x) % 2 == 1),
]

NUMBER_MAPS: list[tuple[str, str, Fn]] = [
    ("", "", lambda x: x),
    ("", "", lambda x: x),
    ("squared", "squares of the", lambda x: x * x),
    ("cubed", "cubes of the", lambda x: x**3),
    ("doubled", "doubles of the", lambda x: 2 * x),
    ("tripled", "triples of the", lambda x: 3 * x),
    ("halved", "halves (rounded down) of the", lambda x: x // 2),
    ("absolute", "absolute values of the", abs),
    ("negated", "negations of the", lambda x: -x),
    ("incremented", "successors of the", lambda x: x + 1),
    ("decremented", "predecessors of the", lambda x: x - 1),
    ("digit_sums", "digit sums of the", _digit_sum),
    ("last_digits", "last digits of the", lambda x: abs(x) % 10),
    ("remainders_by_three", "remainders modulo 3 of the", lambda x: x % 3),
    ("divisor_counts", "divisor counts of the", _divisor_count),
    ("digit_counts", "numbers of digits of the", lambda x: len(str(abs(x)))),
]


def _product(values: Sequence[int]) -> int:
    return math.prod(values)


def _running(values: Sequence[int]) -> list[int]:
    total, out = 0, []
    for value in values:
        total += value
        out.append(total)
    return out


def _unique(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _second_largest(values: Sequence[int]) -> int | None:
    distinct = sorted(set(values))
    return distinct[-2] if len(distinct) > 1 else None


def _longest_rise(values: Sequence[int]) -> int:
    best = length = 0
    previous = None
    for value in values:
        length = length + 1 if previous is not None and value > previous else 1
        best = max(best, length)
        previous = value
    return best


NUMBER_REDUCERS: list[tuple[str, str, str, Fn]] = [
    ("sum", "sum of", "int", sum),
    ("total", "total of", "int", sum),
    ("product", "product of", "int", _product),
    ("max", "largest of", "int", lambda v: max(v, default=None)),
    ("min", "smallest of", "int", lambda v: min(v, default=None)),
    ("count", "number of", "int", len),
    ("average", "average of", "float", lambda v: round(sum(v) / len(v), 2) if v else 0.0),
    (
        "spread",
        "difference between the largest and the smallest of",
        "int",
        lambda v: max(v) - min(v) if v else 0,
    ),
    ("list", "list of", "List[int]", list),
    ("get", "list of", "List[int]", list),
    ("sorted", "sorted list of", "List[int]", sorted),
    ("descending", "list, in descending order, of", "List[int]", lambda v: sorted(v, reverse=True)),
    ("reversed", "list, in reverse order, of", "List[int]", lambda v: list(v)[::-1]),
    ("unique", "list without repetitions of", "List[int]", _unique),
    ("distinct_count", "number of distinct values among", "int", lambda v: len(set(v))),
    ("running_sum", "running totals of", "List[int]", _running),
    (
        "second_largest",
        "second largest distinct value (None if there is none) of",
        "int",
        _second_largest,
    ),
    ("first", "first (None if there is none) of", "int", lambda v: v[0] if v else None),
    ("last", "last (None if there is none) of", "int", lambda v: v[-1] if v else None),
    (
        "every_other",
        "list of every second one, starting with the first, of",
        "List[int]",
        lambda v: list(v)[::2],
    ),
    ("longest_rise", "length of the longest strictly increasing run of", "int", _longest_rise),
    (
        "median",
        "middle value (the lower one of two, None if empty) after sorting of",
        "int",
        lambda v: sorted(v)[(len(v) - 1) // 2] if v else None,
    ),
    (
        "alternating_sum",
        "alternating sum (first minus second plus third and so on) of",
        "int",
        lambda v: sum(x if i % 2 == 0 else -x for i, x in enumerate(v)),
    ),
    ("any", "truth value of whether there are any of", "bool", lambda v: bool(v)),
]

WORD_FILTERS: list[tuple[str, str, Fn]] = [
    ("", "words", lambda w: True),
    ("", "strings", lambda w: True),
    ("long", "words of more than four letters", lambda w: len(w) > 4),
    ("short", "words of at most three letters", lambda w: len(w) <= 3),
    ("even_length", "words of even length", lambda w: len(w) % 2 == 0),
    ("odd_length", "words of odd length", lambda w: len(w) % 2 == 1),
    ("vowel_initial", "words that begin with a vowel", lambda w: w[:1].lower() in set("aeiou")),
    (
        "consonant_final",
        "words whose last letter is a consonant",
        lambda w: w[-1:].isalpha() and w[-1:].lower() not in set("aeiou"),
    ),
    ("palindromic", "palindromes", lambda w: w == w[::-1]),
    ("with_e", "words containing the letter e", lambda w: "e" in w.lower()),
    ("without_a", "words that do not contain the letter a", lambda w: "a" not in w.lower()),
    ("repeated_letter", "words in which some letter occurs twice", lambda w: len(set(w)) < len(w)),
    ("capitalized", "words with a capital first letter", lambda w: w[:1].isupper()),
]

WORD_MAPS: list[tuple[str, str, Fn]] = [
    ("", "", lambda w: w),
    ("", "", lambda w: w),
    ("upper", "upper-case forms of the", str.upper),
    ("lower", "lower-case forms of the", str.lower),
    ("reversed", "reversals of the", lambda w: w[::-1]),
    ("title", "capitalised forms of the", str.capitalize),
    ("initials", "first letters of the", lambda w: w[:1]),
    ("endings", "last letters of the", lambda w: w[-1:]),
    ("trimmed", "first three letters of the", lambda w: w[:3]),
    (
        "without_vowels",
        "vowel-free forms of the",
        lambda w: "".join(c for c in w if c.lower() not in "aeiou"),
    ),
    ("sorted_letters", "alphabetically sorted letters of the", lambda w: "".join(sorted(w))),
    ("swapped", "case-swapped forms of the", str.swapcase),
]

WORD_REDUCERS: list[tuple[str, str, str, Fn]] = [
    ("list", "list of", "List[str]", list),
    ("get", "list of", "List[str]", list),
    ("count", "number of", "int", len),
    ("join", "string joining with hyphens", "str", "-".join),
    ("concat", "concatenation of", "str", "".join),
    ("joined", "space-separated string of", "str", " ".join),
    (
        "longest",
        "longest (the first one on ties, None if there is none) of",
        "str",
        lambda v: max(v, key=len, default=None),
    ),
    (
        "shortest",
        "shortest (the first one on ties, None if there is none) of",
        "str",
        lambda v: min(v, key=len, default=None),
    ),
    ("sorted", "alphabetically sorted list of", "List[str]", sorted),
    ("by_length", "list, ordered by length, of", "List[str]", lambda v: sorted(v, key=len)),
    ("lengths", "lengths of", "List[int]", lambda v: [len(w) for w in v]),
    ("total_length", "total number of letters in", "int", lambda v: sum(map(len, v))),
    ("unique", "list without duplicates of", "List[str]", _unique),
    (
        "histogram",
        "dictionary that maps each length to how many there are among",
        "Dict[int, int]",
        lambda v: {k: sum(len(w) == k for w in v) for k in sorted({len(w) for w in v})},
    ),
    (
        "length_of",
        "dictionary from each string to its length for",
        "Dict[str, int]",
        lambda v: {w: len(w) for w in v},
    ),
    ("last", "last (None if there is none) of", "str", lambda v: v[-1] if v else None),
]

CHAR_FILTERS: list[tuple[str, str, Fn]] = [
    ("vowels", "vowels", lambda c: c.lower() in set("aeiou")),
    ("consonants", "consonants", lambda c: c.isalpha() and c.lower() not in set("aeiou")),
    ("digits", "digits", str.isdigit),
    ("letters", "letters", str.isalpha),
    ("uppercase", "upper-case letters", str.isupper),
    ("lowercase", "lower-case letters", str.islower),
    ("spaces", "spaces", lambda c: c == " "),
    ("punctuation", "punctuation marks", lambda c: c in string.punctuation),
    (
        "non_alphanumeric",
        "characters that are neither letters nor digits",
        lambda c: not c.isalnum(),
    ),
    ("early_letters", "letters from a to m", lambda c: "a" <= c.lower() <= "m"),
]


def _char_counts(values: Sequence[str]) -> dict[str, int]:
    return {c: list(values).count(c) for c in dict.fromkeys(values)}


CHAR_REDUCERS: list[tuple[str, str, str, Fn]] = [
    ("count", "Count the {} in the given string.", "int", len),
    ("number_of", "Return how many {} there are in the text.", "int", len),
    ("extract", "Return a string made of only the {} of the input, in order.", "str", "".join),
    ("positions", "", "List[int]", lambda v: v),
    (
        "distinct",
        "Return the sorted list of distinct {} in the string.",
        "List[str]",
        lambda v: sorted(set(v)),
    ),
    (
        "first",
        "Find the first of the {} in the string, or return None if there are none.",
        "str",
        lambda v: v[0] if v else None,
    ),
    (
        "last",
        "Find the last of the {} in the string; return None when there are none.",
        "str",
        lambda v: v[-1] if v else None,
    ),
    ("has", "Check whether the string contains any {}.", "bool", bool),
    (
        "counts_of",
        "Return a dictionary that says how often each of the {} occurs.",
        "Dict[str, int]",
        _char_counts,
    ),
    (
        "most_common",
        "Return the most frequent of the {} (the earliest on ties).",
        "str",
        lambda v: max(dict.fromkeys(v), key=list(v).count, default=None),
    ),
]


def _runs(text: str) -> list[str]:
    runs: list[str] = []
    for char in text:
        if runs and runs[-1][0] == char:
            runs[-1] += char
        else:
            runs.append(char)
    return runs


def _collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


PAIR_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "add_lists",
        "Add the two lists element by element; extra elements are ignored.",
        "List[int]",
        lambda a, b: [x + y for x, y in zip(a, b, strict=False)],
    ),
    (
        "multiply_pairs",
        "Multiply matching elements of the two lists.",
        "List[int]",
        lambda a, b: [x * y for x, y in zip(a, b, strict=False)],
    ),
    (
        "dot",
        "Compute the dot product of the two vectors.",
        "int",
        lambda a, b: sum(x * y for x, y in zip(a, b, strict=False)),
    ),
    (
        "elementwise_max",
        "Keep the larger of each pair of matching elements.",
        "List[int]",
        lambda a, b: [max(x, y) for x, y in zip(a, b, strict=False)],
    ),
    (
        "interleave",
        "Alternate the elements of the two lists until the shorter one ends.",
        "List[int]",
        lambda a, b: [v for p in zip(a, b, strict=False) for v in p],
    ),
    (
        "shared",
        "Return the sorted values that occur in both lists.",
        "List[int]",
        lambda a, b: sorted(set(a) & set(b)),
    ),
    (
        "only_in_first",
        "Return the elements of the first list that the second one lacks.",
        "List[int]",
        lambda a, b: [x for x in a if x not in b],
    ),
    (
        "symmetric_difference",
        "Return the sorted values found in exactly one of the lists.",
        "List[int]",
        lambda a, b: sorted(set(a) ^ set(b)),
    ),
    (
        "count_matches",
        "Count the indices at which both lists hold the same value.",
        "int",
        lambda a, b: sum(x == y for x, y in zip(a, b, strict=False)),
    ),
    (
        "same_multiset",
        "Check if both lists hold the same values, in any order.",
        "bool",
        lambda a, b: sorted(a) == sorted(b),
    ),
    (
        "is_sublist",
        "Check if every element of the first list is also in the second.",
        "bool",
        lambda a, b: set(a) <= set(b),
    ),
    (
        "merge_sorted",
        "Merge both lists into one sorted list.",
        "List[int]",
        lambda a, b: sorted(a + b),
    ),
    (
        "distance",
        "Return the sum of the absolute differences of matching elements.",
        "int",
        lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=False)),
    ),
    (
        "longer",
        "Return the longer list; if both have the same length, return the first.",
        "List[int]",
        lambda a, b: a if len(a) >= len(b) else b,
    ),
    (
        "pairs",
        "Return the list of pairs of matching elements.",
        "List[Tuple[int, int]]",
        lambda a, b: list(zip(a, b, strict=False)),
    ),
]

NUMBER_PAIR_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "power_mod_ten",
        "Return the last digit of a to the power of b.",
        "int",
        lambda a, b: pow(a, b, 10),
    ),
    (
        "common_divisors",
        "Return all common divisors of a and b in ascending order.",
        "List[int]",
        lambda a, b: [d for d in range(1, min(a, b) + 1) if a % d == b % d == 0],
    ),
    (
        "least_common_multiple",
        "Compute the least common multiple of the two numbers.",
        "int",
        math.lcm,
    ),
    (
        "is_multiple",
        "Check if one of the numbers is a multiple of the other.",
        "bool",
        lambda a, b: max(a, b) % min(a, b) == 0,
    ),
    (
        "sum_between",
        "Add up all integers from the smaller argument to the larger one.",
        "int",
        lambda a, b: sum(range(min(a, b), max(a, b) + 1)),
    ),
    (
        "coprime",
        "Check whether the two positive integers have no common factor except 1.",
        "bool",
        lambda a, b: math.gcd(a, b) == 1,
    ),
    (
        "hypotenuse",
        "Compute the hypotenuse of a right triangle, rounded to two decimals.",
        "float",
        lambda a, b: round(math.hypot(a, b), 2),
    ),
    (
        "perimeter",
        "Return the perimeter of a rectangle with the given sides.",
        "int",
        lambda a, b: 2 * (a + b),
    ),
    (
        "digit_overlap",
        "Count the digits that the two numbers have in common.",
        "int",
        lambda a, b: len(set(str(a)) & set(str(b))),
    ),
    (
        "closer_to_ten",
        "Return whichever number is closer to ten; a if they are equally close.",
        "int",
        lambda a, b: a if abs(a - 10) <= abs(b - 10) else b,
    ),
    (
        "clamp_difference",
        "Return a minus b, but never less than zero.",
        "int",
        lambda a, b: max(a - b, 0),
    ),
    (
        "divides_evenly",
        "Return the quotient if b divides a without remainder, else -1.",
        "int",
        lambda a, b: a // b if a % b == 0 else -1,
    ),
]

LIST_ARG_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "count_greater",
        "Count the values that are greater than k.",
        "int",
        lambda v, k: sum(x > k for x in v),
    ),
    (
        "drop_smaller",
        "Remove every value that is smaller than k.",
        "List[int]",
        lambda v, k: [x for x in v if x >= k],
    ),
    (
        "rotate_left",
        "Rotate the list to the left by k places.",
        "List[int]",
        lambda v, k: v[k % len(v) :] + v[: k % len(v)] if v else [],
    ),
    (
        "rotate_right",
        "Move the last k elements to the front of the list.",
        "List[int]",
        lambda v, k: v[-(k % len(v)) :] + v[: -(k % len(v))] if v and k % len(v) else v,
    ),
    (
        "chunk",
        "Split the list into pieces of k elements; the last one may be shorter.",
        "List[List[int]]",
        lambda v, k: [v[i : i + k] for i in range(0, len(v), k)],
    ),
    (
        "take_every",
        "Keep every k-th element, starting with the first one.",
        "List[int]",
        lambda v, k: v[::k],
    ),
    (
        "top",
        "Return the k largest values in descending order.",
        "List[int]",
        lambda v, k: sorted(v, reverse=True)[:k],
    ),
    (
        "bottom",
        "Return the k smallest values in ascending order.",
        "List[int]",
        lambda v, k: sorted(v)[:k],
    ),
    (
        "has_pair_sum",
        "Check if two different elements of the list add up to k.",
        "bool",
        lambda v, k: any(v[i] + v[j] == k for i in range(len(v)) for j in range(i)),
    ),
    ("scale", "Multiply every element by k.", "List[int]", lambda v, k: [x * k for x in v]),
    ("shift", "Add k to each element of the list.", "List[int]", lambda v, k: [x + k for x in v]),
    ("occurrences", "Count how many times k occurs in the list.", "int", lambda v, k: v.count(k)),
    (
        "last_index",
        "Return the index of the last occurrence of k, or -1 if it is absent.",
        "int",
        lambda v, k: max((i for i, x in enumerate(v) if x == k), default=-1),
    ),
    (
        "window_sums",
        "Return the sums of all windows of k neighbouring elements.",
        "List[int]",
        lambda v, k: [sum(v[i : i + k]) for i in range(len(v) - k + 1)],
    ),
    (
        "closest",
        "Return the element that is nearest to k, or None for an empty list.",
        "int",
        lambda v, k: min(v, key=lambda x: abs(x - k), default=None),
    ),
    (
        "remove_all",
        "Delete all occurrences of k from the list.",
        "List[int]",
        lambda v, k: [x for x in v if x != k],
    ),
    (
        "insert_between",
        "Put the value k between every two neighbours.",
        "List[int]",
        lambda v, k: [y for x in v for y in (x, k)][:-1],
    ),
    (
        "divisible",
        "Return those elements that k divides.",
        "List[int]",
        lambda v, k: [x for x in v if x % k == 0],
    ),
    (
        "repeat_each",
        "Repeat each element k times in a row.",
        "List[int]",
        lambda v, k: [x for x in v for _ in range(k)],
    ),
    (
        "split_at",
        "Return the values below k followed by the remaining ones.",
        "List[int]",
        lambda v, k: [x for x in v if x < k] + [x for x in v if x >= k],
    ),
]

TEXT_ARG_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "repeat_letters",
        "Repeat each character of the string n times.",
        "str",
        lambda s, n: "".join(c * n for c in s),
    ),
    (
        "every_nth",
        "Return every n-th character, beginning with the first.",
        "str",
        lambda s, n: s[::n],
    ),
    (
        "shift_letters",
        "Replace each lower-case letter by the one n places later, wrapping at z.",
        "str",
        lambda s, n: "".join(chr((ord(c) - 97 + n) % 26 + 97) if "a" <= c <= "z" else c for c in s),
    ),
    (
        "truncate",
        "Cut the string after n characters and add three dots if it was longer.",
        "str",
        lambda s, n: s if len(s) <= n else s[:n] + "...",
    ),
    (
        "rotate",
        "Move the first n characters of the string to its end.",
        "str",
        lambda s, n: s[n % len(s) :] + s[: n % len(s)] if s else s,
    ),
    (
        "long_words",
        "Return the words of the sentence that have more than n letters.",
        "List[str]",
        lambda s, n: [w for w in s.split() if len(w) > n],
    ),
    (
        "split_every",
        "Split the string into parts of length n.",
        "List[str]",
        lambda s, n: [s[i : i + n] for i in range(0, len(s), n)],
    ),
    (
        "last_chars",
        "Return the last n characters of the string in upper case.",
        "str",
        lambda s, n: s[-n:].upper(),
    ),
    (
        "nth_word",
        "Return the n-th word (counting from 1) or an empty string.",
        "str",
        lambda s, n: s.split()[n - 1] if n <= len(s.split()) else "",
    ),
    (
        "pad",
        "Pad the string with stars on the left up to the length n.",
        "str",
        lambda s, n: s.rjust(n, "*"),
    ),
    (
        "frequent_letters",
        "Return the sorted characters that occur at least n times.",
        "List[str]",
        lambda s, n: sorted(c for c in set(s) if s.count(c) >= n),
    ),
    (
        "delete_at",
        "Remove the character at index n, if there is one.",
        "str",
        lambda s, n: s[:n] + s[n + 1 :],
    ),
]

TEXT_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "reverse_words",
        "Reverse the order of the words in the sentence.",
        "str",
        lambda s: " ".join(s.split()[::-1]),
    ),
    ("mirror", "Append the reversed string to the string itself.", "str", lambda s: s + s[::-1]),
    (
        "word_lengths",
        "Return the length of each word of the sentence.",
        "List[int]",
        lambda s: [len(w) for w in s.split()],
    ),
    (
        "initials",
        "Build an acronym from the first letters of all words, in upper case.",
        "str",
        lambda s: "".join(w[0].upper() for w in s.split()),
    ),
    (
        "strip_digits",
        "Remove all digits from the string.",
        "str",
        lambda s: "".join(c for c in s if not c.isdigit()),
    ),
    (
        "digit_total",
        "Add up all the digits that occur in the string.",
        "int",
        lambda s: sum(int(c) for c in s if c.isdigit()),
    ),
    (
        "alternate_case",
        "Make every second character upper case and the others lower case.",
        "str",
        lambda s: "".join(c.upper() if i % 2 else c.lower() for i, c in enumerate(s)),
    ),
    (
        "squeeze",
        "Replace each run of equal characters by a single one.",
        "str",
        lambda s: "".join(c for i, c in enumerate(s) if i == 0 or s[i - 1] != c),
    ),
    (
        "run_lengths",
        "Return a list with the length of each run of equal characters.",
        "List[int]",
        lambda s: [len(r) for r in _runs(s)],
    ),
    (
        "is_pangram_of",
        "Check whether no character occurs more than once.",
        "bool",
        lambda s: len(set(s)) == len(s),
    ),
    (
        "snake_case",
        "Join the words with underscores and make them lower case.",
        "str",
        lambda s: "_".join(s.lower().split()),
    ),
    (
        "camel_case",
        "Join the words, each with a capital first letter.",
        "str",
        lambda s: "".join(w.capitalize() for w in s.split()),
    ),
    (
        "longest_word",
        "Return the longest word of the sentence, or an empty string.",
        "str",
        lambda s: max(s.split(), key=len, default=""),
    ),
    (
        "swap_ends",
        "Exchange the first and the last character of the string.",
        "str",
        lambda s: s if len(s) < 2 else s[-1] + s[1:-1] + s[0],
    ),
    (
        "middle",
        "Return the middle character, or the middle two if the length is even.",
        "str",
        lambda s: s[(len(s) - 1) // 2 : len(s) // 2 + 1],
    ),
    (
        "char_codes",
        "Return the character codes of the string.",
        "List[int]",
        lambda s: [ord(c) for c in s],
    ),
    (
        "without_first_vowel",
        "Delete the first vowel of the string.",
        "str",
        lambda s: next((s[:i] + s[i + 1 :] for i, c in enumerate(s) if c in "aeiouAEIOU"), s),
    ),
    (
        "hide_vowels",
        "Replace each vowel of the string by a star.",
        "str",
        lambda s: "".join("*" if c in "aeiouAEIOU" else c for c in s),
    ),
]

NUMBER_OPS: list[tuple[str, str, str, Fn]] = [
    (
        "to_binary",
        "Write the number in binary notation, without a prefix.",
        "str",
        lambda n: bin(n)[2:],
    ),
    (
        "count_ones",
        "Count the ones in the binary notation of n.",
        "int",
        lambda n: bin(n).count("1"),
    ),
    (
        "collatz_steps",
        "Count how many Collatz steps lead from n to 1.",
        "int",
        lambda n: _collatz(n),
    ),
    (
        "divisors",
        "List all positive divisors of n.",
        "List[int]",
        lambda n: [d for d in range(1, n + 1) if n % d == 0],
    ),
    (
        "is_perfect",
        "Check if n equals the sum of its proper divisors.",
        "bool",
        lambda n: n > 1 and sum(d for d in range(1, n) if n % d == 0) == n,
    ),
    (
        "reverse_digits",
        "Return the number with its digits in reverse order.",
        "int",
        lambda n: int(str(n)[::-1]),
    ),
    (
        "digital_root",
        "Sum the digits repeatedly until one digit remains.",
        "int",
        lambda n: 1 + (n - 1) % 9 if n else 0,
    ),
    ("triangle_number", "Return the n-th triangular number.", "int", lambda n: n * (n + 1) // 2),
    (
        "countdown",
        "Return the list of integers from n down to zero.",
        "List[int]",
        lambda n: list(range(n, -1, -1)),
    ),
    (
        "staircase",
        "Return a list of n strings, the i-th made of i hash signs.",
        "List[str]",
        lambda n: ["#" * i for i in range(1, n + 1)],
    ),
    (
        "next_prime",
        "Return the smallest prime number that is greater than n.",
        "int",
        lambda n: next(p for p in range(n + 1, 2 * n + 3) if _is_prime(p)),
    ),
    (
        "is_square",
        "Check whether n is the square of an integer.",
        "bool",
        lambda n: math.isqrt(n) ** 2 == n,
    ),
    (
        "times_table",
        "Return the first ten multiples of n.",
        "List[int]",
        lambda n: [n * i for i in range(1, 11)],
    ),
    (
        "minutes_to_clock",
        "Format a number of minutes as hours and minutes, like 2:05.",
        "str",
        lambda n: f"{n // 60}:{n % 60:02d}",
    ),
    (
        "distinct_digits",
        "Check if all digits of n are different.",
        "bool",
        lambda n: len(set(str(n))) == len(str(n)),
    ),
    (
        "leap_year",
        "Check if the year n is a leap year.",
        "bool",
        lambda n: n % 4 == 0 and (n % 100 != 0 or n % 400 == 0),
    ),
    (
        "roman_ones",
        "Return the number of digits of n that are larger than five.",
        "int",
        lambda n: sum(int(d) > 5 for d in str(n)),
    ),
]
