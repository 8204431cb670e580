"""The update: from scored groups to optimiser steps. It sees no text and no reward function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import NonFiniteError
from surefoot.metrics import StepReport
from surefoot.policy.loading import Policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.seeds import generator
from surefoot.training.batch import Batch, make_batch
from surefoot.training.clock import Clock
from surefoot.training.config import RunConfig
from surefoot.training.optimiser import learning_rate, take_step
from surefoot.training.state import RunState
from surefoot.types import Group, Packed, Sample, Totals


@dataclass
class Learner:
    """The policy, its optimiser and its objective.

    Attributes:
        policy: the model that is trained.
        reference: the frozen model of the KL term; None where the algorithm uses none.
        optimiser: over the policy's parameters.
        algorithm: the objective.
        config: of the run.
    """

    policy: Policy
    reference: Policy | None
    optimiser: torch.optim.Optimizer
    algorithm: Algorithm
    config: RunConfig

    def update(self, groups: Sequence[Group], state: RunState, clock: Clock) -> tuple[Batch, StepReport]:
        """Take the optimiser steps of one rollout batch.

        Raises:
            NonFiniteError: a log-probability or a gradient is not finite.
        """
        train = self.config.train
        report = StepReport()
        samples = [sample for group in groups for sample in group.samples]
        with clock.phase("logprob"):
            in_reward = self.algorithm.needs_reference and "reward" in self.algorithm.kl.kind.traits
            several = train.updates_per_step * train.epochs > 1
            old = self.row_logprobs(self.policy, samples) if several or in_reward else None
            penalty = self._penalty(samples, old, report) if in_reward and old is not None else None
        batch = make_batch(self.algorithm, groups, state.memory, penalty)
        first = True
        for epoch in range(train.epochs):
            for rows in self._mini_batches(batch, state.step, epoch):
                self._optimiser_step(batch, rows, old, state, report, clock, first)
                first = False
        return batch, report

    def _mini_batches(self, batch: Batch, step: int, epoch: int) -> list[np.ndarray]:
        """Rows of whole groups, shuffled afresh in every epoch where there is more than one mini-batch."""
        groups = np.unique(batch.group[batch.kept])
        if self.config.train.updates_per_step > 1:
            groups = generator(self.config.seed, "mini-batches", step, epoch).permutation(groups)
        parts = np.array_split(groups, self.config.train.updates_per_step)
        return [np.flatnonzero(np.isin(batch.group, part) & batch.kept) for part in parts if len(part)]

    def _optimiser_step(
        self,
        batch: Batch,
        rows: np.ndarray,
        old: list[Tensor] | None,
        state: RunState,
        report: StepReport,
        clock: Clock,
        first: bool,
    ) -> None:
        samples = [batch.samples[i] for i in rows]
        group = batch.group[rows].tolist()
        advantage = batch.advantage[rows]
        totals = count(samples, group, self.config.rollout.max_new_tokens)
        in_loss = self.algorithm.needs_reference and "loss" in self.algorithm.kl.kind.traits
        # A row with advantage 0 and no KL in its loss has no gradient: it stays in the totals and skips the forward.
        skip = np.zeros(len(rows), dtype=bool) if in_loss else advantage == 0
        packs = pack(
            samples,
            advantage.tolist(),
            group,
            totals,
            max_tokens=self.config.train.micro_batch_tokens,
            skip=skip.tolist(),
        )
        report.add("updates/taken", bool(packs))
        if not packs:
            return
        loss_parts: dict[str, float] = {}
        for packed in packs:
            packed = packed.to(self.policy.device)
            with clock.phase("train"):
                loss, metrics = policy_loss(
                    self.algorithm, self._tokens(packed, rows, old, clock, report, first), totals
                )
                loss.backward()
            report.total("tokens/trained", int(packed.mask.sum()))
            for name, value in metrics.sums.items():
                loss_parts[name] = loss_parts.get(name, 0.0) + value
            metrics.sums.clear()
            report.merge(metrics)
        for name, value in loss_parts.items():
            report.add(name, value)  # the mean over the optimiser steps of the batch
        with clock.phase("train"):
            lr = learning_rate(self.config.optimiser, state.step, self.config.train.steps)
            norm = take_step(
                self.optimiser, self.policy.model, lr=lr, max_grad_norm=self.config.optimiser.max_grad_norm
            )
        state.updates += 1
        report.add("optimiser/grad_norm", norm)
        report.add("optimiser/lr", lr)

    def _tokens(
        self, packed: Packed, rows: np.ndarray, old: list[Tensor] | None, clock: Clock, report: StepReport, first: bool
    ) -> Tokens:
        """The current log-probabilities of a micro-batch, beside all that the objective compares them with."""
        current = token_logprobs(self.policy, packed, layout=self.config.train.layout)
        _refuse_non_finite(current.logp, packed, self.policy)
        mask = packed.mask
        behaviour = packed.logp_behaviour[mask]
        trusted = behaviour.isfinite()
        detached = current.logp.detach()
        if first:
            # Before the first step of a batch the weights are those of the engine: this difference is pure mismatch.
            report.add("policy/mismatch", (detached - behaviour)[trusted].abs().sum(), int(trusted.sum()))
            report.maximum("policy/mismatch_max", (detached - behaviour)[trusted].abs().max() if trusted.any() else 0.0)
        report.add("policy/untrusted_tokens", int((~trusted).sum()), len(trusted))
        reference = None
        if self.reference is not None and "loss" in self.algorithm.kl.kind.traits:
            with clock.phase("logprob"), torch.no_grad():
                reference = token_logprobs(self.reference, packed, layout=self.config.train.layout, entropy=False).logp
        index = packed.sample_index.tolist()
        return Tokens(
            logp=current.logp,
            logp_old=detached if old is None else torch.cat([old[rows[i]] for i in index]),
            logp_behaviour=torch.where(trusted, behaviour, detached),
            advantage=torch.where(trusted, packed.advantage[mask], 0.0),
            row=packed.seq_index[mask],
            loss_tokens=packed.loss_tokens,
            group_tokens=packed.group_tokens,
            logp_reference=reference,
            entropy=current.entropy,
        )

    def row_logprobs(self, policy: Policy, samples: Sequence[Sample]) -> list[Tensor]:
        """Log-probabilities of each sample's loss tokens under a policy, without a gradient: a tensor [L_i] per sample."""
        rows = [torch.zeros(0, device=policy.device)] * len(samples)
        totals = Totals(float("inf"), 1, 1)
        numbers = list(range(len(samples)))
        with torch.no_grad():
            for packed in pack(
                samples, [0.0] * len(samples), numbers, totals, max_tokens=self.config.train.micro_batch_tokens
            ):
                packed = packed.to(policy.device)
                logp = token_logprobs(policy, packed, layout=self.config.train.layout, entropy=False).logp
                _refuse_non_finite(logp, packed, policy)
                parts = logp.split(packed.loss_tokens.long().tolist())
                for i, part in zip(packed.sample_index.tolist(), parts, strict=True):
                    rows[i] = part
        return rows

    def _penalty(self, samples: Sequence[Sample], old: list[Tensor], report: StepReport) -> list[float]:
        """The KL term of each row, to be subtracted from its reward."""
        assert self.reference is not None
        reference = self.row_logprobs(self.reference, samples)
        row = torch.repeat_interleave(torch.arange(len(old)), torch.tensor([len(part) for part in old]))
        flat = torch.cat(old)
        tokens = Tokens(
            logp=flat,
            logp_old=flat,
            logp_behaviour=flat,
            advantage=torch.zeros_like(flat),
            row=row,
            loss_tokens=torch.tensor([float(len(part)) for part in old], dtype=torch.float64),
            group_tokens=torch.zeros(len(old), dtype=torch.float64),
            logp_reference=torch.cat(reference),
        )
        penalty = self.algorithm.kl(tokens)
        report.add("reward/kl_penalty", penalty.sum(), len(penalty))
        return penalty.tolist()


def _refuse_non_finite(logp: Tensor, packed: Packed, policy: Policy) -> None:
    finite = torch.isfinite(logp.detach())
    if bool(finite.all()):
        return
    where = int((~finite).nonzero()[0])
    at = int(packed.mask.nonzero()[where])
    row = int(packed.seq_index[at])
    token = policy.tokenizer.convert_ids_to_tokens(int(packed.ids[at]))
    raise NonFiniteError(
        f"the trainer's log-probability is {float(logp.detach()[where])} at token {int(packed.positions[at])} ({token!r}) of row "
        f"{int(packed.sample_index[row])} of the batch; no step was taken: look for non-finite weights (a too high optimiser.lr)"
    )
