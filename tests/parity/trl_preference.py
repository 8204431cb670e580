"""Losses of preference pairs and labelled completions against TRL's trainers, in value and gradient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from surefoot.algorithms.preference_objective import PreferenceObjective, preference_loss
from surefoot.algorithms.preference_pairs import Labelled, Pairs
from surefoot.algorithms.preference_presets import PREFERENCES
from tests.parity.batches import Batch, random_batch
from tests.parity.registry import FLOAT32, Outcome, compare
from tests.parity.trl_side import accelerator, config

DPO, KTO = "DPOTrainer._compute_loss", "KTOTrainer._compute_loss"


def pairs(seed: int) -> Batch:
    """Four pairs: the first four rows are the chosen completions."""
    return random_batch(seed, sizes=(4, 4), holes=False, drift=0.8)


def completions(batch: Batch, logp: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the completions, and their lengths."""
    return torch.where(batch.mask, logp, 0.0).sum(1), batch.lengths


def result(logp: Tensor, loss: Tensor) -> dict[str, Tensor]:
    loss.backward()
    assert logp.grad is not None
    return {"loss": loss.detach(), "gradient": logp.grad}


def ours(objective: PreferenceObjective, batch: Batch, *, plus: float = 0.0) -> dict[str, Tensor]:
    """The loss of the pairs and its gradient [B, T] with respect to the log-probabilities of the tokens."""
    logp = batch.logp.clone().requires_grad_()
    total, lengths = completions(batch, logp)
    reference = completions(batch, batch.reference)[0].chunk(2) if objective.needs_reference else (None, None)
    found = Pairs(*total.chunk(2), *reference, *lengths.chunk(2))
    return result(logp, preference_loss(objective, found)[0] + plus)


def model_of(batch: Batch, logp: Tensor) -> Callable[..., Any]:
    """What a trainer calls as its model, on rows of one prompt token and a completion."""

    def forward(**_: Any) -> Any:
        per_token = torch.where(batch.mask, logp, 0.0)
        extras = {"entropy": batch.entropy, "mean_logits": batch.values, "is_top1": batch.mask}
        return SimpleNamespace(log_probs=per_token, **extras)

    return forward


