"""How long it takes to grade mathematics: ``python benchmarks/grading.py [--completions 512] [--rounds 3]``.

Completions of a made-up batch, of the kinds that a policy writes: most are integers and fractions, some are
expressions, roots, intervals and tuples, a third of all is wrong, a few have no answer. Printed are the seconds for the
batch (with the start of the workers, and without), the median and the 99th percentile of one comparison, the share that
needs computer algebra, and the seconds that math-verify alone takes for the same batch in one process, in turns with it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from surefoot.extras import require
from surefoot.rewards.base import Completion
from surefoot.rewards.equivalence import decide
from surefoot.rewards.verifiers import make_verifier
from surefoot.rewards.workers import WorkerPool
from surefoot.seeds import generator
from surefoot.tasks.extraction import placed_answer
from surefoot.types import Prompt, Status

PLACES = ("tag", "boxed", "hashes", "says")


def integer(rng: np.random.Generator) -> tuple[str, str, str]:
    n = int(rng.integers(-5000, 5000))
    return str(n), f"{n:,}" if rng.random() < 0.3 else str(n), str(n + 1)


def fraction(rng: np.random.Generator) -> tuple[str, str, str]:
    a, b, k = (int(x) for x in rng.integers(2, 30, size=3))
    return rf"\frac{{{a}}}{{{b}}}", rng.choice([f"{a}/{b}", rf"\dfrac{{{k * a}}}{{{k * b}}}"]), f"{a}/{b + 1}"


def root(rng: np.random.Generator) -> tuple[str, str, str]:
    a, b = int(rng.integers(2, 9)), int(rng.choice([2, 3, 5, 7]))
    return rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}", rf"\frac{{{a}}}{{\sqrt{{{b}}}}}", rf"\frac{{{a}}}{{\sqrt{{{b + 1}}}}}"


def expression(rng: np.random.Generator) -> tuple[str, str, str]:
    a, b = (int(x) for x in rng.integers(1, 9, size=2))
    return f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})", f"(x-{a})(x+{b})"


def interval(rng: np.random.Generator) -> tuple[str, str, str]:
    a, b = sorted(int(x) for x in rng.choice(50, size=2, replace=False))
    return f"[{a}, {b})", rf"{a} \le x < {b}", f"({a}, {b})"


def pair(rng: np.random.Generator) -> tuple[str, str, str]:
    a, b = (int(x) for x in rng.integers(1, 50, size=2))
    return f"({a}, {b})", rf"\left({a}, {b}.0\right)", f"({a}, {b + 1})"


KINDS = [(integer, 0.55), (fraction, 0.15), (root, 0.08), (expression, 0.1), (interval, 0.06), (pair, 0.06)]


def batch(count: int, seed: int) -> list[Completion]:
    """Completions with a thought of some length before a box; a third is wrong, one in twenty has no box."""
    rng = generator("benchmark of grading", seed)
    made = []
    for number in range(count):
        kind = KINDS[int(rng.choice(len(KINDS), p=[share for _, share in KINDS]))][0]
        gold, right, wrong = kind(rng)
        answer = wrong if rng.random() < 1 / 3 else right
        thought = "Let us see what follows from this. " * int(rng.integers(10, 100))
        end = "I do not know." if rng.random() < 0.05 else rf"The answer is $\boxed{{{answer}}}$."
        made.append(Completion(Prompt(str(number), "?", gold), thought + end))
    return made


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def comparisons(completions: list[Completion]) -> tuple[list[float], float]:
    """Seconds of every comparison by itself, and the share that needs computer algebra."""
    pool = WorkerPool(["surefoot.rewards.equivalence", "math_verify"])
    seconds, jobs, before = [], [], []
    for completion in completions:
        answer = placed_answer(completion.text, PLACES)
        if answer is None:
            continue
        begun = time.perf_counter()
        verdict = decide(completion.prompt.answer, answer, 6)
        took = time.perf_counter() - begun
        if verdict is None:
            jobs.append((completion.prompt.answer, answer, 6))
            before.append(took)
        else:
            seconds.append(took)
    outcomes = pool.run("surefoot.rewards.equivalence:equal", jobs)
    pool.close()
    share = len(jobs) / (len(jobs) + len(seconds))
    return seconds + [took + outcome.seconds for took, outcome in zip(before, outcomes, strict=True)], share


def plainly(completions: list[Completion]) -> int:
    """The batch by math-verify alone, as its documentation has it; how many are right."""
    library = require("math_verify", "math", "this benchmark")
    return sum(
        bool(library.verify(library.parse(rf"\boxed{{{c.prompt.answer}}}"), library.parse(c.text))) for c in completions
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--completions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    verifier = make_verifier("math")
    completions = batch(arguments.completions, seed=0)
    first = timed(lambda: verifier.score(completions))
    plainly(completions[:8])  # its imports
    ours, theirs = [], []
    for number in range(arguments.rounds):
        fresh = batch(arguments.completions, seed=1 + number)
        ours.append(timed(lambda fresh=fresh: verifier.score(fresh)))
        theirs.append(timed(lambda fresh=fresh: plainly(fresh)))
    single, share = comparisons(completions)
    scores = verifier.score(completions)
    print(f"{arguments.completions} completions, {sum(bool(s.correct) for s in scores)} right,", end=" ")
    print(f"{sum(s.status is Status.NO_ANSWER for s in scores)} without an answer,", end=" ")
    print(f"{sum(not s.valid for s in scores)} not graded")
    print(f"with the start of the workers   {first:8.3f} s")
    print(f"warm, each round                {', '.join(f'{s:.3f}' for s in ours)} s")
    print(f"math-verify in one process      {', '.join(f'{s:.3f}' for s in theirs)} s")
    print(f"needs computer algebra          {100 * share:8.1f} %")
    print(f"one comparison, median          {1000 * float(np.median(single)):8.3f} ms")
    print(f"one comparison, 99th percentile {1000 * float(np.percentile(single, 99)):8.3f} ms")


if __name__ == "__main__":
    main()
