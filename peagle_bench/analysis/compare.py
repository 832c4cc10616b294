"""Methods against each other: speedups with intervals, and whether the cells are comparable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from peagle_bench.analysis.metrics import successful
from peagle_bench.analysis.stats import difference_interval, ratio_interval
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult, Comparison, Finding, Standing, Verdict

MAX_LENGTH_DIFFERENCE = 0.10
# What must be the same on every server of a run: anything else is part of the method.
SHARED_FACTS = (
    "version",
    "dtype",
    "max_model_len",
    "enforce_eager",
    "quantization",
    "block_size",
    "enable_prefix_caching",
    "cache_dtype",
    "tensor_parallel_size",
    "distributed_executor_backend",
    "max_num_seqs",
    "max_num_batched_tokens",
    "device_type",
    "use_v2_model_runner",
    "runner",
)
_ORDER: tuple[Standing, ...] = ("VALID", "ESTIMATE", "INVALID", "FAILED", "PENDING")

Key = tuple[str, int, str, int | None]
"""suite, concurrency, method, depth: what repeats have in common"""


def worse(a: Standing, b: Standing) -> Standing:
    return max(a, b, key=_ORDER.index)


def checked_together(
    results: Sequence[CellResult], servers: Mapping[str, Mapping[str, object]]
) -> list[CellResult]:
    """The results with what only shows across cells: different servers, different lengths.

    servers: facts by group slug, as the servers told them.
    """
    differing = _differing_facts(servers)
    lengths: dict[tuple[str, int], float] = {}
    for r in results:
        mean = r.metrics.get("output_tokens_mean")
        if r.cell.group.method == "baseline" and mean:
            lengths.setdefault((r.cell.suite, r.cell.concurrency), mean)
    out = []
    for r in results:
        reasons, flags = list(r.verdict.reasons), list(r.verdict.flags)
        standing = r.verdict.standing
        if differing and standing != "FAILED":
            reasons.append(
                Finding(
                    code="servers-differ",
                    text=f"methods ran on servers that differ in {differing}",
                    remedy="pin it in the profile's flags or environment",
                )
            )
            standing = "INVALID"
        base = lengths.get((r.cell.suite, r.cell.concurrency))
        mine = r.metrics.get("output_tokens_mean")
        if base and mine and abs(mine / base - 1) > MAX_LENGTH_DIFFERENCE:
            flags.append(
                Finding(
                    code="lengths-differ",
                    text=f"outputs are {mine / base - 1:+.0%} as long as the baseline's",
                )
            )
        verdict = Verdict(standing=standing, reasons=tuple(reasons), flags=tuple(flags))
        out.append(r.model_copy(update={"verdict": verdict}))
    return out


def prompts_agree(
    results: Sequence[CellResult], data: Mapping[str, CellData], *, replayed: bool
) -> list[CellResult]:
    """The results with what shows when cells of a suite did not see the same prompt tokens.

    data: by cell id. replayed: later turns were to be the same everywhere. A first turn that
    differs, or a replayed one, is a reason where it changes a prompt's length, and a flag where it
    does not (templates write the day into a prompt). Turns that each method spoke for itself are a
    flag.
    """
    seen: dict[tuple[str, str, int], set[tuple[int | None, str]]] = defaultdict(set)
    for r in results:
        for record in successful(data[r.cell.cell_id]):
            if record.prompt_token_digest is not None:
                turn = (r.cell.suite, record.prompt_id, record.turn)
                seen[turn].add((record.prompt_tokens, record.prompt_token_digest))
    differing: dict[str, Finding] = {}
    for (suite, prompt_id, number), found in seen.items():
        if len(found) < 2:
            continue
        lengths = sorted({n for n, _ in found if n is not None})
        if number > 1 and not replayed:
            code, text = (
                "own-conversations",
                (
                    "later turns differ between methods: each spoke its own conversation, so their "
                    "speeds are not over the same prompts"
                ),
            )
        elif len(lengths) > 1:
            code, text = (
                "prompts-differ",
                (
                    f"{prompt_id}, turn {number}: cells saw prompts of {lengths[0]} to "
                    f"{lengths[-1]} tokens, not the same one"
                ),
            )
        else:
            code, text = (
                "prompts-differ-in-detail",
                (
                    f"{prompt_id}, turn {number}: cells saw prompts of the same length with "
                    "other tokens (a template that writes the date?)"
                ),
            )
        if suite not in differing or code == "prompts-differ":
            differing[suite] = Finding(code=code, text=text)
    out = []
    for r in results:
        finding = differing.get(r.cell.suite)
        out.append(r if finding is None else _with(r, finding, finding.code == "prompts-differ"))
    return out


def _with(result: CellResult, finding: Finding, is_reason: bool) -> CellResult:
    held = result.verdict
    verdict = Verdict(
        standing="INVALID" if is_reason else held.standing,
        reasons=(*held.reasons, finding) if is_reason else held.reasons,
        flags=held.flags if is_reason else (*held.flags, finding),
    )
    return result.model_copy(update={"verdict": verdict})


def _differing_facts(servers: Mapping[str, Mapping[str, object]]) -> str:
    """`dtype (float16, bfloat16), …`; empty when all that told agree."""
    found = []
    for name in SHARED_FACTS:
        values = {str(facts[name]) for facts in servers.values() if facts.get(name) is not None}
        if len(values) > 1:
            found.append(f"{name} ({', '.join(sorted(values))})")
    return ", ".join(found)


def speedups(
    results: Sequence[CellResult], data: Mapping[str, CellData], versus: str, seed: int = 0
) -> list[Comparison]:
    """Each method and depth against `versus`, at the same suite and concurrency.

    data: by cell id. Against a speculating method the same depth is taken where it was run, as
    comparisons at equal K want it. Repeats are pooled: OTPS is Σ tokens / Σ seconds over them, and
    a prompt's tokens and seconds are summed over its repeats before prompts are drawn.
    """
    groups: dict[Key, list[CellResult]] = defaultdict(list)
    for r in results:
        if r.metrics.get("output_tok_per_s") is not None:
            c = r.cell
            groups[(c.suite, c.concurrency, c.group.method, c.group.depth)].append(r)
    out = []
    for (suite, concurrency, method, depth), mine in groups.items():
        if method == versus:
            continue
        other_key = (suite, concurrency, versus, depth)
        if other_key not in groups:
            other_key = (suite, concurrency, versus, None)
        theirs = groups.get(other_key)
        if not theirs:
            continue
        a, b = served_by_prompt(mine, data), served_by_prompt(theirs, data)
        shared = sorted(a.keys() & b.keys())
        interval = ratio_interval(
            [a[p][0] for p in shared],
            [a[p][1] for p in shared],
            [b[p][0] for p in shared],
            [b[p][1] for p in shared],
            seed=seed,
        )
        point = _otps(mine) / _otps(theirs)
        if interval is not None:
            centre = _rate(a, shared) / _rate(b, shared)
            # The interval's shape comes from per-prompt service; it is carried to the ratio of
            # OTPS, from which it differs by the ramp at a cell's ends.
            interval = (interval[0] * point / centre, interval[1] * point / centre)
        lengths = _length_difference(mine, theirs, data, seed)
        standing: Standing = "VALID"
        for r in (*mine, *theirs):
            standing = worse(standing, r.verdict.standing)
        out.append(
            Comparison(
                suite=suite,
                concurrency=concurrency,
                method=method,
                depth=depth,
                versus=versus,
                versus_depth=other_key[3],
                speedup=point,
                low=interval[0] if interval else None,
                high=interval[1] if interval else None,
                prompts=len(shared),
                length_difference=lengths[0],
                length_low=lengths[1],
                length_high=lengths[2],
                standing=standing,
            )
        )
    return out


def _length_difference(
    mine: Sequence[CellResult],
    theirs: Sequence[CellResult],
    data: Mapping[str, CellData],
    seed: int,
) -> tuple[float | None, float | None, float | None]:
    """Difference of acceptance lengths over the prompts that both drafted for, and its interval."""
    a, b = _drafts_by_prompt(mine, data), _drafts_by_prompt(theirs, data)
    shared = sorted(a.keys() & b.keys())
    if not shared:
        return None, None, None
    columns = [[held[p][i] for p in shared] for held in (a, b) for i in (0, 1)]
    accepted_a, drafts_a, accepted_b, drafts_b = columns
    point = sum(accepted_a) / sum(drafts_a) - sum(accepted_b) / sum(drafts_b)
    interval = difference_interval(*columns, seed=seed)
    return (point, *(interval or (None, None)))


def _drafts_by_prompt(
    results: Sequence[CellResult], data: Mapping[str, CellData]
) -> dict[str, tuple[float, float]]:
    """(accepted drafts, verification steps) by prompt, from per-request metrics, over repeats."""
    out: dict[str, tuple[float, float]] = {}
    for r in results:
        for record in successful(data[r.cell.cell_id]):
            if record.spec is not None and record.spec.num_drafts:
                accepted, drafts = out.get(record.prompt_id, (0.0, 0.0))
                out[record.prompt_id] = (
                    accepted + record.spec.num_accepted_tokens,
                    drafts + record.spec.num_drafts,
                )
    return out


def served_by_prompt(
    results: Sequence[CellResult], data: Mapping[str, CellData]
) -> dict[str, tuple[float, float]]:
    """(completion tokens, seconds from send to last token) by prompt, summed over repeats."""
    out: dict[str, tuple[float, float]] = {}
    for r in results:
        for record in successful(data[r.cell.cell_id]):
            tokens, seconds = out.get(record.prompt_id, (0.0, 0.0))
            out[record.prompt_id] = (
                tokens + (record.completion_tokens or 0),
                seconds + (record.chunk_ns[-1] - record.sent_ns) / 1e9,
            )
    return out


def _rate(rows: Mapping[str, tuple[float, float]], prompts: Sequence[str]) -> float:
    return sum(rows[p][0] for p in prompts) / sum(rows[p][1] for p in prompts)


def _otps(results: Sequence[CellResult]) -> float:
    """Pooled over repeats."""
    tokens = sum(r.metrics["output_tokens"] or 0.0 for r in results)
    seconds = sum(r.metrics["duration_s"] or 0.0 for r in results)
    return tokens / seconds
