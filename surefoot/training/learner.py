"""The update: from scored groups to optimiser steps. It sees no text and no reward function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.algorithms import kl
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.finite import require_finite
from surefoot.algorithms.loss import loss_terms
from surefoot.algorithms.tokens import Tokens
from surefoot.batches import Packed
from surefoot.errors import NonFiniteError
from surefoot.metrics import StepReport
from surefoot.policy.layout import Layout, usable
from surefoot.policy.logprob import TokenLogprobs, token_logprobs
from surefoot.policy.packing import count, loss_mask, pack
from surefoot.policy.policy import Policy
from surefoot.seeds import generator
from surefoot.training.batch import Batch, make_batch
from surefoot.training.clock import Clock
from surefoot.training.config import RunConfig
from surefoot.training.critic import CriticLearner, explained_variance
from surefoot.training.details import Details
from surefoot.training.gradients import Gradients
from surefoot.training.optimiser import learning_rate, take_step
from surefoot.training.state import RunState
from surefoot.training.streams import (
    REFERENCE,
    RowValues,
    Streams,
    behaviour_logprobs,
    on_tokens,
    refuse_non_finite,
    row_logprobs,
    token_weights,
)
from surefoot.types import Group, Sample


@dataclass
class Update:
    """What the optimiser steps of one rollout batch share.

    Attributes:
        old: log-probabilities under the policy that starts the update, [L_i] for each row; empty where they are not known.
            The first step fills in those of its own rows. None where it is the only step, which needs none.
        first: no step was taken yet.
    """

    batch: Batch
    streams: Streams
    old: RowValues | None
    state: RunState
    report: StepReport
    clock: Clock
    first: bool = True


@dataclass
class Learner:
    """The policy, its optimiser and its objective.

    Attributes:
        policy: the model that is trained.
        reference: the frozen model of the KL term; None where the algorithm uses none.
        optimiser: over the policy's parameters.
        algorithm: the objective.
        config: of the run.
        critic: where the algorithm reads one.
        details: what the last update computed of single tokens, for the samples that are written with theirs.
    """

    policy: Policy
    reference: Policy | None
    optimiser: torch.optim.Optimizer
    algorithm: Algorithm
    config: RunConfig
    critic: CriticLearner | None = field(default=None)
    details: Details | None = field(default=None)

    def update(self, groups: Sequence[Group], state: RunState, clock: Clock) -> tuple[Batch, StepReport]:
        """Take the optimiser steps of one rollout batch.

        Raises:
            NonFiniteError: a log-probability, a value, an advantage, a loss or a gradient is not finite; with its name and the
                number of the rollout batch.
        """
        try:
            return self._update(groups, state, clock)
        except NonFiniteError as error:
            raise NonFiniteError(f"step {state.step}: {error}") from error

    def _update(self, groups: Sequence[Group], state: RunState, clock: Clock) -> tuple[Batch, StepReport]:
        report = StepReport()
        with clock.phase("logprob"):
            streams = self._streams([sample for group in groups for sample in group.samples], report)
        budget = self.config.rollout.max_new_tokens
        batch = make_batch(self.algorithm, groups, state.memory, step=state.step, budget=budget, streams=streams)
        if self.algorithm.kl_in_reward and kl.MEMORY in state.memory:
            report.add("reward/kl_coef", state.memory[kl.MEMORY])  # of the next step
        with clock.phase("logprob"):
            old = self._old(batch, streams, state.step, report)
        update = Update(batch, streams, old, state, report, clock)
        wanted = min(self.config.track.token_details, self.config.track.samples_per_step)
        self.details = Details(self.algorithm, wanted, self.config.train.old == "recompute") if wanted else None
        for epoch in range(self.config.train.epochs):
            for rows in self._mini_batches(batch, state.step, epoch):
                self._optimiser_step(update, rows)
        # A row that was not graded has its values for returns, which would look like a perfect prediction.
        rows = np.flatnonzero(batch.trained & np.isfinite(batch.reward))
        if batch.returns is not None and streams.values is not None and len(rows):
            values = torch.cat([streams.values[i].cpu() for i in rows])
            returns = torch.from_numpy(np.concatenate([batch.returns[i] for i in rows]))
            report.add("critic/explained_variance", explained_variance(values, returns))
        return batch, report

    @cached_property
    def layout(self) -> Layout:
        """How rows lie in a forward pass of the policy."""
        return usable(self.policy.model, self.config.train.layout)

    def modules(self) -> dict[str, nn.Module]:
        """The models that the run state holds, by name; the reference too, which a reset may have changed."""
        found: dict[str, nn.Module] = {"model": self.policy.model}
        if self.critic is not None:
            found |= self.critic.modules()
        if self.reference is not None:
            found["reference"] = self.reference.model
        return found

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"model": self.optimiser} | ({} if self.critic is None else self.critic.optimisers())

    def _streams(self, samples: Sequence[Sample], report: StepReport) -> Streams:
        """The passes before the update, those that the algorithm needs."""
        train, algorithm = self.config.train, self.algorithm
        limit, layout = train.micro_batch_tokens, self.layout
        entropy = "entropy" in algorithm.weights.kind.traits
        old = entropies = reference = values = None
        weighted = self._several and "idle" not in algorithm.weights.kind.traits
        if (algorithm.kl_in_reward or weighted) and not entropy and train.old == "behaviour":
            old = behaviour_logprobs(samples, self.policy.device)
        if old is None and (algorithm.kl_in_reward or entropy or weighted):
            old, entropies = row_logprobs(self.policy, samples, max_tokens=limit, layout=layout, entropy=entropy)
            report.total("tokens/scored", sum(map(len, samples)))
        if algorithm.kl_in_reward and self.reference is not None:
            reference, _ = row_logprobs(self.reference, samples, max_tokens=limit, layout=layout, whose=REFERENCE)
            report.total("tokens/scored", sum(map(len, samples)))
        if self.critic is not None:
            values = self.critic.values(samples, limit, layout)
            report.total("tokens/scored", sum(map(len, samples)))
        return Streams(old, entropies, reference, values)

    @property
    def _several(self) -> bool:
        return self.config.train.updates_per_step * self.config.train.epochs > 1

    def _old(self, batch: Batch, streams: Streams, step: int, report: StepReport) -> RowValues | None:
        """Log-probabilities of the rows that are trained after the weights have moved and not before."""
        if streams.old is not None or not self._several:
            return streams.old
        if self.config.train.old == "behaviour" and (held := behaviour_logprobs(batch.samples, self.policy.device)):
            return held
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *self._mini_batches(batch, step, 0)[1:]])
        if self.algorithm.silent_without_advantage(on_policy=False):
            rows = rows[~batch.silent[rows]]
        limit, samples = self.config.train.micro_batch_tokens, [batch.samples[i] for i in rows]
        found, _ = row_logprobs(self.policy, samples, max_tokens=limit, layout=self.layout)
        report.total("tokens/scored", sum(map(len, samples)))
        known = dict(zip(rows.tolist(), found, strict=True))
        empty = torch.zeros(0, device=self.policy.device)
        return [known.get(i, empty) for i in range(len(batch.samples))]

    def _mini_batches(self, batch: Batch, step: int, epoch: int) -> list[np.ndarray]:
        """Rows of whole groups, shuffled afresh in every epoch where there is more than one mini-batch."""
        groups = np.unique(batch.group[batch.trained])
        if self.config.train.updates_per_step > 1:
            groups = generator(self.config.seed, "mini-batches", step, epoch).permutation(groups)
        parts = np.array_split(groups, self.config.train.updates_per_step)
        return [np.flatnonzero(np.isin(batch.group, part) & batch.trained) for part in parts if len(part)]

    def _optimiser_step(self, update: Update, rows: np.ndarray) -> None:
        batch, report, state = update.batch, update.report, update.state
        samples = [batch.samples[i] for i in rows]
        masks = [loss_mask(sample) for sample in samples]
        group = batch.group[rows].tolist()
        totals = count(samples, group, self.config.rollout.max_new_tokens)
        advantage: list[float] | list[np.ndarray] = batch.advantage[rows].tolist()
        if batch.token_advantage is not None:
            advantage = [on_tokens(mask, batch.token_advantage[i]) for mask, i in zip(masks, rows, strict=True)]
        # A row without advantage and without another term in its loss has no gradient: it stays in the totals and skips
        # the forward pass.
        on_policy = update.old is None
        skip = batch.silent[rows] & self.algorithm.silent_without_advantage(on_policy=on_policy)
        limit = self.config.train.micro_batch_tokens
        weight = token_weights(self.algorithm, update.streams, rows, masks)
        packs = pack(
            samples, advantage, group, totals, max_tokens=limit, layout=self.layout, skip=skip.tolist(), weight=weight
        )
        report.add("updates/taken", bool(packs))
        if not packs:
            return
        gradients = Gradients(self.policy.model, apart=self._measures_policy_term(state.step))
        sums = StepReport()
        for packed in packs:
            packed = packed.to(self.policy.device)
            with update.clock.phase("train"):
                current = self._forward(packed)
                tokens = self._tokens(current, packed, update, rows)
                terms = loss_terms(self.algorithm, tokens, totals)
                if self.details is not None:
                    self.details.see(tokens, [rows[i] for i in packed.sample_index.tolist()])
                value = self._value_loss(current, packed, update, rows, terms.coefficient, terms.report)
                gradients.add(terms.policy, [term for term in (terms.kl, value) if term is not None])
            report.total("tokens/trained", int(packed.mask.sum()))
            apart = self.critic is not None and not self.critic.critic.shared
            report.total("tokens/updated", len(packed.ids) * (2 if apart else 1))
            sums.merge(terms.report)
        update.first = False
        for name, loss in sums.sums.items():
            report.add(name, loss)  # the mean over the optimiser steps of the batch
        sums.sums.clear()
        report.merge(sums)
        with update.clock.phase("train"):
            self._step(gradients, state, report)

    def _measures_policy_term(self, step: int) -> bool:
        """Whether this step takes the gradient of the policy term apart from the other terms, to measure it."""
        every = self.config.track.policy_grad_norm
        return bool(every) and step % every == 0

    def _step(self, gradients: Gradients, state: RunState, report: StepReport) -> None:
        train, settings = self.config.train, self.config.optimiser
        norm = gradients.policy_norm()
        if norm is not None:
            report.add("optimiser/policy_grad_norm", norm)
        gradients.join()
        if self.critic is not None:
            report.add("critic/grad_norm", self.critic.step(state.step, train.steps))
            if self.critic.alone(state.step):
                self.optimiser.zero_grad(set_to_none=True)
                return
        lr = learning_rate(settings, state.step, train.steps)
        whole = take_step(self.optimiser, self.policy.model, lr=lr, max_grad_norm=settings.max_grad_norm)
        state.updates += 1
        report.add("optimiser/grad_norm", whole)
        report.add("optimiser/lr", lr)

    def _forward(self, packed: Packed) -> TokenLogprobs:
        """The current log-probabilities of a micro-batch, and what else comes out of the same pass."""
        top = packed.top_ids
        current = token_logprobs(
            self.policy,
            packed,
            layout=self.layout,
            top_ids=None if top is None else top[packed.mask],
            hidden=self.critic is not None and self.critic.critic.shared,
        )
        refuse_non_finite(current.logp, packed, self.policy)
        return current

    def _tokens(self, current: TokenLogprobs, packed: Packed, update: Update, rows: np.ndarray) -> Tokens:
        """The log-probabilities of a micro-batch, beside all that the objective compares them with."""
        mask = packed.mask
        behaviour, detached = packed.logp_behaviour[mask], current.logp.detach()
        if update.first:
            # Before the first step of a batch the weights are those of the engine: this difference is pure mismatch.
            trusted = behaviour.isfinite()
            drift = (detached - behaviour)[trusted].abs()
            update.report.add("policy/mismatch", drift.sum(), len(drift))
            update.report.maximum("policy/mismatch_max", drift.max() if len(drift) else 0.0)
        reference = None
        if self.reference is not None and self.algorithm.kl_in_loss:
            with update.clock.phase("logprob"), torch.no_grad():
                reference = token_logprobs(self.reference, packed, layout=self.layout, entropy=False).logp
            refuse_non_finite(reference, packed, self.reference, f"{REFERENCE} log-probability")
            update.report.total("tokens/scored", len(packed.ids))
        top = packed.top_ids
        return Tokens(
            logp=current.logp,
            logp_old=self._old_of(detached, packed, update, rows),
            logp_behaviour=behaviour,
            advantage=packed.advantage[mask],
            row=packed.seq_index[mask],
            loss_tokens=packed.loss_tokens,
            group_tokens=packed.group_tokens,
            logp_reference=reference,
            entropy=current.entropy,
            weight=None if "idle" in self.algorithm.weights.kind.traits else packed.weight[mask],
            kept_logmass=packed.kept_logmass[mask],
            top_logp=current.top_logp,
            top_logp_behaviour=None if packed.top_logp_behaviour is None else packed.top_logp_behaviour[mask],
            top_is_target=None if top is None else top[mask] == packed.ids[mask, None],
        )

    def _old_of(self, detached: Tensor, packed: Packed, update: Update, rows: np.ndarray) -> Tensor:
        """[M] log-probabilities under the policy that starts the update: before the first step those of the policy itself.

        Rows whose values are not known yet get those of the first step, row by row: others beside them keep theirs.
        """
        if update.old is None:
            return detached
        index = [rows[i] for i in packed.sample_index.tolist()]
        for i, part in zip(index, detached.split(packed.loss_tokens.long().tolist()), strict=True):
            if not len(update.old[i]):
                assert update.first, f"row {i} has no log-probability under the policy before the step that was taken"
                update.old[i] = part
        return torch.cat([update.old[i] for i in index])

    def _value_loss(
        self,
        current: TokenLogprobs,
        packed: Packed,
        update: Update,
        rows: np.ndarray,
        coefficient: Tensor,
        report: StepReport,
    ) -> Tensor | None:
        """The critic's loss, aggregated as the policy's. That of a critic with a model of its own goes backward here."""
        if self.critic is None or update.streams.values is None or update.batch.returns is None:
            return None
        places = [rows[i] for i in packed.sample_index.tolist()]
        values = self.critic.predict(packed, current.hidden, self.layout)
        old = torch.cat([update.streams.values[i] for i in places])
        returns = torch.from_numpy(np.concatenate([update.batch.returns[i] for i in places])).to(values)
        refuse_non_finite(values, packed, self.policy, "the critic's value")
        refuse_non_finite(returns, packed, self.policy, "the return that the critic learns")
        loss = (coefficient * self.algorithm.value(values, old, returns)).sum()
        require_finite({"the critic's loss": loss})
        report.total("loss/value", loss.detach())
        report.add("critic/value", values.detach().sum(), len(values))
        report.add("critic/return", returns.sum(), len(returns))
        if self.critic.critic.shared:
            return self.algorithm.value.coef * loss
        loss.backward()
        return None
