"""The rows of one wave: their random numbers, positions, mask and what has been drawn for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import NonFiniteError
from surefoot.rollout.engine import Request
from surefoot.rollout.sampling import Draw
from surefoot.rollout.waves import Wave
from surefoot.seeds import uniforms
from surefoot.types import Finish, Sample


class Rows:
    """What a wave knows of its rows. R rows, one per sample; n of them are in the batch.

    Attributes:
        repeats: [P] int64, rows of each prompt.
        uniform: [R, budget + 1] float64, the random numbers of every row.
        alive: [n] int64, which of the R rows each row of the batch is.
        step: [n] int64, tokens that each row of the batch has written. Rows that are over and have not left yet write
            into the column behind the budget, which no sample has.
        done: how many rows of the batch are over.
        over: [R] bool, rows that have written their last token.
        interrupted: [R] bool, rows that the phrase of the interruption is forced on.
    """

    def __init__(self, device: torch.device, wave: Wave, requests: Sequence[Request]) -> None:
        self.wave, self.requests, self.device = wave, requests, device
        self.budget = budget = wave.sampling.max_new_tokens
        self.counts = [part.stop - part.first for part in wave.parts]
        lengths = [len(requests[part.index].prompt_ids) for part in wave.parts]
        self.longest = max(lengths)
        self.repeats = torch.tensor(self.counts, device=device)
        self.lengths = torch.tensor(lengths, device=device)
        rows = sum(self.counts)
        seeds = [seed for part in wave.parts for seed in requests[part.index].seeds[part.first : part.stop]]
        drawn = uniforms(np.array(seeds, dtype=np.uint64)[:, None], np.arange(budget + 1)[None, :])
        self.uniform = torch.from_numpy(drawn).to(device)
        self.ids = torch.zeros((rows, budget + 1), dtype=torch.int64, device=device)
        self.logp = torch.zeros((rows, budget + 1), dtype=torch.float32, device=device)
        self.kept_logmass = torch.zeros((rows, budget + 1), dtype=torch.float32, device=device)
        self.top_ids: Tensor | None = None
        self.top_logp: Tensor | None = None
        self.interrupted = torch.zeros(rows, dtype=torch.bool, device=device)
        interrupt = wave.sampling.interrupt
        self.phrase = torch.tensor(() if interrupt is None else interrupt.phrase_ids, dtype=torch.int64, device=device)
        self.end = torch.full((rows,), budget, device=device)
        self.over = torch.zeros(rows, dtype=torch.bool, device=device)
        self.stopped = self.over.clone()
        self.stop_ids = torch.tensor(wave.sampling.stop_ids, dtype=torch.int64, device=device)
        self.alive = torch.zeros(0, dtype=torch.int64, device=device)
        self.step = self.alive.clone()
        self.admitted = 0
        self.done = 0

    def prompts(self, first: int, stop: int) -> list[np.ndarray]:
        """The prompts of the parts ``first`` to ``stop`` (exclusive)."""
        return [self.requests[part.index].prompt_ids for part in self.wave.parts[first:stop]]

    def admit(self, rows: int) -> None:
        """The next ``rows`` rows join the batch, behind those that are in it."""
        new = torch.arange(self.admitted, self.admitted + rows, device=self.device)
        self.admitted += rows
        self.alive = torch.cat([self.alive, new])
        self.step = torch.cat([self.step, torch.zeros_like(new)])

    @property
    def random(self) -> Tensor:
        """[n] float64, the random numbers of the next token."""
        return self.uniform[self.alive, self.step]

    def write(self, drawn: Draw) -> Tensor:
        """Record the next token of every row and return them, [n]: what was drawn, or what is forced on the row."""
        ids, alive, step = drawn.ids, self.alive, self.step
        running = step < self.budget
        running &= ~self.over[alive]
        free: Tensor = running
        if (interrupt := self.wave.sampling.interrupt) is not None:
            begins = running & (step == interrupt.after)
            if bool(begins.any()):
                self.interrupted[alive] |= begins & ~self._closed(interrupt.after, interrupt.close_ids)
            forced = self.interrupted[alive] & (step >= interrupt.after) & (step < interrupt.end)
            phrase = self.phrase[(step - interrupt.after).clamp(0, len(self.phrase) - 1)]
            ids = torch.where(forced, phrase, ids)
            free = running & ~forced  # a stop token in the phrase ends nothing
        self.ids[alive, step] = ids
        self.logp[alive, step] = drawn.logp
        self.kept_logmass[alive, step] = drawn.kept_logmass
        if drawn.top_ids is not None and drawn.top_logp is not None:
            self._write_top(drawn.top_ids, drawn.top_logp)
        stops = torch.isin(ids, self.stop_ids) & free
        step = step + 1
        ended = alive[stops]
        self.stopped[ended] = True
        self.end[ended] = step[stops]
        overs = stops | (running & (step == self.budget))
        self.over[alive[overs]] = True
        self.done += int(overs.sum())
        self.step = torch.where(self.over[alive], self.budget, step)
        return ids

    def _closed(self, written: int, close_ids: tuple[int, ...]) -> Tensor:
        """[n] bool, rows with ``close_ids`` one after another among the first tokens that they have written."""
        if not close_ids or len(close_ids) > written:
            return torch.zeros(len(self.alive), dtype=torch.bool, device=self.device)
        found = torch.ones((len(self.alive), written - len(close_ids) + 1), dtype=torch.bool, device=self.device)
        for place, token in enumerate(close_ids):
            found &= self.ids[self.alive, place : place + found.shape[1]] == token
        return found.any(dim=-1)

    def _write_top(self, top_ids: Tensor, top_logp: Tensor) -> None:
        if self.top_ids is None or self.top_logp is None:
            shape = (*self.ids.shape, top_ids.shape[-1])
            self.top_ids = torch.zeros(shape, dtype=torch.int32, device=self.device)
            self.top_logp = torch.zeros(shape, dtype=torch.float32, device=self.device)
        self.top_ids[self.alive, self.step] = top_ids.int()
        self.top_logp[self.alive, self.step] = top_logp

    def compact(self) -> Tensor:
        """[n'] int64, the rows of the batch that go on, those at its end moved into the gaps."""
        running = ~self.over[self.alive]
        count = len(self.alive) - self.done
        keep = torch.arange(count, device=self.device)
        keep[~running[:count]] = running[count:].nonzero().squeeze(-1) + count
        self.alive, self.step = self.alive[keep], self.step[keep]
        self.done = 0
        return keep

    def complete(self) -> list[int]:
        """Numbers of the parts whose rows are all over."""
        over = self.over.cpu().numpy()
        first = np.cumsum([0, *self.counts[:-1]])
        return np.flatnonzero(np.logical_and.reduceat(over, first)).tolist()

    def samples(self, version: int, first: int = 0, stop: int | None = None) -> list[Sample]:
        """One sample per row of the parts ``first`` to ``stop`` (exclusive; None: all), in order."""
        parts = self.wave.parts[first:stop]
        begin = sum(self.counts[:first])
        rows = slice(begin, begin + sum(part.stop - part.first for part in parts))
        ids, logp, kept_logmass = (x[rows].cpu().numpy() for x in (self.ids, self.logp, self.kept_logmass))
        top_ids, top_logp = (None if x is None else x[rows].cpu().numpy() for x in (self.top_ids, self.top_logp))
        injected = self._injected(rows)
        ends, stopped = self.end[rows].tolist(), self.stopped[rows].tolist()
        made: list[Sample] = []
        for part in parts:
            request = self.requests[part.index]
            for place in range(part.first, part.stop):
                row = len(made)
                end = ends[row]
                if not np.isfinite(logp[row, :end]).all():
                    raise NonFiniteError(
                        f"the model's logits after prompt '{request.prompt_id}' are not finite (version {version}): "
                        "lower the learning rate or start from an older checkpoint"
                    )
                made.append(
                    Sample.of(
                        request.prompt_ids,
                        ids[row, :end],
                        prompt_id=request.prompt_id,
                        finish=Finish.STOP if stopped[row] else Finish.LENGTH,
                        logp=logp[row, :end],
                        kept_logmass=kept_logmass[row, :end],
                        temperature=request.sampling.temperature,
                        version=version,
                        sample_id=request.first_sample_id + place,
                        seed=request.seeds[place],
                        injected=None if injected is None else injected[row, :end],
                        top_ids=None if top_ids is None else top_ids[row, :end],
                        top_logp=None if top_logp is None else top_logp[row, :end],
                    )
                )
        return made

    def _injected(self, rows: slice) -> np.ndarray | None:
        """[r, budget + 1] bool, the tokens that were forced on these rows; None where none could be."""
        interrupt = self.wave.sampling.interrupt
        if interrupt is None:
            return None
        interrupted = self.interrupted[rows].cpu().numpy()
        injected = np.zeros((len(interrupted), self.ids.shape[1]), dtype=bool)
        injected[interrupted, interrupt.after : interrupt.end] = True
        return injected
