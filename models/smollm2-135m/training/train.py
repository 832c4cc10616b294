"""Train one head from scratch on the shards that exist.

    python train.py --target-path TARGET --shards work/shards --out work/peagle --parallel \
        --layers 2 --depth 8 --minutes 30

Every run writes OUT/checkpoint.pt (the newest), OUT/curve.csv and OUT/run.json. Shards that
appear while it runs are used from the next pass over the data on.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import time
from pathlib import Path

import torch
from copy_init import initialise_copying, ridge
from dataset import Batch, Replies, collate, epoch, state_scale
from decontaminate import Decontaminator
from head import DraftHead, HeadConfig
from muon import COEFFICIENTS, Muon
from target import Target

MASK_TOKEN = 3  # <repo_name>: never written in a chat, so its embedding marks a mask slot


def initialise(head: DraftHead, target: Target, vocabulary: torch.Tensor) -> None:
    """Random matrices, small output projections, the target's rows as the output layer."""
    c = head.config
    with torch.no_grad():
        head.lm_head.weight.copy_(target.lm_head[vocabulary] * 0.5)
        head.fc.weight.normal_(0, 0.3 / math.sqrt(head.fc.in_features))
        head.fc.weight[:, -c.hidden :] += torch.eye(c.hidden)
        for layer in head.layers:
            for module in layer.children():
                module.weight.normal_(0, 1 / math.sqrt(module.in_features))
            layer.o_proj.weight.mul_(0.1)
            layer.down_proj.weight.mul_(0.1)


def carry_over(
    rows: torch.Tensor, old: torch.Tensor, new: torch.Tensor, target: Target
) -> torch.Tensor:
    """The output rows for a new vocabulary: those of the old one, and guesses for new tokens.

    A guess is what a linear map from the target's rows to the trained rows gives.
    """
    guesses = target.lm_head[new] @ ridge(target.lm_head[old], rows).T
    place = {token: i for i, token in enumerate(old.tolist())}
    for i, token in enumerate(new.tolist()):
        if token in place:
            guesses[i] = rows[place[token]]
    return guesses


class Objective:
    """Cross-entropy to the target's distribution over the draft vocabulary, at each depth."""

    def __init__(self, target: Target, vocabulary: torch.Tensor, discount: float) -> None:
        """`discount`: weight of a draft's loss relative to that of the draft before it."""
        self.discount = discount
        self.rows = target.lm_head[vocabulary].contiguous()
        self.index = torch.full((target.embed.shape[0],), -1)
        self.index[vocabulary] = torch.arange(len(vocabulary))

    def __call__(
        self, logits: torch.Tensor, final: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean loss, correct) for logits (..., draft vocabulary).

        The loss is half soft (the target's probabilities, renormalised) and half hard (its
        choice); `correct` says where the greedy draft equals the target's token, bool (...).
        """
        with torch.no_grad():
            soft = (final @ self.rows.T).softmax(-1)
            drafted = self.index[labels]
        log_probs = logits.log_softmax(-1)
        soft_loss = -(soft * log_probs).sum(-1)
        known = drafted >= 0
        hard_loss = -log_probs.gather(-1, drafted.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        loss = torch.where(known, 0.5 * soft_loss + 0.5 * hard_loss, 0.5 * soft_loss)
        mean = (loss * weight).sum() / weight.sum().clamp(min=1)
        return mean, (logits.argmax(-1) == drafted) & known


def draft_targets(
    batch: Batch, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For slots (rows, ...): the target's final state, the token drafted there, and its weight."""
    rows = batch.tokens.shape[0]
    flat = slots.reshape(rows, -1)
    row_ids = torch.arange(rows).unsqueeze(1)
    inside = (flat + 2 <= batch.last.unsqueeze(1)).float()
    clamped = (flat + 1).clamp(max=batch.final.shape[1] - 1)
    final = batch.final[row_ids, clamped]
    labels = batch.tokens[row_ids, (flat + 2).clamp(max=batch.tokens.shape[1] - 1)]
    shape = slots.shape
    return final.view(*shape, -1), labels.view(shape), inside.view(shape)


