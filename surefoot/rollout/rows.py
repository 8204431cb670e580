"""The rows of one wave: their random numbers, positions, mask and what has been drawn for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import NonFiniteError
from surefoot.rollout.engine import Request
from surefoot.rollout.waves import Wave
from surefoot.seeds import uniforms
from surefoot.types import Finish, Sample


class Rows:
    """What a wave knows of its rows. R rows, one per sample; n of them still in the batch.

    Attributes:
        repeats: [P] int64, rows of each prompt.
        uniform: [R, budget] float64, the random numbers of every row.
        alive: [n] int64, which of the R rows each row of the batch is.
        done: how many rows of the batch have stopped.
    """

    def __init__(self, device: torch.device, wave: Wave, requests: Sequence[Request]) -> None:
        self.wave, self.requests, self.device = wave, requests, device
        budget = wave.sampling.max_new_tokens
        counts = [part.stop - part.first for part in wave.parts]
        lengths = [len(requests[part.index].prompt_ids) for part in wave.parts]
        self.longest = max(lengths)
        self.repeats = torch.tensor(counts, device=device)
        self.lengths = torch.tensor(lengths, device=device)
        rows = sum(counts)
        seeds = [seed for part in wave.parts for seed in requests[part.index].seeds[part.first : part.stop]]
        drawn = uniforms(np.array(seeds, dtype=np.uint64)[:, None], np.arange(budget)[None, :])
        self.uniform = torch.from_numpy(drawn).to(device)
        self.ids = torch.zeros((rows, budget), dtype=torch.int64, device=device)
        self.logp = torch.zeros((rows, budget), dtype=torch.float32, device=device)
        self.kept_logmass = torch.zeros((rows, budget), dtype=torch.float32, device=device)
        self.end = torch.full((rows,), budget, device=device)
        self.stopped = torch.zeros(rows, dtype=torch.bool, device=device)
        self.stop_ids = torch.tensor(wave.sampling.stop_ids, dtype=torch.int64, device=device)
        self.alive = torch.arange(rows, device=device)
        self.done = 0
        self.position = self.lengths.repeat_interleave(self.repeats)
        self.mask: Tensor | None = None
        if min(lengths) < self.longest:
            columns = torch.arange(self.longest + budget, device=device)
            self.mask = (columns >= (self.longest - self.position).unsqueeze(-1)).long()

    def prompts(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ids and positions [P, longest] of the prompts, padded on the left, and their mask where any is padded."""
        ids = np.zeros((len(self.wave.parts), self.longest), dtype=np.int64)
        for row, part in enumerate(self.wave.parts):
            prompt = self.requests[part.index].prompt_ids
            ids[row, self.longest - len(prompt) :] = prompt
        columns = torch.arange(self.longest, device=self.device)
        positions = columns - (self.longest - self.lengths).unsqueeze(-1)
        mask = None if self.mask is None else (positions >= 0).long()
        return torch.from_numpy(ids).to(self.device), positions.clamp_(min=0), mask

    def write(self, step: int, ids: Tensor, logp: Tensor, kept_logmass: Tensor) -> None:
        """Record the tokens [n] drawn at this step. Rows that had stopped before write beyond their end."""
        self.ids[self.alive, step] = ids
        self.logp[self.alive, step] = logp
        self.kept_logmass[self.alive, step] = kept_logmass
        now = torch.isin(ids, self.stop_ids) & ~self.stopped[self.alive]
        ended = self.alive[now]
        self.stopped[ended] = True
        self.end[ended] = step + 1
        self.done += len(ended)

    def compact(self) -> Tensor:
        """[n'] int64, the rows of the batch that go on, those at its end moved into the gaps."""
        running = ~self.stopped[self.alive]
        count = len(self.alive) - self.done
        keep = torch.arange(count, device=self.device)
        keep[~running[:count]] = running[count:].nonzero().squeeze(-1) + count
        self.alive = self.alive[keep]
        self.position = self.position[keep]
        self.mask = None if self.mask is None else self.mask[keep]
        self.done = 0
        return keep

    def next(self, step: int) -> tuple[Tensor, Tensor | None]:
        """Positions [n, 1] of the tokens drawn at this step, and the mask over all slots filled with them."""
        mask = None if self.mask is None else self.mask[:, : self.longest + step + 1]
        return (self.position + step).unsqueeze(-1), mask

    def samples(self, version: int) -> list[Sample]:
        """One sample per row, in order."""
        ids, logp, kept_logmass = (x.cpu().numpy() for x in (self.ids, self.logp, self.kept_logmass))
        ends, stopped = self.end.tolist(), self.stopped.tolist()
        made: list[Sample] = []
        for part in self.wave.parts:
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
                    )
                )
        return made
