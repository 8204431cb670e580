"""One token more for every row: the decode step of the architectures that are known.

The Transformers forward is written for any number of new tokens, any mask and any backend. With one new token a row
its attention kernel spends its time on setting out, a mask makes it repeat keys and values for every query head, and
each sample holds the keys of the whole prompt. Here the scores of a group over its prompt are one matrix product, a
query head reads the keys of its group of heads where they are, and new keys are written in place.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.policy.autocast import no_autocast
from surefoot.policy.blocks import Block, Blocks, read_blocks
from surefoot.policy.head import HALF, Head, agrees, find_head
from surefoot.policy.layout import decoder
from surefoot.rollout.cache import PreallocatedCache, PreallocatedLayer, new_cache
from surefoot.rollout.plain import Plain, added
from surefoot.rollout.repack import repacked_head
from surefoot.rollout.slots import Held, Slots, least_columns

# No longer sequence is looked at when a decode step is proved.
PROBE_LENGTH = 128


class Decoder:
    """Runs the decode steps of one model, on its own parameters as they are at that moment.

    Args:
        blocks: the model's layers.
        head: from the last hidden state to logits.
        repack: whether the products that are joined here are repacked, see :mod:`surefoot.rollout.repack`.
    """

    def __init__(self, blocks: Blocks, head: Head, *, repack: bool = False) -> None:
        self.blocks, self.head, self.repack = blocks, head, repack
        self._angles: dict[str, tuple[Tensor, Tensor]] = {}
        self.plain: Plain | None = None

    def on(self, model: Any, *, repack: bool = False) -> Decoder:
        """This decoder on a copy of its model in which some layers are others."""
        blocks = read_blocks(decoder(model))
        assert blocks is not None
        return Decoder(blocks, repacked_head(self.head, model), repack=repack)

    def begin(self, base: Any, length: int) -> None:
        """Look at the weights as they are now, before the first step of a call.

        Args:
            base: the decoder of Transformers.
            length: the longest sequence that the steps will see.
        """
        # Under autocast a sum would be rounded with its products, and the residual stream with it.
        rounds = torch.is_autocast_enabled(self.blocks.embedding.weight.device.type)
        self.plain = None if rounds else Plain.of(base, self.blocks, length, repack=self.repack)

    def admit(self, slots: Slots, cache: PreallocatedCache, lengths: Tensor, repeats: Tensor) -> None:
        """Take prompts over from the cache of a forward pass, see :meth:`Slots.admit`."""
        prompts = held_by(cache)
        slots.admit(prompts if self.plain is None else Plain.in_pairs(prompts), lengths, repeats)

    def step(self, ids: Tensor, slots: Slots, head: Head | None = None) -> Tensor:
        """[n, V] logits after the tokens [n] of all rows, which are written into the slots.

        Args:
            ids: [n] int64.
            slots: where the rows are.
            head: makes the logits instead of the model's own head.
        """
        slots.advance()
        position = slots.position
        if self.plain is not None:
            return (head or self.head).logits(self.blocks.norm(self._plain_step(self.plain, ids, slots, position)))
        self._reach(slots.width + slots.columns + 1)
        columns, masks = slots.look()
        # Rows that are over run on until they leave, and may run over the end of the table.
        turns = {
            name: tuple(table.index_select(0, position.clamp(max=len(table) - 1))[:, None] for table in tables)
            for name, tables in self._angles.items()
        }
        x = self.blocks.embedding(ids)
        for block, held in zip(self.blocks.layers, slots.layers, strict=True):
            cos, sin = turns[block.rotation]
            seen = self._attention(
                block, block.before_attention(x), cos, sin, held, slots, columns, masks[block.window]
            )
            x = x + (seen if block.after_attention is None else block.after_attention(seen))
            made = block.mlp(block.before_mlp(x))
            x = x + (made if block.after_mlp is None else block.after_mlp(made))
        return (head or self.head).logits(self.blocks.norm(x))

    def _plain_step(self, plain: Plain, ids: Tensor, slots: Slots, position: Tensor) -> Tensor:
        """[n, d], the tokens behind the last layer."""
        columns, masks = slots.look()
        turns = plain.turns.index_select(0, position.clamp(max=len(plain.turns) - 1))
        x = self.blocks.embedding(ids)
        for number, (block, held) in enumerate(zip(self.blocks.layers, slots.layers, strict=True)):
            q, k, v = plain.heads(number, x, turns)
            keys, values = held.own
            keys[: len(ids), :, slots.column] = k
            values[: len(ids), :, slots.column] = v
            seen = attend(q, held, slots, columns, masks[block.window], 1.0, None)
            x = added(x, seen.reshape(len(ids), -1), block.attention.o_proj)
            x = plain.feed_forward(block, x)
        return x

    def _reach(self, length: int) -> None:
        for rotation in {block.rotation for block in self.blocks.layers}:
            if rotation not in self._angles or len(self._angles[rotation][0]) < length:
                self._angles[rotation] = self.blocks.angles(rotation, length)

    def _attention(
        self,
        block: Block,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        held: Held,
        slots: Slots,
        columns: slice,
        mask: Tensor | None,
    ) -> Tensor:
        n, half = len(x), block.width // 2
        q = block.attention.q_proj(x).view(n, block.heads, block.width)
        k = block.attention.k_proj(x).view(n, block.kv_heads, block.width)
        v = block.attention.v_proj(x).view(n, block.kv_heads, block.width)
        q = q if block.q_norm is None else block.q_norm(q)
        k = k if block.k_norm is None else block.k_norm(k)
        q = torch.addcmul(q * cos, q.roll(half, -1), sin)
        keys, values = held.own
        keys[:n, :, slots.column] = torch.addcmul(k * cos, k.roll(half, -1), sin)
        values[:n, :, slots.column] = v
        q = q.view(n, block.kv_heads, block.heads // block.kv_heads, block.width)
        with no_autocast(q.device):  # scores rounded to bfloat16 are off by more than all the rest together
            seen = attend(q, held, slots, columns, mask, block.scale, block.softcap)
        out: Tensor = block.attention.o_proj(seen.reshape(n, block.heads * block.width))
        return out


def attend(
    q: Tensor, held: Held, slots: Slots, columns: slice, mask: Tensor | None, scale: float, softcap: float | None
) -> Tensor:
    """[n, H, r, D], what each query sees in its prompt and in its own tokens.

    Args:
        q: [n, H, r, D] rotated, the r query heads of each of the H heads of keys and values.
        held: keys and values of this layer.
        slots: where the rows and prompts are.
        columns: which of the columns hold anything.
        mask: [n, 1, 1, P + columns] additive, or None.
        scale: factor of the scores.
        softcap: bound of the scores, or None.
    """
    n, _, r, width = q.shape
    own = columns.stop - columns.start
    room, least = held.own[0].shape[2], max(own, least_columns(r, width))
    before = max(0, columns.start - (room - least))  # further columns without weight, in front and behind
    behind = least - own - before
    columns = slice(columns.start - before, columns.stop + behind)
    q = q * scale if scale != 1.0 else q
    keys, values = (kept[:n, :, columns] for kept in held.own)
    prompt_keys, prompt_values = held.prompt
    groups, length = len(prompt_keys), prompt_keys.shape[2]
    over_prompt = torch.matmul(_to_groups(q, slots, groups), prompt_keys.transpose(2, 3))
    scores = torch.cat(
        [_to_rows(over_prompt, slots, r), torch.matmul(q, keys.transpose(2, 3))[..., before : before + own]], dim=-1
    )  # [n, H, r, P + columns]
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores += mask
    weights = scores.softmax(dim=-1)
    seen = torch.matmul(functional.pad(weights[..., length:], (before, behind)), values)
    of_prompt = torch.matmul(_to_groups(weights[..., :length], slots, groups), prompt_values)
    return seen + _to_rows(of_prompt, slots, r)


def _to_groups(rows: Tensor, slots: Slots, groups: int) -> Tensor:
    """[n, H, r, X] by row to [G, H, S * r, X] by prompt; a prompt with fewer than S rows repeats what is there."""
    heads, r, width = rows.shape[1:]
    if slots.place is not None:
        rows = rows.new_zeros((groups * slots.size, heads, r, width)).index_copy_(0, slots.place, rows)
    return rows.view(groups, slots.size, heads, r, width).transpose(1, 2).reshape(groups, heads, slots.size * r, width)


def _to_rows(grouped: Tensor, slots: Slots, r: int) -> Tensor:
    """The reverse of :func:`_to_groups`."""
    groups, heads, _, width = grouped.shape
    rows = grouped.view(groups, heads, slots.size, r, width).transpose(1, 2).reshape(-1, heads, r, width)
    return rows if slots.place is None else rows.index_select(0, slots.place)


def held_by(cache: PreallocatedCache) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the prompts that a forward pass has put into a cache, for each layer."""
    found = []
    for layer in cache.layers:
        assert isinstance(layer, PreallocatedLayer) and layer.keys is not None and layer.values is not None
        keys, values = layer.keys[:, :, : layer.filled], layer.values[:, :, : layer.filled]
        found.append((keys, values.to(keys.dtype)))  # they differ under autocast, where rotated keys are float32
    return found


