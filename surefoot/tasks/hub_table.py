"""The data sets of the hub that Surefoot knows: where they are, how their rows are read, and who judges the answers.

A row here is data, the functions that mend rows are in :mod:`surefoot.tasks.hub_rows`. Any other data set takes the same
things from ``task.options``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surefoot.tasks import hub_rows as rows

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Schema:
    """How a data set is read.

    Attributes:
        repo: ``owner/name``.
        train: split of the training problems; "" where the data set is for evaluation only.
        heldout: split of the held-out problems; "" where the hash of a problem divides the training split.
        verifier: who judges an answer.
        mend: row -> row with ``prompt``, ``answer`` and what else there is; None for a row that cannot be used. Without it
            ``columns`` say all.
        columns: as in ``task.options``.
        subsets: configurations to load, all of them one after another.
        files: split -> file patterns of the repository, for those that bring a loading script, which ``datasets`` does
            not run any more.
    """

    repo: str
    train: str = "train"
    heldout: str = ""
    verifier: str = "math"
    mend: Callable[[Record], Record | None] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    subsets: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra"),
    "precalculus",
)

# Mathematics.
GSM8K = Schema("openai/gsm8k", heldout="test", mend=rows.gsm8k, subsets=("main",))
MATH_500 = Schema("HuggingFaceH4/MATH-500", train="", heldout="test", mend=rows.math)
MATH = Schema("EleutherAI/hendrycks_math", heldout="test", mend=rows.math, subsets=SUBJECTS)
MATH_LIGHTEVAL = Schema("DigitalLearningGmbH/MATH-lighteval", heldout="test", mend=rows.math, subsets=("default",))
DEEPSCALER = Schema("agentica-org/DeepScaleR-Preview-Dataset", mend=rows.math)
DAPO = Schema("BytedTsinghua-SIA/DAPO-Math-17k", mend=rows.dapo)
AIME_2024 = Schema("HuggingFaceH4/aime_2024", train="", heldout="train", mend=rows.aime)
AIME_2024_MJ = Schema("Maxwell-Jia/AIME_2024", train="", heldout="train", mend=rows.aime)
AIME_2025 = Schema("yentinglin/aime_2025", train="", heldout="train", mend=rows.aime)
AIME_2025_OC = Schema(
    "opencompass/AIME2025", train="", heldout="test", mend=rows.aime, subsets=("AIME2025-I", "AIME2025-II")
)

# Multiple choice.
MMLU = Schema("cais/mmlu", train="auxiliary_train", heldout="test", verifier="choice", mend=rows.mmlu, subsets=("all",))
MMLU_PRO = Schema("TIGER-Lab/MMLU-Pro", train="", heldout="test", verifier="choice", mend=rows.mmlu)
ARC = Schema("allenai/ai2_arc", heldout="test", verifier="choice", mend=rows.arc, subsets=("ARC-Challenge",))
GPQA = Schema(
    "Idavidrein/gpqa", train="", heldout="train", verifier="choice", mend=rows.gpqa, subsets=("gpqa_diamond",)
)

# Programs.
HUMANEVAL = Schema("openai/openai_humaneval", train="", heldout="test", verifier="code", mend=rows.humaneval)
MBPP = Schema("google-research-datasets/mbpp", heldout="test", verifier="code", mend=rows.mbpp, subsets=("full",))
APPS = Schema(
    "codeparrot/apps",
    heldout="test",
    verifier="code",
    mend=rows.apps,
    files={"train": "train.jsonl", "test": "test.jsonl"},
)
LIVECODEBENCH = Schema(
    "livecodebench/code_generation_lite",
    train="",
    heldout="test",
    verifier="code",
    mend=rows.livecodebench,
    files={"test": "test*.jsonl"},
)

SHORT: dict[str, Schema] = {
    "gsm8k": GSM8K,
    "math500": MATH_500,
    "math": MATH,
    "deepscaler": DEEPSCALER,
    "dapo": DAPO,
    "aime2024": AIME_2024,
    "aime2025": AIME_2025,
    "mmlu": MMLU,
    "mmlu_pro": MMLU_PRO,
    "arc": ARC,
    "gpqa": GPQA,
    "humaneval": HUMANEVAL,
    "mbpp": MBPP,
    "apps": APPS,
    "livecodebench": LIVECODEBENCH,
}
SCHEMAS: dict[str, Schema] = {
    **{schema.repo: schema for schema in (*SHORT.values(), MATH_LIGHTEVAL, AIME_2024_MJ, AIME_2025_OC)},
    **SHORT,
}
