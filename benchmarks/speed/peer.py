"""TRL's side: its ``GRPOTrainer`` as it is, with the options that are fastest here; a callback waits after each step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.speed.ours import MANY, dense
from benchmarks.speed.side import Gate
from benchmarks.speed.works import Work, prompts


def steps(work: Work, spec: Mapping[str, Any], gate: Gate) -> None:
    """Turn after turn of ``GRPOTrainer.train``."""
    from tests.parity import peers

    peers.load()
    import torch
    import trl
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    gate.libraries_loaded()
    cpu = spec["device"] == "cpu"
    rows = min(int(spec.get("rows") or work.peer_rows), work.rows)
    pairs = prompts(work, work.prompts * 16)
    data = Dataset.from_dict({"prompt": [text for text, _ in pairs], "answer": [answer for _, answer in pairs]})
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=work.rows // rows,  # one optimiser step for each batch of rollouts
            num_generations=work.samples,
            max_completion_length=work.new,
            temperature=1.0,
            beta=0.0,
            loss_type="dapo",
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            max_steps=MANY,
            shuffle_dataset=False,
            use_cpu=cpu,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            report_to=[],
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer: Any = GRPOTrainer(model=spec["model"], reward_funcs=_reward(work), args=settings, train_dataset=data)
        watch = Stopwatch(trainer)

        class Turns(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                gate.tell(**watch.take())
                gate.wait()

        trainer.add_callback(Turns())
        if torch.cuda.is_available() and not cpu:
            gate.synchronise = torch.cuda.synchronize
        tokens = trainer.processing_class([text for text, _ in pairs])["input_ids"]
        gate.say(
            prompt=sum(map(len, tokens)) / len(tokens),
            threads=torch.get_num_threads(),
            version=trl.__version__,
            rows=rows,
        )
        gate.wait()
        trainer.train()


class Stopwatch:
    """Seconds by phase and tokens, from around the trainer's own methods."""

    def __init__(self, trainer: Any) -> None:
        self.seconds: dict[str, float] = {}
        self.answers = 0
        self._wrap(trainer, "_generate_single_turn", "generate", self._count)
        self._wrap(trainer, "_generate_and_score_completions", "rollout")
        self._wrap(trainer, "training_step", "step")

    def _wrap(self, trainer: Any, name: str, phase: str, look: Callable[[Any], None] = lambda result: None) -> None:
        method = getattr(trainer, name)

        def timed(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            result = method(*given, **named)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begin
            look(result)
            return result

        setattr(trainer, name, timed)

    def _count(self, result: Any) -> None:
        self.answers += sum(len(ids) for ids in result[0])

    def take(self) -> dict[str, Any]:
        """What one step came to; the optimiser is in the rest, which no method of the trainer holds alone."""
        generate, rollout, step = (self.seconds.get(name, 0.0) for name in ("generate", "rollout", "step"))
        answers, self.seconds, self.answers = self.answers, {}, 0
        phases = {"generate": generate, "score": rollout - generate, "train": step - rollout}
        return {"phases": phases, "answers": answers, "trained": answers}


def _reward(work: Work) -> Callable[..., list[float]]:
    def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [float(text.rstrip().endswith(gold)) for text, gold in zip(completions, answer, strict=True)]

    def varied(completions: list[str], **_: Any) -> list[float]:
        return [dense(text) for text in completions]

    def verified(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float]:
        from surefoot.tasks.addition import verify
        from surefoot.types import Prompt

        triples = zip(prompts, completions, answer, strict=True)
        return [verify(Prompt("", prompt, gold), text).total for prompt, text, gold in triples]

    return {"answer": right, "demo": verified, "dense": varied}[work.reward]