def eagle_step(
    head: DraftHead, batch: Batch, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss, correct, valid) of EAGLE-3 drafts; the last two have shape (rows, anchors, depth)."""
    logits = head.eagle_logits(batch.tokens, batch.states, batch.anchors)
    losses, corrects, valids = [], [], []
    for step, scores in enumerate(logits):
        final, labels, inside = draft_targets(batch, batch.anchors + step)
        weight = batch.weight * inside
        loss, correct = objective(scores, final, labels, weight)
        losses.append(loss * objective.discount**step)
        corrects.append(correct)
        valids.append(weight > 0)
    return sum(losses), torch.stack(corrects, -1), torch.stack(valids, -1)


def parallel_step(
    head: DraftHead, batch: Batch, objective: Objective, chained: torch.Tensor, depth: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss, correct, valid) of P-EAGLE drafts; the last two only for the chained anchors."""
    first, later = map(
        head.logits,
        head.parallel_streams(batch.tokens, batch.states, batch.anchors, chained, depth),
    )
    final, labels, inside = draft_targets(batch, batch.anchors)
    loss, correct = objective(first, final, labels, batch.weight * inside)
    anchors = torch.gather(batch.anchors, 1, chained)
    weight_first = torch.gather(batch.weight, 1, chained)
    slots = anchors.unsqueeze(-1) + torch.arange(1, depth)
    final, labels, inside = draft_targets(batch, slots)
    weight = weight_first.unsqueeze(-1) * inside
    discounted = weight * objective.discount ** torch.arange(1, depth)
    later_loss, later_correct = objective(later, final, labels, discounted)
    # The mean over chains times the summed discounts: each depth weighs as in eagle_step.
    share = sum(objective.discount**d for d in range(1, depth))
    corrects = torch.cat((torch.gather(correct, 1, chained).unsqueeze(-1), later_correct), -1)
    valids = torch.cat((weight_first.unsqueeze(-1) > 0, weight > 0), -1)
    return loss + later_loss * share, corrects, valids


def sample_chains(batch: Batch, share: float, generator: torch.Generator) -> torch.Tensor:
    """Distinct anchors of each row from which mask slots follow, (rows, chains)."""
    n = max(1, round(share * batch.anchors.shape[1]))
    noise = torch.rand(batch.anchors.shape, generator=generator) + batch.weight
    return noise.topk(n, dim=1).indices


@torch.inference_mode()
def validate(
    head: DraftHead, rows: list[dict], target: Target, objective: Objective
) -> list[float]:
    """Share of held-out anchors whose drafts 1 to d are all right, for each depth d.

    With greedy drafting this is the acceptance by position, counted over all anchors rather than
    over those that a server would start from.
    """
    c = head.config
    hits, counts = torch.zeros(c.depth), torch.zeros(c.depth)
    for start in range(0, len(rows), 8):
        batch = collate(rows[start : start + 8], c.aux_layers, target.norm, c.eps, c.depth)
        if c.parallel:
            # A third of the anchors: mask slots are the costly ones.
            chained = torch.arange(0, batch.anchors.shape[1], 3).expand(len(batch.anchors), -1)
            _, correct, valid = parallel_step(head, batch, objective, chained, c.depth)
        else:
            _, correct, valid = eagle_step(head, batch, objective)
        run = correct.cumprod(-1)
        # After the end of a reply nothing can be accepted: count the anchor as a miss there.
        hits += (run * valid).sum(dim=(0, 1))
        counts += valid[..., :1].sum()
    return (hits / counts).tolist()


