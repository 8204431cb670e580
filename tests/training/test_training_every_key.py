"""Every key of the configuration does something: changing it changes what its row here says."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot
from surefoot.config import keys, merge, nested, validate
from surefoot.errors import SurefootError
from surefoot.policy import compile as compile_module
from surefoot.rollout import local as local_module
from surefoot.rollout import repack as repack_module
from surefoot.training import assemble as assemble_module
from surefoot.training import learner as learner_module
from surefoot.training.config import RunConfig, SftConfig
from surefoot.training.loop import RunResult, train
from surefoot.training.sft import sft
from tests.training.tiny import TINY, digits_reward

Seen = dict[str, Any]
# The bases that some rows need: options without which the key has nothing to act on.
LEARNS = {
    "rollout": {"max_new_tokens": 6},
    "train": {"steps": 2},
    "evaluation": {"every": 1},
    "checkpoint": {"every": 1},
}
GREEDY_OFF = {"evaluation": {"temperature": 1.0, "samples": 4}}
GRADED = {"grade": "verifier"}
RISES = {
    "task": {"heldout_size": 40},
    "evaluation": {"problems": 40, "verifier": "auto"},
    "train": {"steps": 6},
    "optimiser": {"lr": 1e-2},
    "health": {"reward_rise_above": 1000.0},
}
LORA = {"model": {"lora": {"rank": 4}}}
PPO = {"algorithm": {"preset": "ppo"}, "critic": {"lr": 1e-2}}
FIVE = {
    "name": "addition",
    "options": {"digits": 2},
    "train_size": 5,
    "heldout_size": 0,
}  # of those that are trained on

# key: (what to look at, changed value, further base options)
RUN: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "name": ("folder", "other", {}),
    "runs": ("folder", "elsewhere", {}),
    "seed": ("metrics", 1, {}),
    "model.path": ("parameters", "<other model>", {}),
    "model.dtype": ("dtype", "bfloat16", {}),
    "model.autocast": ("metrics", "bfloat16", {}),
    "model.compile": ("compiled", True, {}),
    "model.head_float32": ("metrics", True, {"model": {"dtype": "bfloat16"}}),
    "model.device": ("error", "cuda:63", {}),
    "model.seed": ("metrics", 1, {}),
    "model.logprob_chunk": ("logit_rows", 3, {}),
    "model.logprob_keep": ("logit_products", 0, {}),
    "model.checkpointing": ("layers", True, {}),
    "model.attention": ("attention", "eager", {}),
    "model.lora.rank": ("files", 4, {}),
    "model.lora.alpha": ("weights", 8.0, LORA),
    "model.lora.rslora": ("weights", True, LORA),
    "model.lora.target_modules": ("weights", ["q_proj"], LORA),
    "model.lora.path": ("metrics", "<adapter>", {}),
    "task.name": ("samples", "chain_mod", {"task": {"options": {}}}),
    "task.path": (
        "samples",
        "<file>",
        {"task": {"name": "file", "path": "<other file>", "options": {}, "heldout_share": 0.3}},
    ),
    "task.heldout_path": (
        "heldout",
        "<other file>",
        {"task": {"name": "file", "path": "<file>", "options": {}, "heldout_share": 0.3}},
    ),
    "task.options": ("samples", {"digits": 1}, {}),
    "task.seed": ("samples", 1, {}),
    "task.train_size": ("fingerprint", 25, {}),
    "task.heldout_size": ("fingerprint", 7, {}),
    "task.heldout_share": ("fingerprint", 0.5, {}),
    "task.parts": (
        "samples",
        [{"name": "addition"}, {"name": "chain_mod", "weight": 3.0}],
        {"task": {"name": "mixture", "options": {}, "parts": [{"name": "addition"}, {"name": "chain_mod"}]}},
    ),
    "task.overlap": (
        "error",
        "refuse",
        {"task": {"name": "file", "path": "<file>", "heldout_path": "<file copy>", "options": {}, "overlap": "drop"}},
    ),
    "task.exclude": ("fingerprint", [FIVE], {}),
    "task.exclude_ngram": ("fingerprint", 1, {"task": {"exclude": [FIVE]}}),
    "task.template_options": ("error", {"enable_thinking": True}, {}),
    "task.think": ("prompts", "<think>", {}),
    "task.shots": ("prompts", 2, {}),
    "task.shots_path": ("prompts", "<file>", {"task": {"shots": 1}}),
    "task.max_prompt_tokens": ("error", 3, {}),
    "task.overlong": ("error", "refuse", {"task": {"max_prompt_tokens": 5, "overlong": "truncate"}}),
    "task.template": ("error", "plain", {"task": {"template": "chat", "system": "Add."}}),
    "task.system": ("prompts", "Add.", {"task": {"template": "chat"}}),
    "task.prompt": ("prompts", "Sum: {prompt}", {}),
    "reward.verifier": ("rewards", "tag", GRADED | {"gold": True}),
    "reward.right": ("rewards", 3.0, GRADED | {"gold": True}),
    "reward.wrong": ("rewards", -1.0, GRADED),
    "reward.format_weight": ("rewards", 0.5, GRADED | {"gold": True}),
    "reward.options": ("error", {"nothing": 1}, GRADED | {"reward": {"verifier": "number"}}),
    "reward.parts": ("rewards", {"a": {"verifier": "number", "weight": 0.5}}, GRADED | {"gold": True}),
    "reward.overlap": ("graded_by", "always", {}),
    "reward.concurrency": ("at_once", 2, {"grade": "async"}),
    "reward.deadline": ("statuses", 0.05, {"grade": "async"}),
    "rollout.temperature": ("metrics", 0.5, {}),
    "rollout.top_p": ("metrics", 0.5, {}),
    "rollout.top_k": ("metrics", 3, {}),
    "rollout.max_new_tokens": ("metrics", 4, {}),
    "rollout.max_batch_tokens": ("forwards", 60, {}),
    "rollout.stop": ("finishes", ["1", "2", "3", "a", "b", "c", "d", "e", "f"], {"rollout": {"max_new_tokens": 20}}),
    "rollout.repack": ("repacked", False, {"wide": True, "rollout": {"max_new_tokens": 20}}),
    "rollout.quantise": ("metrics", "int8", {}),
    "algorithm.preset": ("weights", "dr_grpo", {}),
    "algorithm.name": ("card", "mine", {}),
    "algorithm.paper": ("card", "My paper (2026).", {}),
    "algorithm.note": ("card", "My note.", {}),
    "algorithm.prompts": ("samples", "prioritised", {"train": {"steps": 3}}),
    "algorithm.head": ("metrics", "float32", {"model": {"dtype": "bfloat16"}}),
    "algorithm.interruption": ("samples", {"kind": "force_answer", "share": 0.3, "phrase": "=", "close": ""}, {}),
    "algorithm.truncated": ("metrics", "mask_loss", {"rollout": {"max_new_tokens": 30}}),
    "algorithm.shaping": ("metrics", {"kind": "soft_overlong", "share": 0.9}, {"rollout": {"max_new_tokens": 30}}),
    "algorithm.weights": ("metrics", "high_entropy", {}),
    "algorithm.value": ("metrics", {"clip": 1e-6}, PPO | {"train": {"epochs": 2}}),
    "algorithm.reset": ("weights", {"kind": "every", "steps": 1, "reference": False}, {}),
    "algorithm.selection": ("kept", "drop_no_signal", {"reward": "equal"}),
    "algorithm.advantage": ("weights", "leave_one_out", {}),
    "algorithm.ratio": ("metrics", {"anchor": "behaviour"}, {}),
    "algorithm.trust": ("metrics", {"high": 1e-6}, {"train": {"epochs": 2}}),
    "algorithm.correction": ("metrics", "token_truncate", {}),
    "algorithm.kl": ("metrics", {"kind": "in_loss", "coef": 0.5}, {"train": {"steps": 2}}),
    "algorithm.aggregation": ("metrics", "seq_mean_token_sum", {}),
    "train.steps": ("metrics", 3, {}),
    "train.prompts_per_step": ("metrics", 2, {}),
    "train.group_size": ("metrics", 3, {}),
    "train.updates_per_step": ("updates", 3, {}),
    "train.epochs": ("updates", 2, {}),
    "train.micro_batch_tokens": ("micro_batches", 40, {}),
    "train.layout": ("layout", "packed", {}),
    "train.old": ("metrics", "behaviour", {"train": {"epochs": 2}}),
    "train.threads": ("threads", 2, {"train": {"threads": 1}}),
    "optimiser.lr": ("weights", 2e-3, {}),
    "optimiser.schedule": ("weights", "linear", {}),
    "optimiser.warmup_steps": ("weights", 2, {}),
    "optimiser.beta1": ("weights", 0.5, {}),
    "optimiser.beta2": ("weights", 0.5, {}),
    "optimiser.eps": ("weights", 1e-2, {}),
    "optimiser.weight_decay": ("weights", 0.5, {}),
    "optimiser.max_grad_norm": ("weights", 1e-4, {"optimiser": {"eps": 1e-3}}),
    "optimiser.offload": ("said", True, {}),
    "critic.kind": ("metrics", "head", PPO),
    "critic.path": ("metrics", "<third model>", PPO),
    "critic.lr": ("metrics", 1e-3, PPO),
    "critic.max_grad_norm": ("metrics", 1e-9, PPO),
    "critic.warmup_steps": ("updates", 1, PPO),
    "evaluation.every": ("evaluations", 2, {}),
    "evaluation.problems": ("evaluations", 3, {}),
    "evaluation.samples": ("evaluations", 2, GREEDY_OFF),
    "evaluation.temperature": ("heldout", 0.5, GREEDY_OFF),
    "evaluation.top_p": ("heldout", 0.3, GREEDY_OFF),
    "evaluation.seed": ("heldout", 1, GREEDY_OFF),
    "evaluation.confidence": ("evaluations", 0.5, {}),
    "budget.samples": ("metrics", 1, {"train": {"steps": 3}}),
    "budget.tokens": ("metrics", 1, {"train": {"steps": 3}}),
    "budget.flops": ("metrics", 1.0, {"train": {"steps": 3}}),
    "budget.seconds": ("metrics", 1e-6, {"train": {"steps": 3}}),
    "evaluation.verifier": ("evaluations", "tag", GRADED | {"gold": True}),
    "checkpoint.every": ("states", 2, {"checkpoint": {"keep_last": 5}}),
    "checkpoint.keep_last": ("states", 1, {}),
    "checkpoint.keep_best": ("files", False, {}),
    "track.tensorboard": ("files", True, {}),
    "track.wandb": ("tracked", True, {}),
    "track.trackio": ("tracked", True, {}),
    "track.project": ("tracked", "mine", {"track": {"wandb": True}}),
    "track.policy_grad_norm": ("metrics", 1, {"algorithm": {"preset": "grpo"}}),
    "track.samples_per_step": ("samples", 0, {}),
    "track.token_details": ("samples", 0, {}),
    "health.truncated_above": ("warnings", 0.0, {"health": {"truncated_above": 1.0}}),
    "health.entropy_below": ("warnings", 2.0, {}),
    "health.mismatch_above": ("warnings", 0.0, {}),
    "health.reward_rise_above": ("warnings", 0.0, RISES),
    "audit.before": ("error", "stop", {"reward": "leaky", "audit": {"seconds": 600}}),
    "audit.prompts": ("audited", 5, {"audit": {"before": "warn", "seconds": 600}}),
    "audit.seconds": ("audited", 1e-7, {"audit": {"before": "warn", "seconds": 600}}),
}


def test_every_key_has_a_row() -> None:
    assert sorted(RUN) == sorted(keys(RunConfig))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that rows refer to by <name>."""
    from surefoot.policy.config import ModelConfig
    from surefoot.policy.loading import load_policy, save_policy
    from surefoot.policy.lora import own_parameters

    folder = tmp_path_factory.mktemp("material")
    policy = load_policy(ModelConfig())
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    save_policy(policy, folder / "third")
    adapted = load_policy(ModelConfig(lora={"rank": 2}))
    with torch.no_grad():
        for parameter in own_parameters(adapted.model).values():
            parameter.add_(0.1)
    save_policy(adapted, folder / "adapted")
    policy.model.resize_token_embeddings(len(policy.tokenizer) + 40)
    save_policy(policy, folder / "model")
    for name, sign in (("file", "+"), ("other file", "-")):
        rows = [{"prompt": f"{a}{sign}{b}=", "answer": str(a)} for a in range(5) for b in range(5)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    copy = [{"prompt": "what is 1+1", "answer": "2"}, {"prompt": "1 + 1 =", "answer": "1"}]
    (folder / "file copy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in copy))
    return {
        "<file copy>": str(folder / "file copy.jsonl"),
        "<other model>": str(folder / "model"),
        "<adapter>": str(folder / "adapted" / "adapter"),
        "<third model>": str(folder / "third"),
        "<file>": str(folder / "file.jsonl"),
        "<other file>": str(folder / "other file.jsonl"),
    }


def fill(value: Any, material: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: fill(item, material) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, material) for item in value]
    return material.get(value, value) if isinstance(value, str) else value


def observe(config: RunConfig, base: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Run and look at everything that a key could change."""
    seen: Seen = {"micro_batches": 0, "forwards": 0, "layout": set(), "layers": 0, "tracked": []}
    seen |= {
        "logit_rows": 0,
        "logit_products": 0,
        "compiled": 0,
        "repacked": 0,
        "said": [],
        "graded_by": set(),
        "at_once": 0,
    }
    spy_on_grading(seen, monkeypatch)
    spy_on_forwards(seen, monkeypatch)
    spy_on_trackers(seen, monkeypatch)
    if base.get("wide"):
        monkeypatch.setattr(repack_module, "LEAST_WEIGHTS", 0)
    reward = None if base.get("grade") == "verifier" else digits_reward()
    if base.get("reward") == "equal":
        from surefoot.rewards.functions import as_reward

        reward = as_reward(lambda prompt, completion, answer: 1.0)
    if base.get("reward") == "leaky":
        from surefoot.rewards.functions import as_reward

        reward = as_reward(lambda prompt, completion, answer: answer in completion)
    if base.get("gold"):
        completion = assemble_module.Completion
        monkeypatch.setattr(
            assemble_module, "Completion", lambda prompt, _, *rest: completion(prompt, f">{prompt.answer}", *rest)
        )
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = train_async(config, seen) if base.get("grade") == "async" else train(config, reward=reward)
        seen["said"] = sorted({str(warning.message) for warning in said})
    except SurefootError as error:
        return {"error": str(error)}
    run = result.folder
    lines = {name: read(run / f"{name}.jsonl") for name in ("metrics", "evaluations", "warnings")}
    training = "".join(file.read_text() for file in sorted((run / "samples").glob("step-*")))
    records = [json.loads(line) for line in training.splitlines()]
    from safetensors.torch import load_file

    weights = load_file(run / "model" / "model.safetensors")
    return (
        seen
        | lines
        | {
            "error": None,
            "folder": str(run),
            "card": read(run / "card.md"),
            "audited": json.loads(read(run / "audit.json") or "{}").get("prompts"),
            "samples": training,
            "heldout": "".join(file.read_text() for file in sorted((run / "samples").glob("heldout-*"))),
            "rewards": [record["reward"] for record in records],
            "statuses": [record["status"] for record in records],
            "finishes": [record["finish"] for record in records],
            "files": sorted({p.name.split(".")[0] for p in [*run.iterdir(), *(run / "model").iterdir()]}),
            "states": sorted(p.name for p in (run / "state").iterdir()),
            "weights": hashlib.sha256(b"".join(v.float().numpy().tobytes() for v in weights.values())).hexdigest(),
            "parameters": sum(value.numel() for value in weights.values()),
            "dtype": {str(value.dtype) for value in weights.values()},
            "updates": result.summary["updates"],
            "kept": [json.loads(line)["batch/rows_kept"] for line in lines["metrics"].splitlines()],
            "threads": torch.get_num_threads(),
            "fingerprint": json.loads(next((run / "state").glob("*/state.json")).read_text())["task"],
        }
    )


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def spy_on_grading(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(*arguments: Any) -> Any:
        seen["graded_by"].add(threading.current_thread().name.split("_")[0])
        return grade(*arguments)

    grade = assemble_module.grade
    monkeypatch.setattr(assemble_module, "grade", watched)


def train_async(config: RunConfig, seen: Seen) -> RunResult:
    """A run with an async function as its reward, the slow where a completion begins with a letter."""
    running = 0

    async def share(prompt: str, completion: str, answer: object) -> float:
        nonlocal running
        running += 1
        seen["at_once"] = max(seen["at_once"], running)
        await asyncio.sleep(0.3 if completion[:1].isalpha() else 0.005)
        running -= 1
        return sum(c.isdigit() for c in completion) / max(1, len(completion))

    return surefoot.train(config, reward=share)


def spy_on_forwards(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn import functional

    logprobs, linear = learner_module.token_logprobs, functional.linear

    def counted(policy: Any, packed: Any, **options: Any) -> Any:
        seen["micro_batches"] += 1
        seen["layout"].add(options.get("layout"))
        seen["attention"] = policy.model.config._attn_implementation
        return logprobs(policy, packed, **options)

    def widest(value: Any, weight: Any, bias: Any = None) -> Any:
        if len(weight) > 90 and value.dim() == 2:
            seen["logit_rows"] = max(seen["logit_rows"], len(value))
            seen["logit_products"] += 1
        return linear(value, weight, bias)

    def built(config: Any, **options: Any) -> Any:
        parts = real_build(config, **options)
        embedding = parts.policy.model.get_input_embeddings()  # decode steps of the engine's own call no other module
        embedding.register_forward_hook(lambda *_: seen.__setitem__("forwards", seen["forwards"] + 1))
        layer = parts.policy.model.base_model.layers[0].mlp  # within what is computed again
        layer.register_forward_pre_hook(lambda *_: seen.__setitem__("layers", seen["layers"] + 1))
        seen["prompts"] = [ids.tolist() for _, ids in parts.heldout]
        return parts

    def plain(backend: str) -> Any:  # compiling has tests of its own and takes a minute
        seen["compiled"] += 1
        return compile_module._plain

    passes = local_module.repacked_passes

    def repacked(*given: Any) -> Any:
        seen["repacked"] += 1
        return passes(*given)

    from surefoot.training import loop as loop_module

    monkeypatch.setattr(local_module, "repacked_passes", repacked)
    monkeypatch.setattr(compile_module, "_runner", plain)
    real_build = loop_module.assemble
    monkeypatch.setattr(loop_module, "assemble", built)
    monkeypatch.setattr(learner_module, "token_logprobs", counted)
    monkeypatch.setattr(functional, "linear", widest)


def spy_on_trackers(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the services, which are not installed with the tests: what they are told is written down."""
    import sys
    import types

    for name in ("wandb", "trackio"):
        module = types.ModuleType(name)

        class Run:
            def log(self, *_: Any, **__: Any) -> None: ...

            def finish(self, *_: Any, **__: Any) -> None: ...

        def init(*_: Any, name_of: str = name, **options: Any) -> Run:
            seen["tracked"].append((name_of, options.get("project")))
            return Run()

        module.init = init  # type: ignore[attr-defined]
        module.log = lambda *_, **__: None  # type: ignore[attr-defined]
        module.finish = lambda *_, **__: None  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("key", sorted(RUN))
def test_changing_the_key_changes_something(
    key: str, tmp_path: Path, material: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at, value, base = RUN[key]
    sections = {name: part for name, part in base.items() if isinstance(part, dict)}
    threads = torch.get_num_threads()
    values = merge(merge(merge(TINY, LEARNS), {"runs": str(tmp_path / "base")}), fill(sections, material))
    changed = merge(values, {"runs": str(tmp_path / "changed")})
    if key == "runs":
        value = str(tmp_path / "elsewhere")
    changed = merge(changed, nested(key, fill(value, material)))
    if key == "task.options":
        changed["task"]["options"] = value
    if "options" in base.get("task", {}):  # another task than the one whose options are in the base
        values["task"]["options"] = changed["task"]["options"] = {}
    try:
        seen = []
        for config in (values, changed):
            with monkeypatch.context() as patch:
                seen.append(observe(validate(RunConfig, config), base, patch))
    finally:
        torch.set_num_threads(threads)
    before, after = seen
    if look_at == "folder":
        assert Path(after["folder"]).name == ("other" if key == "name" else "tiny")
        assert key == "name" or after["folder"].startswith(value)
        return
    assert before["error"] is None, before["error"]
    if look_at != "error":
        assert after["error"] is None, after["error"]
    assert before[look_at] != after[look_at]


SFT: dict[str, tuple[Any, Callable[[dict[str, Any]], Any]]] = {
    "name": ("other", lambda seen: seen["folder"].name),
    "runs": ("<elsewhere>", lambda seen: seen["folder"].parent.name),
    "seed": (1, lambda seen: seen["metrics"]),
    "steps": (4, lambda seen: seen["summary"]["steps"]),
    "batch": (5, lambda seen: seen["metrics"]),
    "error_rate": (1.0, lambda seen: seen["metrics"]),
    "micro_batch_tokens": (30, lambda seen: seen["micro_batches"]),
    "target_accuracy": (1e-9, lambda seen: seen["summary"]["steps"]),
    "check_every": (1, lambda seen: seen["evaluations"]),
    "threads": (2, lambda seen: seen["threads"]),
}


def test_every_key_of_supervised_training_has_a_row() -> None:
    shared = {key for key in keys(SftConfig) if "." in key}
    assert sorted(SFT) == sorted(set(keys(SftConfig)) - shared)
    assert shared <= set(RUN)


@pytest.mark.parametrize("key", sorted(SFT))
def test_changing_the_key_of_supervised_training_changes_something(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surefoot.training import sft as sft_module

    value, look_at = SFT[key]
    base: dict[str, Any] = {
        "runs": str(tmp_path / "base"),
        "task": TINY["task"],
        "rollout": {"max_new_tokens": 4},
        "evaluation": {"problems": 2},
        "steps": 3,
        "batch": 4,
        "check_every": 2,
        "threads": 1,
    }
    changed = merge(
        base, {"runs": str(tmp_path / "changed")} | nested(key, str(tmp_path / "x") if key == "runs" else value)
    )
    reward = None
    if key == "target_accuracy":
        from surefoot.rewards.functions import as_reward
        from surefoot.types import Score

        def right(prompt: str, completion: str, answer: object) -> Score:
            return Score(1.0, correct=True)

        reward = as_reward(right)
        base["target_accuracy"] = 2.0
        value = 1.0
        changed["target_accuracy"] = 1.0
    threads, seen = torch.get_num_threads(), []
    logprobs = sft_module.token_logprobs
    try:
        for config in (base, changed):
            calls = [0]

            def counted(*arguments: Any, calls: list[int] = calls, **options: Any) -> Any:
                calls[0] += 1
                return logprobs(*arguments, **options)

            monkeypatch.setattr(sft_module, "token_logprobs", counted)
            result = sft(validate(SftConfig, config), reward=reward)
            seen.append(
                {
                    "folder": result.folder,
                    "summary": result.summary,
                    "metrics": read(result.folder / "metrics.jsonl"),
                    "evaluations": read(result.folder / "evaluations.jsonl"),
                    "micro_batches": calls[0],
                    "threads": torch.get_num_threads(),
                }
            )
    finally:
        torch.set_num_threads(threads)
    assert look_at(seen[0]) != look_at(seen[1])