def find_decoder(model: Any) -> Decoder | None:
    """A decoder that was proved on a few tokens against the model's own forward; None, with a warning, otherwise.

    Half-precision models keep the forward of Transformers, without a warning: there the order of roundings counts, and
    log-probabilities of engine and trainer lie closer together where both run the same operations (root mean square
    0.007 against 0.010 for the embedded model in bfloat16).
    """
    if model.dtype in HALF:
        return None
    blocks = read_blocks(decoder(model))
    name = type(model).__name__
    if blocks is None:
        warnings.warn(
            f"{name} is none of the architectures with a decode step of their own: tokens are generated by the forward "
            f"of Transformers, which is slower",
            stacklevel=3,
        )
        return None
    head = find_head(model)
    if head is None:
        return None
    made = Decoder(blocks, head)
    with torch.inference_mode():
        right = proved(model, made)
        made.begin(decoder(model), PROBE_LENGTH)
        if right and (made.plain is None or proved(model, made)):
            return made
    warnings.warn(
        f"{name}'s own forward gives other logits than the decode step for {model.config.model_type}: tokens are "
        f"generated by the forward of Transformers, which is slower",
        stacklevel=3,
    )
    return None


def proved(model: Any, made: Decoder) -> bool:
    """Whether a few decode steps give the logits of the model's own forward."""
    return all(agrees(ours, theirs) for ours, theirs in zip(*_probe(model, made), strict=True))