def learning_rate(progress: float, warmup: float = 0.03, floor: float = 0.02) -> float:
    """Factor in [0, 1] at a progress in [0, 1]: warm-up, constant, then a linear decline."""
    if progress < warmup:
        return progress / warmup
    decline_from = 0.4
    if progress < decline_from:
        return 1.0
    return floor + (1 - floor) * (1 - progress) / (1 - decline_from)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-path", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", type=Path, help="a checkpoint.pt to start from")
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--vocabulary", type=Path, required=True, help="of build_vocabulary.py")
    parser.add_argument("--parallel", action="store_true", help="P-EAGLE instead of EAGLE-3")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--depth", type=int, default=3, help="drafts in a row to train")
    parser.add_argument("--aux", type=int, nargs=3, default=(2, 15, 27))
    parser.add_argument("--intermediate", type=int, default=768)
    parser.add_argument("--minutes", type=float, default=30.0, help="the budget of the schedule")
    parser.add_argument("--steps", type=int, help="a budget in steps, for a repeatable run")
    parser.add_argument("--rows", type=int, default=12, help="examples a step")
    parser.add_argument("--chains", type=float, default=0.3, help="share of anchors with masks")
    parser.add_argument("--discount", type=float, default=0.85, help="of the loss by depth")
    parser.add_argument("--lr", type=float, default=0.02, help="of the matrices (Muon)")
    parser.add_argument("--muon", choices=COEFFICIENTS, default="classic")
    parser.add_argument("--adam-lr", type=float, default=6e-4, help="of the rest")
    parser.add_argument("--check-s", type=float, default=120.0, help="seconds between checks")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    target = Target(args.target_path)
    filter_ = Decontaminator.for_humaneval(args.humaneval)
    replies = Replies(args.shards, filter_)
    training, held_out = replies.split()
    held_out = held_out[:48]
    saved = torch.load(args.resume, weights_only=True) if args.resume else None
    vocabulary = torch.load(args.vocabulary, weights_only=True)
    scale = saved["scale"] if saved else state_scale(training, tuple(args.aux))
    config = HeadConfig(
        parallel=args.parallel,
        depth=args.depth,
        layers=args.layers,
        draft_vocab=len(vocabulary),
        aux_layers=tuple(args.aux),
        intermediate=args.intermediate,
        eps=target.eps,
    )
    head = DraftHead(config, target.embed, scale, MASK_TOKEN)
    if saved:
        rows = carry_over(saved["head"]["lm_head.weight"], saved["vocabulary"], vocabulary, target)
        head.load_state_dict(saved["head"] | {"lm_head.weight": rows})
    else:
        initialise(head, target, vocabulary)
        initialise_copying(head, training[:40], vocabulary)
    objective = Objective(target, vocabulary, args.discount)
    matrices = [p for n, p in head.named_parameters() if p.ndim == 2 and "lm_head" not in n]
    others = [p for n, p in head.named_parameters() if p.ndim != 2 or "lm_head" in n]
    muon = Muon(matrices, lr=args.lr, iteration=args.muon)
    adam = torch.optim.AdamW(others, lr=args.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)

    curve_path = args.out / "curve.csv"
    curve = curve_path.open("w", newline="")
    writer = csv.writer(curve)
    writer.writerow(
        ["step", "wall_s", "passes", "loss", *(f"heldout_pos{d}" for d in range(config.depth))]
    )
    start = time.monotonic()
    step, passes, anchors_seen, window = 0, 0, 0, []
    last_check = start

    def check() -> None:
        accepted = validate(head, held_out, target, objective)
        mean_loss = sum(window) / max(1, len(window))
        wall_s = time.monotonic() - start
        writer.writerow(
            [
                step,
                f"{wall_s:.0f}",
                f"{passes_now():.2f}",
                f"{mean_loss:.4f}",
                *(f"{a:.4f}" for a in accepted),
            ]
        )
        curve.flush()
        state = {
            "head": head.state_dict(),
            "config": config.to_dict(),
            "scale": scale,
            "vocabulary": vocabulary,
            "mask_token": MASK_TOKEN,
        }
        torch.save(state, args.out / "checkpoint.tmp")
        (args.out / "checkpoint.tmp").rename(args.out / "checkpoint.pt")
        lengths = " ".join(f"{a:.3f}" for a in accepted)
        print(
            f"step {step} {wall_s:.0f} s passes {passes_now():.2f} loss {mean_loss:.3f} "
            f"accepted {lengths} AL {1 + sum(accepted):.2f}",
            flush=True,
        )
        run = {
            "steps": step,
            "passes": round(passes_now(), 2),
            "wall_s": round(wall_s),
            "anchors_seen": anchors_seen,
            "examples": len(training),
            "examples_dropped_by_8gram_filter": replies.dropped,
            "reply_tokens": sum(len(e["tokens"]) - e["prompt_len"] for e in training),
            "prompt_tokens": sum(e["prompt_len"] for e in training),
            "arguments": {k: str(v) for k, v in vars(args).items()},
        }
        (args.out / "run.json").write_text(json.dumps(run, indent=1) + "\n")
        window.clear()

    in_pass = 0

    def passes_now() -> float:
        return passes + in_pass / max(1, len(training))

    def progress() -> float:
        if args.steps:
            return step / args.steps
        return (time.monotonic() - start) / (60 * args.minutes)

    while progress() < 1:
        for rows in epoch(training, args.rows, rng):
            if progress() >= 1:
                break
            factor = learning_rate(progress())
            for group in muon.param_groups:
                group["lr"] = args.lr * factor
            for group in adam.param_groups:
                group["lr"] = args.adam_lr * factor
            batch = collate(rows, config.aux_layers, target.norm, config.eps, config.depth)
            if config.parallel:
                # Half of the steps train short chains from many anchors, half full ones.
                short = rng.random() < 0.5 and config.depth > 4
                depth = 4 if short else config.depth
                chained = sample_chains(batch, args.chains * (1.6 if short else 1.0), generator)
                loss, _, _ = parallel_step(head, batch, objective, chained, depth)
            else:
                loss, _, _ = eagle_step(head, batch, objective)
            muon.zero_grad()
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(others, 1.0)
            muon.step()
            adam.step()
            step += 1
            in_pass += len(rows)
            anchors_seen += int(batch.weight.sum())
            window.append(loss.item())
            if time.monotonic() - last_check > args.check_s:
                check()
                last_check = time.monotonic()
        else:
            passes, in_pass = passes + 1, 0
            replies = Replies(args.shards, filter_)
            training = replies.split()[0]
    if window:
        check()


if __name__ == "__main__":
    main()
