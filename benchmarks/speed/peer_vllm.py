"""vLLM's side: its offline ``LLM`` on the CPU, in an environment of its own (its pins of Transformers are not ours).

All of it runs in one process, as the other sides do, so that memory and CPU seconds are whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.side import Gate
from benchmarks.speed.works import Work, prompts

FOLDER = Path(sys.prefix) / "vllm"
CACHE_GIB = 1  # keys and values; 64 rows of 128 tokens of SmolLM2 are 0.4 GiB in float32


def python(folder: Path) -> Path:
    """The interpreter of vLLM's environment, which is in :data:`FOLDER`.

    Raises:
        RuntimeError: it is not installed; the message says what installs it.
    """
    found = folder / "bin" / "python"
    if not (folder / ".done").exists() or not found.exists():
        raise RuntimeError(f"vLLM is not installed in {folder}; run `make bench-vllm`, which installs it")
    return found


def variables(threads: int, folder: Path) -> dict[str, str]:
    """The environment of a process that runs vLLM: Intel's OpenMP, which its worker recommends, and one process.

    Args:
        threads: of its operations; 0 takes as many as there are cores (vLLM itself takes one where nothing is said).
        folder: where the environment is.
    """
    return {
        "LD_PRELOAD": str(folder / "lib" / "libiomp5.so"),
        "OMP_NUM_THREADS": str(threads or len(os.sched_getaffinity(0))),
        "KMP_BLOCKTIME": "5",  # milliseconds of spinning; vLLM gives its worker processes the same
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }


def decode(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """Answers of full length to the prompts of the work; a prompt stands there once for all its samples."""
    import torch
    import vllm
    from transformers import AutoTokenizer
    from vllm.entrypoints.llm import LLM
    from vllm.sampling_params import SamplingParams

    gate.libraries_loaded()
    tokenizer = AutoTokenizer.from_pretrained(spec["model"])
    asked = [tokenizer(text)["input_ids"] for text, _ in prompts(work, work.prompts)]
    # The cache shares a prompt among its samples. Where there is one sample, it would only keep the prompts of earlier turns.
    share = work.samples > 1
    engine = LLM(
        model=spec["model"],
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_num_seqs=work.rows,
        max_model_len=max(map(len, asked)) + work.new,
        enable_prefix_caching=share,
        seed=0,
    )
    sampling = SamplingParams(n=work.samples, temperature=1.0, max_tokens=work.new, ignore_eos=True, detokenize=False)
    given = [{"prompt_token_ids": ids} for ids in asked]
    gate.say(prompt=sum(map(len, asked)) / len(asked), threads=torch.get_num_threads(), version=vllm.__version__)
    while True:
        gate.wait()
        if share:
            engine.reset_prefix_cache()  # within a turn, not from turn to turn
        made = engine.generate(given, sampling, use_tqdm=False)
        gate.tell(answers=sum(len(o.token_ids) for r in made for o in r.outputs), trained=0, phases={})
