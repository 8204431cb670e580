"""Token weights by entropy, and the entropy itself, against worked cases."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from surefoot.algorithms import kl, weights
from surefoot.algorithms.algorithm import Algorithm
from surefoot.algorithms.loss import policy_loss
from surefoot.algorithms.tokens import Tokens
from surefoot.errors import AlgorithmError
from surefoot.policy.head import Head
from surefoot.policy.logprob import chunked_logprobs
from tests.algorithms.harness import CASES, Rows, tensor
from tests.algorithms.test_algorithms_golden import clipped_tokens, close


def weighted_loss(algorithm: Algorithm, inputs: dict[str, Any], **fields: Any) -> tuple[float, Tensor]:
    """Loss and gradient [B, T] of a case whose tokens carry an entropy, with the weights that the algorithm gives them."""
    rows = Rows(inputs["mask"])
    leaf = tensor(inputs["logp"]).requires_grad_()
    tokens = rows.tokens(leaf, inputs["advantages"], logp_old=inputs["logp_old"])
    tokens = replace(tokens, entropy=rows.flat(inputs["entropy"]), **fields)
    tokens = replace(tokens, weight=algorithm.weights(tokens))
    loss, _ = policy_loss(algorithm, tokens, rows.totals)
    loss.backward()
    assert leaf.grad is not None
    return float(loss.detach()), leaf.grad


@pytest.mark.parametrize("denominator", ["selected", "all"])
def test_top20_entropy(denominator: str) -> None:
    case = CASES["top20_entropy"]
    inputs, expected = case["inputs"], case["expected"]
    algorithm = clipped_tokens.but(
        trust={"low": case["hyperparameters"]["eps_low"], "high": case["hyperparameters"]["eps_high"]},
        weights=weights.high_entropy(share=case["hyperparameters"]["rho"], denominator=denominator),
    )
    loss, gradient = weighted_loss(algorithm, inputs)
    close(loss, expected[f"loss_{denominator}_denominator"])
    close(gradient, tensor(expected[f"grad_{denominator}"]))

    rows = Rows(inputs["mask"])
    tokens = replace(rows.tokens(tensor(inputs["logp"]), [0.0] * 3), entropy=rows.flat(inputs["entropy"]))
    weight = algorithm.weights(tokens)
    assert (weight > 0).tolist() == tensor(expected["mask_topk"])[rows.mask].bool().tolist()
    assert int((weight > 0).sum()) == expected["k"] == weights.count_of(0.2, 9)
    # Interpolating between ranks, as numpy does, gives a lower threshold, and here the same tokens.
    entropy = rows.flat(inputs["entropy"])
    close(entropy[weight > 0].min(), expected["tau"])
    quantile = torch.quantile(entropy, 1 - case["hyperparameters"]["rho"])
    close(quantile, expected["quantile"])
    assert (entropy >= quantile).tolist() == (weight > 0).tolist()


def entropies(values: list[float]) -> Tokens:
    return replace(Rows([[1.0] * len(values)]).tokens(torch.zeros(1, len(values)), [1.0]), entropy=tensor(values))


def test_high_entropy_keeps_ties_and_at_least_one() -> None:
    part = weights.high_entropy(denominator="all")
    assert part(entropies([0.1, 0.7, 0.3])).tolist() == [0, 1, 0]
    assert part(entropies([0.4] * 7)).tolist() == [1] * 7
    assert part(entropies([0.5, 0.5, 0.1, 0.2, 0.5])).tolist() == [1, 1, 0, 0, 1]
    assert part(entropies([2.0])).tolist() == [1]
    assert part(entropies([])).tolist() == []
    assert weights.high_entropy()(entropies([0.5, 0.5, 0.1, 0.2, 0.5])).tolist() == pytest.approx(
        [5 / 3, 5 / 3, 0, 0, 5 / 3]
    )
    low = weights.high_entropy(share=0.8, side="low", denominator="all")
    assert low(entropies([0.5, 0.9, 0.1, 0.2, 0.3])).tolist() == [1, 0, 1, 1, 1]
    everything = weights.high_entropy(share=1.0)
    assert everything(entropies([0.1, 0.2])).tolist() == [1, 1]
    with pytest.raises(AlgorithmError, match="entropies"):
        part(replace(entropies([0.1]), entropy=None))


def test_share_of_tokens_is_not_inflated_by_floating_point() -> None:
    assert 0.07 * 100 > 7 and weights.count_of(0.07, 100) == 7
    assert [weights.count_of(0.2, n) for n in (1, 4, 5, 6, 9, 10, 11)] == [1, 1, 1, 2, 2, 2, 3]


def test_entropy_weights_leave_the_kl_term_and_the_micro_batches_alone() -> None:
    case = CASES["top20_entropy"]
    inputs = case["inputs"]
    algorithm = clipped_tokens.but(kl=kl.in_loss(coef=0.5), weights=weights.high_entropy(share=0.2))
    rows = Rows(inputs["mask"])
    reference = tensor(inputs["logp"]) - 0.3

    def loss(given: Algorithm, weight: Tensor | None, part: list[int]) -> float:
        tokens = rows.tokens(
            tensor(inputs["logp"]),
            inputs["advantages"],
            rows=part,
            logp_old=inputs["logp_old"],
            logp_reference=reference,
        )
        chosen = None if weight is None else weight[torch.isin(index, torch.tensor(part))]
        return float(policy_loss(given, replace(tokens, weight=chosen), rows.totals)[0])

    every = rows.tokens(tensor(inputs["logp"]), inputs["advantages"])
    index = every.row
    weight = algorithm.weights(replace(every, entropy=rows.flat(inputs["entropy"])))
    whole_batch = loss(algorithm, weight, [0, 1, 2])
    close(loss(algorithm, weight, [0]) + loss(algorithm, weight, [1, 2]), whole_batch)
    penalty = loss(algorithm, None, [0, 1, 2]) - loss(algorithm.but(kl="none"), None, [0, 1, 2])
    close(whole_batch - loss(algorithm.but(kl="none"), weight, [0, 1, 2]), penalty)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_entropy_from_logits(dtype: torch.dtype, tolerance: float) -> None:
    case = CASES["entropy_from_logits"]
    expected = case["expected"]
    logits = tensor(case["inputs"]["logits"]).requires_grad_()
    p = logits.softmax(0)
    entropy = logits.logsumexp(0) - (p * logits).sum()
    close(p.detach(), tensor(expected["probs"]))
    close(entropy.detach(), expected["entropy"])
    close(torch.autograd.grad(entropy, logits)[0], tensor(expected["dH_dlogits"]))
    # What the loss reads is computed from hidden states, chunk by chunk, at the temperature of the token.
    module = SimpleNamespace(weight=logits.detach().to(dtype)[:, None], bias=None)
    hidden = torch.tensor([[1.0], [2.0], [0.0]], dtype=dtype)
    target, temperature = torch.tensor([0, 1, 2]), torch.tensor([1.0, 2.0, 1.0], dtype=dtype)
    _, have, _ = chunked_logprobs(hidden, Head(module), target, temperature, 2)
    assert have is not None
    close(have.double(), tensor([expected["entropy"], expected["entropy"], math.log(4)]), tolerance)
