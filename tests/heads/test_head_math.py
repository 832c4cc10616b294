"""The training code drafts as vLLM does: compared with a plain causal pass over one sequence."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from head import DraftHead, HeadConfig  # noqa: E402
from muon import orthogonalise  # noqa: E402
from target import rms_norm  # noqa: E402

SIZES = {
    "hidden": 24,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 40,
    "draft_vocab": 30,
    "aux_layers": (1, 2, 3),
}
TOKENS, SLOTS, MASK_TOKEN = 50, 12, 3


def make_head(parallel: bool, layers: int, depth: int) -> DraftHead:
    torch.manual_seed(0)
    config = HeadConfig(parallel=parallel, depth=depth, layers=layers, **SIZES)
    scale = torch.rand(3 * config.hidden) + 0.5
    return DraftHead(config, torch.randn(TOKENS, config.hidden), scale, MASK_TOKEN).eval()


def make_batch(depth: int):
    torch.manual_seed(1)
    tokens = torch.randint(TOKENS, (2, SLOTS + depth + 1))
    states = torch.randn(2, SLOTS, 3 * SIZES["hidden"])
    anchors = torch.tensor([[4, 7], [3, 9]])
    return tokens, states, anchors


def causal_pass(head: DraftHead, tokens: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """The residual stream of one sequence of slots, as `llama_eagle3.py` computes it.

    tokens: shape (slots,), the token each slot reads. hidden: shape (slots, hidden), after fc.
    """
    c = head.config
    positions = torch.arange(len(tokens))
    x, residual = head._inputs(tokens, hidden)
    for i, layer in enumerate(head.layers):
        if i:
            x = rms_norm(residual, layer.input_layernorm, c.eps)
        q = layer.queries(x, *head._rope(positions)).flatten(1, 2)
        k, v = layer.keys_values(x, *head._rope(positions))
        group = c.heads // c.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k)
        scores = scores.masked_fill(positions > positions.unsqueeze(1), float("-inf"))
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        residual = layer.finish(attended, residual)
    return residual


@torch.no_grad()
def test_an_eagle_chain_equals_one_causal_pass_per_step():
    depth = 4
    head = make_head(parallel=False, layers=1, depth=depth)
    tokens, states, anchors = make_batch(depth)
    logits = head.eagle_logits(tokens, states, anchors)
    for row in range(2):
        for n, anchor in enumerate(anchors[row].tolist()):
            hidden = head.fc(states[row, : anchor + 1] * head.state_scale)
            for step in range(depth):
                read = tokens[row, 1 : anchor + step + 2]
                stream = causal_pass(head, read, hidden)
                expected = head.logits(stream[-1])
                torch.testing.assert_close(logits[step][row, n], expected, rtol=1e-4, atol=1e-4)
                # vLLM feeds the un-normed output of a step to the next one.
                hidden = torch.cat((hidden, stream[-1:]))


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_parallel_chain_equals_one_causal_pass_with_masks(layers):
    depth = 5
    head = make_head(parallel=True, layers=layers, depth=depth)
    tokens, states, anchors = make_batch(depth)
    chained = torch.tensor([[0, 1], [1, 0]])
    first, later = head.parallel_streams(tokens, states, anchors, chained, depth)
    for row in range(2):
        for n, index in enumerate(chained[row].tolist()):
            anchor = int(anchors[row, index])
            masks = torch.full((depth - 1,), MASK_TOKEN)
            read = torch.cat((tokens[row, 1 : anchor + 2], masks))
            real = head.fc(states[row, : anchor + 1] * head.state_scale)
            mask = head.fc(head.mask_hidden).expand(depth - 1, -1)
            expected = causal_pass(head, read, torch.cat((real, mask)))[anchor:]
            torch.testing.assert_close(first[row, index], expected[0], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(later[row, n], expected[1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("iteration", "low", "high"), [("classic", 0.6, 1.3), ("short", 0.1, 2)])
def test_orthogonalised_updates_have_bounded_singular_values(iteration, low, high):
    torch.manual_seed(0)
    wide = torch.randn(30, 30) @ torch.diag(torch.logspace(-2, 0, 30)) @ torch.randn(30, 50)
    for matrix in (torch.randn(30, 50), torch.randn(50, 30)):
        values = torch.linalg.svdvals(orthogonalise(matrix, iteration))
        assert low < values.min()
        assert values.max() < high
    before, after = (torch.linalg.svdvals(m) for m in (wide, orthogonalise(wide, iteration)))
    assert after.max() / after.median() < before.max() / before.median() / 2


def test_exported_tensors_fold_the_scale_into_fc():
    from export import tensors

    head = make_head(parallel=True, layers=2, depth=3)
    checkpoint = {
        "head": head.state_dict(),
        "config": head.config.to_dict(),
        "scale": head.state_scale,
        "vocabulary": torch.arange(0, 60, 2),
        "mask_token": MASK_TOKEN,
    }
    out = tensors(checkpoint)
    states = torch.randn(5, 3 * SIZES["hidden"])
    expected = head.fc(states * head.state_scale)
    torch.testing.assert_close(states @ out["fc.weight"].float().T, expected, rtol=1e-2, atol=2e-2)
    mask = out["mask_hidden"].float() @ out["fc.weight"].float().T
    torch.testing.assert_close(mask[0], head.fc(head.mask_hidden), rtol=1e-2, atol=2e-2)
    assert (out["d2t"] + torch.arange(30)).tolist() == list(range(0, 60, 2))
