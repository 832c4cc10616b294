"""The draft head, with the arithmetic of vLLM's `llama_eagle3.py`, written for training.

Slot j of a sequence pairs the hidden states at token j with the embedding of token j + 1, has
position j, and predicts token j + 2. An anchor is the slot from which a chain of drafts starts.

EAGLE-3 drafts one token after the other: step s reads token j + s and the un-normed output of
the step before. P-EAGLE drafts all at once: the slots after the anchor read a mask embedding and
a learned hidden state. In both, a drafting slot attends to the real slots up to its anchor and to
the earlier slots of its own chain.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from target import rms_norm, rope_table, rotate
from torch import nn


@dataclass(frozen=True)
class HeadConfig:
    """The sizes of a head. `depth` is the number of drafts it is trained to make in a row."""

    parallel: bool
    depth: int
    layers: int = 1
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    intermediate: int = 768
    draft_vocab: int = 2048
    aux_layers: tuple[int, ...] = (2, 15, 27)
    rope_theta: float = 1e7
    eps: float = 1e-5

    def to_dict(self) -> dict:
        """The fields as JSON values."""
        return asdict(self)


class Layer(nn.Module):
    """One Llama layer; the first one reads two vectors a slot, an embedding and a state."""

    def __init__(self, config: HeadConfig, first: bool) -> None:
        super().__init__()
        self.config = config
        width = config.hidden * (2 if first else 1)
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(width, q, bias=False)
        self.k_proj = nn.Linear(width, kv, bias=False)
        self.v_proj = nn.Linear(width, kv, bias=False)
        self.o_proj = nn.Linear(q, config.hidden, bias=False)
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)
        self.input_layernorm = nn.Parameter(torch.ones(config.hidden))
        self.post_attention_layernorm = nn.Parameter(torch.ones(config.hidden))

    def keys_values(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated keys and values of x (..., width): shape (..., kv_heads, head_dim) each."""
        shape = (*x.shape[:-1], self.config.kv_heads, self.config.head_dim)
        k = rotate(self.k_proj(x).view(shape), cos.unsqueeze(-2), sin.unsqueeze(-2))
        return k, self.v_proj(x).view(shape)

    def queries(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotated and scaled queries, shape (..., kv_heads, group, head_dim)."""
        c = self.config
        q = self.q_proj(x).view(*x.shape[:-1], c.heads, c.head_dim)
        q = rotate(q, cos.unsqueeze(-2), sin.unsqueeze(-2)) * c.head_dim**-0.5
        return q.view(*q.shape[:-2], c.kv_heads, c.heads // c.kv_heads, c.head_dim)

    def finish(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Output projection and MLP: the new residual stream."""
        residual = residual + self.o_proj(attended)
        h = rms_norm(residual, self.post_attention_layernorm, self.config.eps)
        return residual + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


def attend(
    q: torch.Tensor,
    real_k: torch.Tensor,
    real_v: torch.Tensor,
    anchors: torch.Tensor,
    chain_k: torch.Tensor | None = None,
    chain_v: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of chains of slots to the real slots up to their anchor and to themselves.

    Args:
        q: shape (rows, anchors, chain, kv_heads, group, head_dim).
        real_k, real_v: shape (rows, slots, kv_heads, head_dim).
        anchors: the last real slot that each chain sees, shape (rows, anchors).
        chain_k, chain_v: shape (rows, anchors, keys, kv_heads, head_dim). The last `chain` keys
            belong to the queries; query i sees the keys up to its own.

    Returns:
        Shape (rows, anchors, chain, heads * head_dim).
    """
    rows, n, chain, kv, group, dim = q.shape
    slots = real_k.shape[1]
    flat = q.permute(0, 3, 1, 2, 4, 5).reshape(rows, kv, n * chain * group, dim)
    scores = flat @ real_k.permute(0, 2, 3, 1)  # (rows, kv, n * chain * group, slots)
    hidden = torch.arange(slots) > anchors.unsqueeze(-1)  # (rows, n, slots)
    scores = scores.view(rows, kv, n, chain * group, slots)
    scores = scores.masked_fill(hidden.view(rows, 1, n, 1, slots), float("-inf"))
    if chain_k is None or chain_v is None:
        weights = scores.softmax(-1)
        out = weights.view(rows, kv, -1, slots) @ real_v.transpose(1, 2)
    else:
        keys = chain_k.shape[2]
        own_q = q.permute(0, 3, 1, 2, 4, 5).reshape(rows, kv, n, chain * group, dim)
        own = own_q @ chain_k.permute(0, 3, 1, 4, 2)  # (rows, kv, n, chain * group, keys)
        if chain > 1:
            later = torch.arange(keys) > torch.arange(chain).unsqueeze(1) + keys - chain
            own = own.masked_fill(later.repeat_interleave(group, 0), float("-inf"))
        weights = torch.cat((scores, own), dim=-1).softmax(-1)
        on_real, on_own = weights[..., :slots], weights[..., slots:]
        out = on_real.reshape(rows, kv, -1, slots) @ real_v.transpose(1, 2)
        out = out.view(rows, kv, n, chain * group, dim) + on_own @ chain_v.permute(0, 3, 1, 2, 4)
    out = out.view(rows, kv, n, chain, group, dim).permute(0, 2, 3, 1, 4, 5)
    return out.reshape(rows, n, chain, kv * group * dim)


class DraftHead(nn.Module):
    """An EAGLE-3 or P-EAGLE head. `state_scale` and the target's embeddings stay fixed."""

    def __init__(
        self, config: HeadConfig, embed: torch.Tensor, state_scale: torch.Tensor, mask_token: int
    ) -> None:
        """
        Args:
            config: sizes.
            embed: the target's embeddings, shape (vocabulary, hidden).
            state_scale: factor for each channel, shape (aux layers * hidden,); folded into fc
                when the head is saved, it only evens out the sizes of the channels.
            mask_token: the token whose embedding marks the slots of a parallel draft.
        """
        super().__init__()
        self.config = config
        self.embed = embed
        self.mask_token = mask_token
        self.register_buffer("state_scale", state_scale)
        self.fc = nn.Linear(len(config.aux_layers) * config.hidden, config.hidden, bias=False)
        self.hidden_norm = nn.Parameter(torch.ones(config.hidden))
        self.layers = nn.ModuleList(Layer(config, i == 0) for i in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden))
        self.lm_head = nn.Linear(config.hidden, config.draft_vocab, bias=False)
        if config.parallel:
            self.mask_hidden = nn.Parameter(torch.randn(self.fc.in_features) * 0.5)
        self.cos, self.sin = rope_table(4096, config.head_dim, config.rope_theta)

    def _inputs(
        self, tokens: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Input of the first layer (..., 2 * hidden) and the residual stream (..., hidden)."""
        eps = self.config.eps
        e = rms_norm(F.embedding(tokens, self.embed), self.layers[0].input_layernorm, eps)
        residual = rms_norm(state, self.hidden_norm, eps)  # norm_before_residual
        return torch.cat((e, residual), dim=-1), residual

    def logits(self, stream: torch.Tensor) -> torch.Tensor:
        """Scores over the draft vocabulary."""
        return self.lm_head(rms_norm(stream, self.norm, self.config.eps))

    def _rope(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cos[positions], self.sin[positions]

    def eagle_logits(
        self, tokens: torch.Tensor, states: torch.Tensor, anchors: torch.Tensor
    ) -> list[torch.Tensor]:
        """Logits of each step of an EAGLE-3 draft in which the tokens before are the true ones.

        Args:
            tokens: shape (rows, slots + depth); slot j reads token j + 1.
            states: auxiliary states, shape (rows, slots, aux layers * hidden).
            anchors: shape (rows, anchors).

        Returns:
            For each depth, logits of shape (rows, anchors, draft vocabulary).
        """
        layer = self.layers[0]
        rows, slots = states.shape[:2]
        row_ids = torch.arange(rows).unsqueeze(1)
        x, residual = self._inputs(tokens[:, 1 : slots + 1], self.fc(states * self.state_scale))
        real_k, real_v = layer.keys_values(x, *self._rope(torch.arange(slots)))
        out = []
        chain_k: list[torch.Tensor] = []
        chain_v: list[torch.Tensor] = []
        x, residual = x[row_ids, anchors], residual[row_ids, anchors]
        stream = residual
        for step in range(self.config.depth):
            rope = self._rope(anchors + step)
            if step:
                x, residual = self._inputs(tokens[row_ids, anchors + step + 1], stream)
                k, v = layer.keys_values(x, *rope)
                chain_k.append(k)
                chain_v.append(v)
            q = layer.queries(x, *rope).unsqueeze(2)
            own = (torch.stack(chain_k, 2), torch.stack(chain_v, 2)) if step else (None, None)
            attended = attend(q, real_k, real_v, anchors, *own).squeeze(2)
            stream = layer.finish(attended, residual)
            out.append(self.logits(stream))
        return out

    def parallel_streams(
        self,
        tokens: torch.Tensor,
        states: torch.Tensor,
        anchors: torch.Tensor,
        chained: torch.Tensor,
        depth: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the output layer reads in P-EAGLE drafts.

        Args:
            tokens, states: as in eagle_logits.
            anchors: slots whose first draft is wanted, shape (rows, anchors).
            chained: indices into `anchors` from which mask slots follow, (rows, chains).
            depth: number of drafts of a chain, the first one included.

        Returns:
            The streams of the first drafts, (rows, anchors, hidden), and of the drafts 2 to
            `depth`, (rows, chains, depth - 1, hidden).
        """
        rows, slots = states.shape[:2]
        row_ids = torch.arange(rows).unsqueeze(1)
        chain_anchors = torch.gather(anchors, 1, chained)
        real_rope = self._rope(torch.arange(slots))
        mask_positions = chain_anchors.unsqueeze(-1) + torch.arange(1, depth)
        mask_rope = self._rope(mask_positions)
        x, residual = self._inputs(tokens[:, 1 : slots + 1], self.fc(states * self.state_scale))
        mask_state = self.fc(self.mask_hidden)
        mx, m_residual = self._inputs(torch.tensor(self.mask_token), mask_state)
        # All masks look the same to the first layer: one projection, turned to each position.
        m_residual = m_residual.expand(*mask_positions.shape, -1)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            if i:
                x = rms_norm(residual, layer.input_layernorm, self.config.eps)
                mx = rms_norm(m_residual, layer.input_layernorm, self.config.eps)
            real_k, real_v = layer.keys_values(x, *real_rope)
            chain_k, chain_v = layer.keys_values(mx, *mask_rope)
            chain_v = chain_v.expand(chain_k.shape)
            if i == last:  # only the anchors' outputs are needed
                seen = anchors
                q = layer.queries(x[row_ids, anchors], *self._rope(anchors))
                residual = residual[row_ids, anchors]
            else:
                seen = torch.arange(slots).expand(rows, -1)
                q = layer.queries(x, *real_rope)
            attended = attend(q.unsqueeze(2), real_k, real_v, seen).squeeze(2)
            residual = layer.finish(attended, residual)
            mq = layer.queries(mx, *mask_rope)
            attended = attend(mq, real_k, real_v, chain_anchors, chain_k, chain_v)
            m_residual = layer.finish(attended, m_residual)
        return residual, m_residual
