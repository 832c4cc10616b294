"""Initial weights with which a head copies: what followed this token before, follows again.

Replies to coding prompts repeat much of the prompt. An attention head that finds the earlier
slots whose token equals the newest one, and reads off the embedding of what came next there, is a
good draft from the start; with a few hundred steps of training there is little time to discover
it. All matrices come from closed-form fits on a few examples of the training data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dataset import state_columns
from head import DraftHead, attend
from target import rms_norm

KEY_SCALE = 1.3
COPY_STRENGTH = 0.6
OUTPUT_SCALE = 0.025
# Offsets that the heads of the second and third group of a parallel head look back by.
OFFSETS = ((0, 1, 2), (3, 4, 5))
# Depths whose drafts the groups of the second layer copy.
COPIED_DEPTHS = ((2,), (3,), (4, 5))


def ridge(x: torch.Tensor, y: torch.Tensor, strength: float = 0.01) -> torch.Tensor:
    """The matrix w, shape (y columns, x columns), that makes x @ w.T close to y."""
    gram = x.T @ x
    gram.diagonal().add_(strength * gram.diagonal().mean())
    return torch.linalg.solve(gram, x.T @ y).T


def principal(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(directions as rows, standard deviations), most variance first."""
    centred = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    return vectors.flip(1).T, values.flip(0).clamp(min=1e-9).sqrt()


def slow_pairs(head: DraftHead, slots: int = 300) -> torch.Tensor:
    """Dimensions of an attention head that a distance of `slots` turns by less than a radian."""
    c = head.config
    half = c.head_dim // 2
    speed = c.rope_theta ** (-torch.arange(half) / half)
    slow = (speed * slots < 1).nonzero().squeeze(1)
    return torch.cat((slow, slow + half))


@dataclass
class Sample:
    """Slots of some examples, in a row; slot j pairs token j with token j + 1.

    states: auxiliary states, already scaled, shape (slots, aux * hidden).
    here, next, later: tokens j, j + 1 and j + 2, shape (slots,).
    reply: whether slot j drafts a token of the reply, shape (slots,).
    """

    states: torch.Tensor
    here: torch.Tensor
    next: torch.Tensor
    later: torch.Tensor
    reply: torch.Tensor