def _probe(model: Any, made: Decoder) -> tuple[list[Tensor], list[Tensor]]:
    """Logits of a few decode steps, ours and the model's own: two prompts, three rows.

    The prompts are as long as the longest window that still is short, so that tokens fall out of it.
    """
    vocabulary, device = made.blocks.embedding.weight.shape[0], made.blocks.embedding.weight.device
    windows = [window for window in made.blocks.windows if window is not None and window <= 64]
    length, steps = max([6, *windows]), 3
    prompts = torch.linspace(0, vocabulary - 1, 2 * length, device=device).long().view(2, length)
    cache = new_cache(model.config)
    assert isinstance(cache, PreallocatedCache)
    model(input_ids=prompts, cache=cache, use_cache=True)
    slots = Slots(made.blocks, 3, steps + 1)
    repeats = torch.tensor([2, 1], device=device)
    made.admit(slots, cache, torch.full_like(repeats, length), repeats)
    rows, ours, theirs = prompts.repeat_interleave(repeats, dim=0), [], []
    for step in range(steps):
        ids = torch.arange(3, device=device) * (step + 1) % vocabulary
        rows = torch.cat([rows, ids[:, None]], dim=1)
        ours.append(made.step(ids, slots))
        theirs.append(model(input_ids=rows, use_cache=False).logits[:, -1])
    return ours, theirs
