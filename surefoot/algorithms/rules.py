"""Which parts contradict each other, why, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from surefoot.algorithms.part import Part

Parts = Mapping[str, Part]


def contradiction(parts: Parts) -> str | None:
    """The first contradiction among the parts of an algorithm, or None."""
    return next((found for rules in RULES for found in rules(parts)), None)


def unsupported(parts: Parts, group_size: int) -> str | None:
    """What needs more samples of a prompt than there are, or None."""
    if group_size > 1:
        return None
    if "group" in parts["advantage"].kind.traits:
        return (
            f"the advantage '{parts['advantage'].name}' compares samples of one prompt, and train.group_size = {group_size}: "
            "set train.group_size to 2 or more, or algorithm.advantage = 'batch_mean'"
        )
    if "group" in parts["selection"].kind.traits:
        return (
            f"algorithm.selection = '{parts['selection'].name}' compares samples of one prompt, and train.group_size = "
            f"{group_size}: set train.group_size to 2 or more, or algorithm.selection = 'keep'"
        )
    if "group" in parts["shaping"].kind.traits:
        return (
            f"algorithm.shaping = '{parts['shaping'].name}' compares samples of one prompt, and train.group_size = "
            f"{group_size}: set train.group_size to 2 or more, or algorithm.shaping = 'none'"
        )
    return None


def _surrogate(parts: Parts) -> Iterator[str]:
    ratio, trust = parts["ratio"], parts["trust"]
    if "log" in trust.kind.traits and "log" not in ratio.kind.traits:
        yield (
            f"the surrogate '{trust.name}' takes the log-ratio of the whole row, and the ratio is '{ratio.name}': "
            "set algorithm.ratio = 'sequence_log'"
        )
    if "log" in ratio.kind.traits and "log" not in trust.kind.traits:
        yield (
            f"the ratio '{ratio.name}' is a logarithm, which '{trust.name}' would take for a ratio: "
            "set algorithm.trust = 'quadratic', or algorithm.ratio = 'sequence'"
        )
    if "ratio" in trust.kind.traits and ratio.name == "none":
        yield (
            f"the surrogate '{trust.name}' needs an importance ratio, and the ratio is 'none': "
            "set algorithm.ratio = 'token', or algorithm.trust = 'score'"
        )
    if trust.name == "score" and ratio.name != "none":
        yield (
            f"the surrogate 'score' does not read the ratio '{ratio.name}': "
            "set algorithm.ratio = 'none', or a surrogate that uses it (algorithm.trust = 'clip')"
        )


def _rows(parts: Parts) -> Iterator[str]:
    ratio = parts["ratio"]
    if "row" not in ratio.kind.traits:
        return
    if "rows" not in parts["aggregation"].kind.traits:
        yield (
            f"the ratio '{ratio.name}' gives a loss per row, and '{parts['aggregation'].name}' would weigh rows by their "
            "length: set algorithm.aggregation = 'seq_mean_token_mean', or algorithm.ratio = 'token'"
        )
    if "tokens" not in ratio.kind.traits and per_token(parts):
        yield (
            f"the ratio '{ratio.name}' treats a row as one action, and the advantages differ within a row: "
            "set algorithm.ratio = 'sequence_token' or 'token'"
        )
    if parts["weights"].name != "all_tokens" and "tokens" not in ratio.kind.traits:
        yield (
            f"the ratio '{ratio.name}' treats a row as one action, and algorithm.weights = '{parts['weights'].name}' takes "
            "tokens out of it: set algorithm.ratio = 'token', or algorithm.weights = 'all_tokens'"
        )


def per_token(parts: Parts) -> bool:
    """Whether advantages may differ within a row."""
    return "token" in parts["advantage"].kind.traits or bool(parts["kl"].numbers.get("after_baseline"))


def _anchor(parts: Parts) -> Iterator[str]:
    anchored = parts["ratio"].numbers.get("anchor") == "behaviour"
    if anchored and parts["correction"].name != "none":
        yield (
            f"the ratio is anchored on the behaviour policy and the correction '{parts['correction'].name}' would "
            "correct a second time: set algorithm.correction = 'none', or algorithm.ratio.anchor = 'old'"
        )
    if "behaviour" in parts["trust"].kind.traits and not anchored:
        yield (
            f"the surrogate '{parts['trust'].name}' measures the divergence from the behaviour policy: "
            "set algorithm.ratio.anchor = 'behaviour'"
        )


def _rewards(parts: Parts) -> Iterator[str]:
    advantage, shaping, kl = parts["advantage"], parts["shaping"], parts["kl"]
    if "successes" in advantage.kind.traits:
        if "idle" not in shaping.kind.traits:
            yield (
                f"the advantage '{advantage.name}' counts successes, and algorithm.shaping = '{shaping.name}' changes the "
                "rewards that it counts: set algorithm.shaping = 'none'"
            )
        if "reward" in kl.kind.traits and kl.coef > 0 and not kl.after_baseline:
            yield (
                f"the advantage '{advantage.name}' counts successes, and the KL term would be taken off them: "
                "set algorithm.kl = 'in_loss' or 'none'"
            )
    if kl.numbers.get("after_baseline") and "token" in advantage.kind.traits:
        yield (
            f"the advantage '{advantage.name}' takes the KL off token by token itself: "
            "set algorithm.kl.after_baseline = false"
        )


def _critic(parts: Parts) -> Iterator[str]:
    critic, learns = "values" in parts["advantage"].kind.traits, "idle" not in parts["value"].kind.traits
    if critic and not learns:
        yield (
            f"the advantage '{parts['advantage'].name}' reads a critic that nothing trains: set algorithm.value = 'squared'"
        )
    if learns and not critic:
        yield (
            f"algorithm.value = '{parts['value'].name}' trains a critic that the advantage '{parts['advantage'].name}' does "
            "not read: set algorithm.advantage = 'gae', or algorithm.value = 'none'"
        )


def _reset(parts: Parts) -> Iterator[str]:
    reset = parts["reset"]
    if "idle" in reset.kind.traits:
        return
    kl = parts["kl"]
    if reset.reference and not ("reference" in kl.kind.traits and kl.coef > 0):
        yield (
            f"algorithm.reset = '{reset.name}' resets the reference, and there is none: set algorithm.kl = 'in_loss' with a "
            "coef, or algorithm.reset.reference = false"
        )
    if not reset.reference and not reset.optimiser:
        yield f"algorithm.reset = '{reset.name}' resets nothing: set algorithm.reset.optimiser = true, or 'never'"


RULES: tuple[Callable[[Parts], Iterator[str]], ...] = (_surrogate, _rows, _anchor, _rewards, _critic, _reset)