def gather_sample(head: DraftHead, examples: list[dict]) -> Sample:
    """All slots of the examples but the first one of each."""
    columns = state_columns(head.config.aux_layers)
    parts = []
    for e in examples:
        n, tokens = len(e["tokens"]) - 1, e["tokens"].long()
        states = e["hidden"][1 : n - 1][:, columns].flatten(1).float() * head.state_scale
        reply = torch.arange(1, n - 1) >= e["prompt_len"] - 1
        parts.append((states, tokens[1 : n - 1], tokens[2:n], tokens[3 : n + 1], reply))
    return Sample(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def initialise_copying(head: DraftHead, examples: list[dict], vocabulary: torch.Tensor) -> None:
    """Set fc and the attention of the first layer, and of the second one of a parallel head.

    Args:
        head: freshly initialised, lm_head included.
        examples: a few dozen training examples.
        vocabulary: the draft vocabulary, target ids.
    """
    c = head.config
    sample = gather_sample(head, examples)
    embedded = rms_norm(head.embed, torch.ones(c.hidden), c.eps)  # as the first layer reads it
    directions, deviations = principal(embedded[vocabulary])
    centre = embedded[vocabulary].mean(0)
    whiten = directions / deviations.unsqueeze(1)

    _fit_fc(head, sample, embedded, directions, vocabulary)
    groups = 1 if c.parallel else 2
    for g in range(groups):
        _copy_group(head, sample, embedded - centre, whiten, directions, g)
    if c.parallel and c.layers > 1:
        _look_back(head, sample, embedded, directions)
        _copy_depths(head, examples, embedded - centre, whiten, directions)
        _fit_output(head, examples, embedded - centre, vocabulary)


def _fit_fc(
    head: DraftHead,
    sample: Sample,
    embedded: torch.Tensor,
    directions: torch.Tensor,
    vocabulary: torch.Tensor,
) -> None:
    """fc passes on which token this is, a linear guess at the drafted token, and a mixture."""
    c, x = head.config, sample.states
    identity = embedded[sample.here] - embedded[sample.here].mean(0)
    turn = torch.linalg.qr(torch.randn(c.hidden, c.hidden))[0]
    rest = torch.randn(c.hidden, x.shape[1]) / math.sqrt(x.shape[1])
    if c.parallel:  # leave room in the stream for what the look-back heads write
        low = directions[:128]
        identity = identity @ low.T @ low
        rest = turn[:, -64:] @ rest[-64:]
    reply = sample.reply
    guess = ridge(x[reply], embedded[sample.later[reply]] - embedded[vocabulary].mean(0))
    parts = [(1.0, turn @ ridge(x, identity)), (0.5, guess), (0.6, rest)]
    fc = torch.zeros_like(head.fc.weight)
    for share, matrix in parts:
        fc += share * matrix / (x @ matrix.T).square().mean().sqrt()
    head.fc.weight.copy_(fc)
    if c.parallel:
        head.mask_hidden.copy_(x.mean(0))


def _copy_group(
    head: DraftHead,
    sample: Sample,
    centred: torch.Tensor,
    whiten: torch.Tensor,
    directions: torch.Tensor,
    g: int,
) -> None:
    """Keys tell the slot's own token, queries ask for the newest, values give what follows."""
    c, layer = head.config, head.layers[0]
    dim, group = c.head_dim, c.heads // c.kv_heads
    normed = rms_norm(head.fc(sample.states), torch.ones(c.hidden), c.eps)
    slow = slow_pairs(head)
    probe = whiten[g * len(slow) : (g + 1) * len(slow)]
    rows = slice(g * dim, (g + 1) * dim)
    layer.k_proj.weight[rows] *= 0.2
    layer.k_proj.weight[g * dim + slow] = 0.0
    layer.k_proj.weight[g * dim + slow, c.hidden :] = KEY_SCALE * ridge(
        normed, centred[sample.here] @ probe.T
    )
    values = directions[rows]
    layer.v_proj.weight[rows] = torch.cat((values, torch.zeros_like(values)), dim=1)
    for h in range(g * group, (g + 1) * group):
        mine = slice(h * dim, (h + 1) * dim)
        layer.q_proj.weight[mine] *= 0.2
        layer.q_proj.weight[h * dim + slow] = 0.0
        layer.q_proj.weight[h * dim + slow, : c.hidden] = KEY_SCALE * probe
        layer.o_proj.weight[:, mine] = COPY_STRENGTH / group * values.T


def _look_back(
    head: DraftHead, sample: Sample, embedded: torch.Tensor, directions: torch.Tensor
) -> None:
    """Heads that attend to the slot a fixed number of places back and pass on its next token.

    Query and key are constant, so that only the rotary embedding decides; the query is turned
    by the offset. Each head writes to directions of its own.
    """
    c, layer = head.config, head.layers[0]
    dim, half, group = c.head_dim, c.head_dim // 2, c.heads // c.kv_heads
    normed = rms_norm(head.fc(sample.states), torch.ones(c.hidden), c.eps)
    x = torch.cat((embedded[sample.next], normed), dim=1)
    constant = ridge(x, torch.ones(len(x), 1))[0]
    speed = c.rope_theta ** (-torch.arange(half) / half)
    sharpness = torch.zeros(half)
    sharpness[:2], sharpness[2:8] = 14.0, 7.0
    weight = (sharpness * c.head_dim**0.5).sqrt().unsqueeze(1)
    frame = torch.linalg.qr(torch.randn(c.hidden, c.hidden))[0]
    values = directions[:dim]
    for g, offsets in enumerate(OFFSETS, start=1):
        rows = slice(g * dim, (g + 1) * dim)
        layer.k_proj.weight[rows] = torch.cat((weight, torch.zeros(half, 1))) * constant
        layer.v_proj.weight[rows] = torch.cat((values, torch.zeros_like(values)), dim=1)
        for i, offset in enumerate(offsets):
            h = g * group + i
            mine = slice(h * dim, (h + 1) * dim)
            angle = (offset * speed).unsqueeze(1)
            turned = torch.cat((angle.cos() * weight, -angle.sin() * weight))
            layer.q_proj.weight[mine] = turned * constant
            place = frame[:, offset * dim : (offset + 1) * dim]
            layer.o_proj.weight[:, mine] = place / values_size(values, embedded, sample.next)


def values_size(values: torch.Tensor, embedded: torch.Tensor, tokens: torch.Tensor) -> float:
    """Root mean square of the projections of the tokens' embeddings."""
    return float((embedded[tokens] @ values.T).square().mean().sqrt())


def _first_layer(head: DraftHead, example: dict) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Streams after the first layer: real slots (slots, hidden), masks (anchors, depth - 1,
    hidden), and the anchors (anchors,)."""
    c, layer = head.config, head.layers[0]
    columns = state_columns(c.aux_layers)
    tokens = example["tokens"].long()
    n = len(tokens) - 1
    states = example["hidden"][:n, columns].flatten(1).float() * head.state_scale
    anchors = torch.arange(example["prompt_len"] - 1, n - c.depth)
    slots = torch.arange(n)
    masks = anchors.unsqueeze(1) + torch.arange(1, c.depth)
    x, residual = head._inputs(tokens[1:], head.fc(states))
    mx, m_residual = head._inputs(torch.tensor(head.mask_token), head.fc(head.mask_hidden))
    mx, m_residual = mx.expand(*masks.shape, -1), m_residual.expand(*masks.shape, -1)
    k, v = layer.keys_values(x, *head._rope(slots))
    mk, mv = layer.keys_values(mx, *head._rope(masks))
    q = layer.queries(x, *head._rope(slots))[None, :, None]
    real = layer.finish(attend(q, k[None], v[None], slots[None])[0, :, 0], residual)
    q = layer.queries(mx, *head._rope(masks))[None]
    out = attend(q, k[None], v[None], anchors[None], mk[None], mv[None])[0]
    return real, layer.finish(out, m_residual), anchors


def _copy_depths(
    head: DraftHead,
    examples: list[dict],
    centred: torch.Tensor,
    whiten: torch.Tensor,
    directions: torch.Tensor,
) -> None:
    """The second layer copies at depth d: what stood d tokens after the newest token before.

    A mask slot at depth d has looked up the newest token d - 1 places back; it searches the real
    slots for one that saw the same token d places back, and reads off that slot's next token.
    """
    c, layer = head.config, head.layers[1]
    dim, group = c.head_dim, c.heads // c.kv_heads
    slow = slow_pairs(head)
    unit = torch.ones(c.hidden)
    reals, masks, tokens_at, anchors_at = [], [], [], []
    for example in examples:
        tokens = example["tokens"].long()
        if len(tokens) - 1 - c.depth <= example["prompt_len"]:
            continue
        real, mask, anchors = _first_layer(head, example)
        first = max(map(max, COPIED_DEPTHS))
        reals.append(rms_norm(real[first:], unit, c.eps))
        masks.append(rms_norm(mask, unit, c.eps))
        # Row j holds the tokens j + 1 - d for d = 0, 1, ...: those that slot j can know of.
        slots = torch.arange(first, len(real))
        tokens_at.append(tokens[slots.unsqueeze(1) + 1 - torch.arange(first + 1)])
        anchors_at.append(tokens[anchors + 1])
    real, seen = torch.cat(reals), torch.cat(tokens_at)
    mask, newest = torch.cat(masks), torch.cat(anchors_at)
    values = directions[:dim]
    read = ridge(real, centred[seen[:, 0]] @ values.T)
    for g, depths in enumerate(COPIED_DEPTHS):
        rows = slice(g * dim, (g + 1) * dim)
        layer.v_proj.weight[rows] = read
        layer.k_proj.weight[rows] *= 0.2
        share = len(slow) // len(depths)
        scale = KEY_SCALE * len(depths) ** 0.25  # fewer dimensions, larger entries
        for h in range(g * group, (g + 1) * group):
            depth = depths[(h - g * group) % len(depths)]
            place = depths.index(depth)
            own = slow[place * share : (place + 1) * share]
            probe = whiten[: len(own)]
            mine = slice(h * dim, (h + 1) * dim)
            layer.k_proj.weight[g * dim + own] = scale * ridge(
                real, centred[seen[:, depth]] @ probe.T
            )
            # At this depth ask for the newest token; deeper, where this head sees a mask, for none.
            asked = [centred[newest] @ probe.T]
            asked += [torch.zeros_like(asked[0])] * (c.depth - depth)
            inputs = [mask[:, i - 2] for i in range(depth, c.depth + 1)]
            layer.q_proj.weight[mine] = 0.0
            layer.q_proj.weight[h * dim + own] = scale * ridge(torch.cat(inputs), torch.cat(asked))
            layer.o_proj.weight[:, mine] = COPY_STRENGTH / group * len(depths) * values.T


def _fit_output(
    head: DraftHead, examples: list[dict], centred: torch.Tensor, vocabulary: torch.Tensor
) -> None:
    """The output layer reads, by a linear fit over all depths, the drafted token's embedding."""
    c = head.config
    unit = torch.ones(c.hidden)
    streams, labels = [], []
    for example in examples:
        tokens = example["tokens"].long()
        n = len(tokens) - 1
        if n - c.depth <= example["prompt_len"]:
            continue
        anchors = torch.arange(example["prompt_len"] - 1, n - c.depth)
        states = example["hidden"][:n, state_columns(c.aux_layers)].flatten(1).float()
        first, later = head.parallel_streams(
            tokens[None], states[None], anchors[None], torch.arange(len(anchors))[None], c.depth
        )
        stream = torch.cat((first[0].unsqueeze(1), later[0]), dim=1)
        streams.append(rms_norm(stream, unit, c.eps).flatten(0, 1))
        drafted = anchors.unsqueeze(1) + torch.arange(c.depth) + 2
        labels.append(tokens[drafted].flatten())
    stream, label = torch.cat(streams), torch.cat(labels)
    read = ridge(stream, centred[label])
    head.lm_head.weight.copy_(OUTPUT_SCALE * centred[vocabulary] @ read)
