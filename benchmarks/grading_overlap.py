"""The share of a step that is spent waiting for rewards: graded beside sampling, and graded after it.

    python benchmarks/grading_overlap.py                           # 512 completions a step: mathematics, programs, a judge
    python benchmarks/grading_overlap.py --work math --steps 5     # one kind of work, longer runs

Runs take turns (beside, after, beside, after ...), the first step of each is left out (workers start in it), and medians
over the steps are printed: seconds of sampling, seconds of waiting for rewards, and the share of the whole step. The model
is small and untrained, so what it writes is worth nothing to a verifier: each completion is exchanged for one of a fixed
list before it is graded, and everything else (lengths, which groups are finished when) is as sampled. The judge is a
function that waits 50 to 150 ms for each completion.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.config import validate
from surefoot.rewards.asynchronous import Limits
from surefoot.rewards.base import Completion, Reward, threads_of
from surefoot.rewards.build import build_reward
from surefoot.rewards.config import RewardConfig
from surefoot.rewards.functions import as_reward
from surefoot.seeds import derive
from surefoot.tasks.base import Task, content_id
from surefoot.training.config import RunConfig
from surefoot.training.loop import train
from surefoot.types import Prompt, Score

PROMPTS, SAMPLES = 64, 8
MATH = [  # gold answer, and completions: the same, the same by algebra, wrong
    (r"x+1", [r"x+1", r"\frac{x^2-1}{x-1}", r"x-1"]),
    (r"\frac{3}{4}", ["0.75", r"\frac{6}{8}", r"\frac{4}{3}"]),
    (r"2\sqrt{2}", [r"\sqrt{8}", r"\frac{4}{\sqrt{2}}", r"\sqrt{6}"]),
    (r"\sin^2 t", [r"1-\cos^2 t", r"\sin(t)^2", r"\cos^2 t"]),
]
PROGRAMS = [  # pairs of input and output, and programs: right, wrong, one that raises
    (("3\n", "9\n"), ["n = int(input())\nprint(n * n)", "print(int(input()) + 6)", "print(1 // 0)"]),
    (("a b\n", "b a\n"), ["print(*input().split()[::-1])", "print(input())", "print(input().split()[5])"]),
]


@dataclass(frozen=True)
class Exchanged:
    """Grades, in place of what was sampled, one of the texts that the problem has; which one follows from the sample."""

    inner: Reward
    name: str = "exchanged"

    @property
    def threads(self) -> int:
        return threads_of(self.inner)

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        return self.inner.score([self._exchanged(completion) for completion in completions])

    def _exchanged(self, completion: Completion) -> Completion:
        texts = completion.prompt.metadata["texts"]
        number = derive(0, completion.prompt.prompt_id, str(completion.ids))
        # A comment with a number makes every text one of its own, so that no memory of a verifier saves the work.
        return replace(completion, text=texts[number % len(texts)].replace("NUMBER", str(number % 100_000)))


def task(golds: Sequence[tuple[dict[str, Any], Any, list[str]]]) -> Task:
    prompts = []
    for number in range(PROMPTS):
        metadata, answer, texts = golds[number % len(golds)]
        content = f"{number}+{number}="
        prompts.append(Prompt(content_id("overlap", content), content, answer, {**metadata, "texts": texts}))
    return Task("overlap", tuple(prompts), ())


def mathematics() -> tuple[Task, Reward]:
    made = task([({}, gold, [rf"So NUMBER: \boxed{{{text}}}" for text in texts]) for gold, texts in MATH])
    return made, build_reward(RewardConfig(verifier="math"), made)


def programs() -> tuple[Task, Reward]:
    made = task(
        [
            ({"inputs": [given], "outputs": [expected]}, None, [f"```python\n# NUMBER\n{text}\n```" for text in texts])
            for (given, expected), texts in PROGRAMS
        ]
    )
    return made, build_reward(RewardConfig(verifier="code"), made)


def judge() -> tuple[Task, Reward]:
    async def waits(prompt: str, completion: str, answer: object) -> float:
        number = int(completion)
        await asyncio.sleep(0.05 + 0.1 * (number % 1000) / 1000)
        return float(number % 2)

    return task([({}, None, ["NUMBER"])]), as_reward(waits, Limits(concurrency=64))


WORK: dict[str, Callable[[], tuple[Task, Reward]]] = {"math": mathematics, "programs": programs, "judge": judge}


def run(folder: Path, made: Task, reward: Reward, overlap: str, args: argparse.Namespace) -> list[dict[str, float]]:
    """The timings of the steps of a run, without the first."""
    values = {
        "name": "run",
        "runs": str(folder),
        "task": {"template": "plain"},
        # Stop tokens that an untrained model draws by chance make completions end at different times.
        "rollout": {"max_new_tokens": args.tokens, "stop": list("0123")},
        "reward": {"overlap": overlap},
        "train": {"steps": args.steps + 1, "prompts_per_step": PROMPTS, "group_size": SAMPLES, "threads": 1},
        "evaluation": {"every": 0},
        "track": {"samples_per_step": 0},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = train(validate(RunConfig, values), task=made, reward=Exchanged(reward))
    lines = (result.folder / "timings.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=sorted(WORK), default=list(WORK))
    parser.add_argument("--steps", type=int, default=3, help="steps of a run that count")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind")
    parser.add_argument("--tokens", type=int, default=128, help="budget of a completion")
    args = parser.parse_args()
    print(f"{PROMPTS * SAMPLES} completions a step, medians over {args.rounds * args.steps} steps")
    print(f"{'work':<10}{'graded':<10}{'sampling, s':>12}{'waiting, s':>12}{'step, s':>10}{'share waiting':>15}")
    for name in args.work:
        made, reward = WORK[name]()
        found: dict[str, list[dict[str, float]]] = {"auto": [], "never": []}
        for number in range(args.rounds):
            for overlap, records in found.items():
                with tempfile.TemporaryDirectory() as folder:
                    records += run(Path(folder) / str(number), made, reward, overlap, args)
        for overlap, label in (("auto", "beside"), ("never", "after")):
            report(name, label, found[overlap])


def report(name: str, label: str, records: Sequence[dict[str, float]]) -> None:
    def seconds(record: dict[str, float]) -> float:
        return sum(value for key, value in record.items() if key != "step" and not key.startswith("tokens_"))

    sampling, waiting, step = (
        statistics.median(values)
        for values in (
            [record["generate"] for record in records],
            [record["score"] for record in records],
            [seconds(record) for record in records],
        )
    )
    share = statistics.median(record["score"] / seconds(record) for record in records)
    print(f"{name:<10}{label:<10}{sampling:>12.2f}{waiting:>12.2f}{step:>10.2f}{share:>15.1%}")


if __name__ == "__main__":
    main()
