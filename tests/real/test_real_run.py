"""The main job on a real vLLM with the embedded target and heads."""

from __future__ import annotations

from statistics import median

import psutil
import pytest

from peagle_bench.analysis import metrics
from peagle_bench.analysis.steptime import at_concurrency, decode_steps, verified
from tests.real.conftest import RealRun

pytestmark = pytest.mark.vllm


def test_three_methods_are_measured_and_every_cell_is_valid(real_run: RealRun) -> None:
    rows = {(r.method, r.concurrency): r for r in real_run.reported.rows}
    for method in ("baseline", "eagle3", "peagle"):
        for concurrency in (1, 2):
            row = rows[(method, concurrency)]
            assert row.standing == "VALID", real_run.printed
            assert row.output_tok_per_s is not None
            assert row.output_tok_per_s > 0


def test_a_head_that_does_not_fit_shows_vllms_cause_and_the_others_go_on(
    real_run: RealRun,
) -> None:
    assert real_run.exit_code == 1
    (why,) = real_run.reported.failures.values()
    first = why.splitlines()[0]
    assert "exit code" in first
    assert "Error" in first
    assert "WARNING" not in first
    rows = {r.method: r for r in real_run.reported.rows}
    assert rows["eagle"].standing == "FAILED"
    assert "**FAILED** EAGLE K=3" in (real_run.folder.path / "report.md").read_text()


@pytest.mark.parametrize("method", ["eagle3", "peagle"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_acceptance_length_agrees_between_counters_requests_and_positions(
    real_run: RealRun, method: str, concurrency: int
) -> None:
    _, data = real_run.data()[(method, concurrency)]
    length = metrics.acceptance_length(data)
    assert length is not None
    assert 1 < length <= 4
    assert metrics.request_acceptance_length(data) == length
    shares = metrics.acceptance_by_position(data)
    assert shares is not None
    assert len(shares) == 3
    assert 1 + sum(shares) == pytest.approx(length, rel=1e-12)
    assert list(shares) == sorted(shares, reverse=True)
    emitted = metrics.emitted_length(data)
    assert emitted is not None
    assert 1 < emitted <= length


def test_the_baseline_emits_one_token_a_step_and_has_no_acceptance(real_run: RealRun) -> None:
    _, data = real_run.data()[("baseline", 1)]
    assert metrics.acceptance_length(data) is None
    assert metrics.emitted_length(data) == 1.0
    assert all(r.spec is None for r in data.records)


def test_tokens_agree_between_usage_ids_and_counters(real_run: RealRun) -> None:
    for _, data in real_run.data().values():
        told = sum(r.completion_tokens or 0 for r in data.records)
        assert told == sum(len(r.token_ids or ()) for r in data.records)
        assert told == data.delta.generation_tokens
        assert told == sum(sum(r.chunk_tokens) for r in data.records)
        assert data.delta.prefix_cache_hits == 0
        assert data.delta.requests_finished == len(data.records)


def test_every_method_saw_the_same_prompt_tokens(real_run: RealRun) -> None:
    seen = {
        tuple(sorted((r.prompt_id, r.prompt_token_digest, r.prompt_tokens) for r in data.records))
        for _, data in real_run.data().values()
    }
    assert len(seen) == 1


def test_greedy_speculation_gives_the_baselines_tokens(real_run: RealRun) -> None:
    base = {r.prompt_id: r.token_ids for r in real_run.data()[("baseline", 1)][1].records}
    for method in ("eagle3", "peagle"):
        _, data = real_run.data()[(method, 1)]
        same = sum(r.token_ids == base[r.prompt_id] for r in data.records)
        # float32 on one machine: a tie between two logits may still fall either way.
        assert same >= len(base) - 1


def test_every_server_was_configured_alike(real_run: RealRun) -> None:
    facts = [
        real_run.folder.read_server(g).get("facts")
        for g in real_run.reported.plan.groups
        if g.method != "eagle"
    ]
    assert all(f and f["version"] == "0.32.0" for f in facts)
    assert len({f["dtype"] for f in facts}) == 1
    assert all(f["enable_prefix_caching"] is False for f in facts)


def test_no_server_process_is_left(real_run: RealRun) -> None:
    ports = set()
    for group in real_run.reported.plan.groups:
        words = real_run.folder.read_server(group)["command"].split()
        ports.add(words[words.index("--port") + 1])
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            assert not ports & set(process.info["cmdline"] or [])


def test_times_are_the_kernels_and_the_client_is_light(real_run: RealRun) -> None:
    for _, data in real_run.data().values():
        assert data.client.clock == "kernel"
        assert data.client.cpu_share < 0.2
        assert abs(data.client.clock_drift_ns) < 1_000_000


def test_the_probe_saw_every_step_and_every_draft(real_run: RealRun) -> None:
    for (method, concurrency), (cell, data) in real_run.data().items():
        told = real_run.folder.read_facts(cell)["probe"]
        assert told == f"{len(data.steps)} steps"
        times = at_concurrency(data.steps, concurrency)
        assert times is not None
        assert times.forward_s > 0
        assert times.sample_s > 0
        assert times.host_s > 0
        if method == "baseline":
            assert verified(data.steps) == 0
            assert times.draft_s == 0
        else:
            assert verified(data.steps) == data.delta.num_drafts
            assert 0 < times.draft_s < times.forward_s


def test_a_step_by_the_probe_is_as_long_as_the_gap_between_two_chunks(real_run: RealRun) -> None:
    """Two clocks in two processes: the server's around its stages, the client's at its socket."""
    for method in ("baseline", "eagle3", "peagle"):
        _, data = real_run.data()[(method, 1)]
        gaps = [g for r in data.records for g in metrics.chunk_gaps_s(r)]
        steps = [t for _, t in decode_steps(data.steps)]
        assert median(steps) == pytest.approx(median(gaps), rel=0.15)


def test_the_law_and_the_measured_decode_speedup_agree(real_run: RealRun) -> None:
    laws = [law for law in real_run.reported.laws if law.concurrency == 1]
    assert {law.method for law in laws} == {"eagle3", "peagle"}
    for law in laws:
        assert law.source == "probe"
        assert abs(law.gap) < 0.15, law


def test_the_report_says_where_the_time_goes_and_whether_outputs_are_the_baselines(
    real_run: RealRun,
) -> None:
    text = (real_run.folder.path / "report.md").read_text()
    for part in ("## Where a step's time goes", "## The law", "## Lossless", "Drafting takes"):
        assert part in text
    for match in real_run.reported.matches:
        assert match.share is not None
        assert match.share >= 0.75