def trainer_of(kind: str, batch: Batch, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A trainer without a model, and the inputs of its loss."""
    import trl

    args = config(f"{kind}Config", **options)
    made = getattr(trl, f"{kind}Trainer")
    trainer = made.__new__(made)
    trainer.args, trainer.accelerator = args, accelerator()
    trainer.model = torch.nn.Identity().eval()
    trainer.model.is_gradient_checkpointing = False
    trainer.aux_loss_enabled = trainer.precompute_ref_logps = False
    trainer.ref_model = model_of(batch, batch.reference)
    trainer.beta, trainer._total_train_tokens = args.beta, 0
    trainer._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    prompt = torch.ones(len(batch.mask), 1, dtype=torch.long)
    mask = torch.cat([0 * prompt, batch.mask.long()], 1)
    return trainer, {"input_ids": torch.ones_like(mask), "attention_mask": mask, "completion_mask": mask}


def dpo(
    batch: Batch, *losses: str, beta: float = 0.1, weights: list[float] | None = None, **options: Any
) -> dict[str, Tensor]:
    trainer, inputs = trainer_of("DPO", batch, beta=beta, loss_type=list(losses), **options)
    trainer.loss_types, trainer.loss_weights = list(losses), weights or [1.0] * len(losses)
    trainer.label_smoothing, trainer.f_divergence_type = trainer.args.label_smoothing, trainer.args.f_divergence_type
    trainer.ld_alpha, trainer.use_weighting = trainer.args.ld_alpha, False
    logp = batch.logp.clone().requires_grad_()
    return result(logp, trainer._compute_loss(model_of(batch, logp), inputs, False))


def same(name: str, loss: str, seed: int) -> Outcome:
    batch, objective = pairs(seed), PREFERENCES[name]
    return Outcome(ours(objective, batch), dpo(batch, loss, beta=objective.loss.beta))


@compare("trl", "dpo", "loss `sigmoid`", DPO)
def preference_dpo(name: str, seed: int) -> Outcome:
    return same(name, "sigmoid", seed)


@compare("trl", "dpo", "loss `sigmoid_norm`: `length_normalise=true`", DPO)
def preference_dpo_by_length(name: str, seed: int) -> Outcome:
    batch = pairs(seed)
    return Outcome(ours(PREFERENCES["dpo"].but(loss={"length_normalise": True}), batch), dpo(batch, "sigmoid_norm"))


@compare("trl", "hinge", "loss `hinge`", DPO)
def preference_hinge(name: str, seed: int) -> Outcome:
    return same(name, "hinge", seed)


@compare("trl", "nca", "loss `nca_pair`", DPO)
def preference_nca(name: str, seed: int) -> Outcome:
    return same(name, "nca_pair", seed)


@compare("trl", "sppo_hard", "loss `sppo_hard`", DPO)
def preference_sppo_hard(name: str, seed: int) -> Outcome:
    return same(name, "sppo_hard", seed)


@compare("trl", "bco", "loss `bco_pair`", DPO)
def preference_bco(name: str, seed: int) -> Outcome:
    return same(name, "bco_pair", seed)


@compare("trl", "cal_dpo", "losses `sigmoid` and `sppo_hard` added, at beta 1", DPO)
def preference_cal_dpo(name: str, seed: int) -> Outcome:
    batch = pairs(seed)
    return Outcome(
        ours(PREFERENCES["cal_dpo"].but(loss={"beta": 1.0}), batch), dpo(batch, "sigmoid", "sppo_hard", beta=1.0)
    )


@compare("trl", "ipo", "loss `ipo`", DPO, differs="TRL divides the log-ratios by the lengths (`length_normalise=true`)")
def preference_ipo(name: str, seed: int) -> Outcome:
    batch = pairs(seed)
    changed = PREFERENCES["ipo"].but(loss={"length_normalise": True})
    return Outcome(ours(PREFERENCES["ipo"], batch), dpo(batch, "ipo"), ours(changed, batch))


def shifted(name: str, seed: int) -> Outcome:
    batch, objective = pairs(seed), PREFERENCES[name]
    return Outcome(ours(objective, batch), dpo(batch, name), ours(objective, batch, plus=1.0))


@compare("trl", "apo_zero", "loss `apo_zero`", DPO, differs="TRL's value is larger by 1; the gradient is the same")
def preference_apo_zero(name: str, seed: int) -> Outcome:
    return shifted(name, seed)


@compare("trl", "apo_down", "loss `apo_down`", DPO, differs="TRL's value is larger by 1; the gradient is the same")
def preference_apo_down(name: str, seed: int) -> Outcome:
    return shifted(name, seed)


@compare("trl", "kto", "loss `kto` with unequal weights", KTO)
def preference_kto(name: str, seed: int) -> Outcome:
    batch = random_batch(seed, sizes=(5, 3), holes=False, drift=0.8)
    desirable = batch.group == 0
    other = random_batch(seed + 100, sizes=(5, 3), holes=False, drift=0.8)  # completions under other prompts
    point = completions(other, other.logp)[0] - completions(other, other.reference)[0]
    logp = batch.logp.clone().requires_grad_()
    labelled = Labelled(completions(batch, logp)[0], completions(batch, batch.reference)[0], desirable, point)
    objective = PREFERENCES["kto"].but(loss={"weight_desirable": 1.3, "weight_undesirable": 0.7})
    have = result(logp, preference_loss(objective, labelled)[0])
    trainer, inputs = trainer_of("KTO", batch, desirable_weight=1.3, undesirable_weight=0.7)
    trainer.loss_type, trainer.calculate_KL = "kto", True
    trainer.desirable_weight, trainer.undesirable_weight = 1.3, 0.7
    found = iter((completions(other, other.logp)[0], completions(other, other.reference)[0]))
    trainer._compute_kl_logps = lambda *_: next(found)
    logp = batch.logp.clone().requires_grad_()
    want = trainer._compute_loss(model_of(batch, logp), {**inputs, "label": desirable}, False)
    return Outcome(have, result(logp, want))


def odds_trainer(kind: str, **options: Any) -> Any:
    """An ``ORPOTrainer`` or ``CPOTrainer``, which TRL keeps among its experiments."""
    import importlib

    made = getattr(importlib.import_module(f"trl.experimental.{kind.lower()}"), f"{kind}Trainer")
    trainer = made.__new__(made)
    trainer.accelerator, trainer.aux_loss_enabled, trainer.is_encoder_decoder = accelerator(), False, False
    for name, value in options.items():
        setattr(trainer, name, value)
    return trainer


def cpo(batch: Batch, by_length: bool, **options: Any) -> dict[str, Tensor]:
    """``cpo_loss`` of sums of log-probabilities, or of their means."""
    settings = {"label_smoothing": 0.0, "alpha": 0.0, "simpo_gamma": 0.0, **options}
    trainer = odds_trainer("CPO", **settings)
    logp = batch.logp.clone().requires_grad_()
    total, lengths = completions(batch, logp)
    given = total / lengths if by_length else total
    return result(logp, trainer.cpo_loss(*given.chunk(2))[0].mean())


@compare("trl", "simpo", "loss `simpo`", "CPOTrainer.cpo_loss")
def preference_simpo(name: str, seed: int) -> Outcome:
    batch, loss = pairs(seed), PREFERENCES["simpo"].loss
    theirs = cpo(batch, True, loss_type="simpo", beta=loss.beta, simpo_gamma=loss.gamma)
    return Outcome(ours(PREFERENCES["simpo"], batch), theirs)


@compare("trl", "cdpo", "loss `sigmoid` of CPO with label smoothing, beside a uniform reference", "CPOTrainer.cpo_loss")
def preference_cdpo(name: str, seed: int) -> Outcome:
    batch, loss = pairs(seed), PREFERENCES["cdpo"].loss
    batch = replace(batch, reference=torch.zeros_like(batch.logp))
    theirs = cpo(batch, False, loss_type="sigmoid", beta=loss.beta, label_smoothing=loss.label_smoothing)
    return Outcome(ours(PREFERENCES["cdpo"], batch), theirs)


@compare("trl", "orpo_align", "odds ratio at beta 1", "ORPOTrainer.odds_ratio_loss", tolerance=FLOAT32)
def preference_odds_ratio(name: str, seed: int) -> Outcome:
    batch = pairs(seed)
    logp = batch.logp.clone().requires_grad_()
    total, lengths = completions(batch, logp)
    theirs = odds_trainer("ORPO", beta=1.0).odds_ratio_loss(*(total / lengths).chunk(2))[0]
    return Outcome(ours(PREFERENCES["orpo_align"].but(loss={"beta": 1.0}), batch), result(logp, -theirs.mean()))


def orpo_rows(seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Four pairs with prompts of two tokens as TRL's batch, their ids, and logits [8, T, V] for them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (8,), generator=generator)
    width = 2 + int(lengths.max())
    ids = torch.randint(0, 11, (8, width), generator=generator)
    attended = torch.arange(width) < 2 + lengths[:, None]
    labels = torch.where(attended & (torch.arange(width) >= 2), ids, -100)
    batch = {"prompt_input_ids": ids[:4, :2], "prompt_attention_mask": attended[:4, :2].long()}
    for name, rows in (("chosen", slice(0, 4)), ("rejected", slice(4, 8))):
        batch |= {f"{name}_input_ids": ids[rows], f"{name}_attention_mask": attended[rows].long()}
        batch[f"{name}_labels"] = labels[rows]
    return batch, labels, torch.randn(8, width, 11, generator=generator, dtype=torch.float64)


@compare(
    "trl",
    "orpo",
    "the whole loss, from logits",
    "ORPOTrainer.get_batch_loss_metrics ORPOTrainer.concatenated_forward",
    differs="TRL's supervised term is the mean over the tokens of prompts and completions of the batch, Surefoot's the mean "
    "over pairs of the mean over the completion's tokens",
    tolerance=FLOAT32,
)
def preference_orpo(name: str, seed: int) -> Outcome:
    batch, labels, logits = orpo_rows(seed)
    objective = PREFERENCES["orpo"]

    def from_logits(pooled: bool) -> dict[str, Tensor]:
        leaf = logits.clone().requires_grad_()
        target, found = labels[:, 1:], log_softmax(leaf[:, :-1], -1)
        logp = found.gather(-1, target.clamp(min=0)[..., None])[..., 0] * (target >= 0)
        total, lengths = logp.sum(1), (target >= 0).sum(1)
        given = Pairs(*total.chunk(2), None, None, *lengths.chunk(2))
        if not pooled:
            return result(leaf, preference_loss(objective, given)[0])
        odds = PREFERENCES["orpo_align"].but(loss={"beta": 1.0})
        attended = torch.cat([batch["chosen_attention_mask"], batch["rejected_attention_mask"]])[:4, 1:].bool()
        supervised = cross_entropy(leaf[:4, :-1][attended], batch["chosen_input_ids"][:, 1:][attended])
        return result(leaf, supervised + objective.loss.weight * preference_loss(odds, given)[0])

    leaf = logits.clone().requires_grad_()
    trainer = odds_trainer("ORPO", beta=objective.loss.weight, padding_value=0, pad_token_id=0)
    loss, _ = trainer.get_batch_loss_metrics(lambda *_, **__: SimpleNamespace(logits=leaf), batch)
    return Outcome(from_logits(False), result(leaf, loss), from_logits(True))
