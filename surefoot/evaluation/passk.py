"""avg@k and the unbiased estimate of pass@k.

pass@k is the chance that at least one of k samples is right. With n >= k samples of a problem, c of them right, the
estimate of Chen et al. 2021 ("Evaluating Large Language Models Trained on Code", arXiv 2107.03374),

    pass@k = 1 - C(n - c, k) / C(n, k),

averages over all ways of choosing k of the n, so it is unbiased for every k <= n; ``1 - (1 - c / n) ** k`` is not.
avg@k is the mean of c / n over the problems: pass@1, with less noise than one sample per problem would have.
"""

from __future__ import annotations

import numpy as np


def pass_at_k(correct_p: np.ndarray, samples: int, k: int) -> np.ndarray:
    """The estimate of pass@k of every problem.

    Args:
        correct_p: [P] integers, right samples of each problem, 0 to ``samples``.
        samples: n, samples of each problem.
        k: 1 to ``samples``.

    Returns:
        [P] float64 in [0, 1].

    Raises:
        ValueError: ``k`` or a count is out of its range.
    """
    correct_p = np.asarray(correct_p)
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= samples, and there are {samples} samples per problem")
    if ((correct_p < 0) | (correct_p > samples)).any():
        raise ValueError(f"counts of right samples must be in 0..{samples}, got {correct_p.min()}..{correct_p.max()}")
    # C(n - c, k) / C(n, k) as a product of k factors: no binomial grows large, and where n - c < k one factor is 0.
    drawn = np.arange(k)
    return 1.0 - np.prod((samples - correct_p[:, None] - drawn) / (samples - drawn), axis=1)


def ladder(samples: int) -> list[int]:
    """The k of the table: 1, 2, 4 ... up to ``samples``.

    >>> ladder(6)
    [1, 2, 4]
    """
    return [2**i for i in range(samples.bit_length())]
