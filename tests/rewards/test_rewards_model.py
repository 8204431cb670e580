"""A sequence classifier as a reward: the right text goes in, batches change nothing, and a model that is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from surefoot.errors import ModelError, RewardError
from surefoot.policy.embedded import fresh_model
from surefoot.policy.reward_model import RewardModel, make_reward_model
from surefoot.rewards.base import Completion
from surefoot.rewards.compose import Composed, Part
from surefoot.rewards.grade import grade
from surefoot.types import Prompt, Status

TEMPLATE = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}."
CPU = torch.device("cpu")
PLAIN = Prompt("p", "1+1=", "2")
CHAT = Prompt("c", ({"role": "system", "content": "a"}, {"role": "user", "content": "b"}), "2")
TEXTS = ["2", "22", "a longer answer", "", "x" * 30]


def config(tokens: int, **over: Any) -> LlamaConfig:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaConfig(vocab_size=tokens, max_position_embeddings=96, **({"num_labels": 1} | sizes | over))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return fresh_model(0)[1]


@pytest.fixture(scope="module")
def folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(config(len(tokenizer), pad_token_id=tokenizer.pad_token_id or 0))
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    return made


def texts(reward: RewardModel, completions: list[Completion]) -> list[str]:
    return [reward.tokenizer.decode(reward._ids(completion)) for completion in completions]


def test_the_reward_is_the_output_of_the_classifier(folder: Path):
    reward = make_reward_model({"path": str(folder)}, device=CPU)
    scores = grade(reward, [Completion(PLAIN, text) for text in TEXTS])
    assert len({score.total for score in scores}) == len(TEXTS)
    model = LlamaForSequenceClassification.from_pretrained(folder)
    for completion, score in zip([Completion(PLAIN, text) for text in TEXTS], scores, strict=True):
        with torch.no_grad():
            alone = model(torch.tensor([reward._ids(completion)])).logits
        assert score.total == pytest.approx(alone.item(), abs=1e-6)
        assert score.components == {"model": score.total} and score.correct is None


@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_how_many_go_in_at_once_changes_nothing(folder: Path, tokens: int):
    reward = make_reward_model({"path": str(folder), "batch_tokens": tokens}, device=CPU)
    whole = make_reward_model({"path": str(folder)}, device=CPU)
    sizes: list[int] = []
    forward = reward._forward

    def watched(rows: Any) -> Any:
        sizes.append(len(rows) * max(map(len, rows)))
        return forward(rows)

    reward._forward = watched  # type: ignore[method-assign]
    completions = [Completion(PLAIN, text) for text in TEXTS * 3]
    found = [score.total for score in grade(reward, completions)]
    assert found == pytest.approx([score.total for score in grade(whole, completions)], abs=1e-6)
    assert tokens == 1 or max(sizes) <= tokens
    assert len(sizes) == {1: 15}.get(tokens, len(sizes)) and (tokens != 10_000 or len(sizes) == 1)


def test_what_it_reads_with_and_without_a_template(folder: Path, tokenizer: Any, tmp_path: Path):
    reward = RewardModel(make_reward_model({"path": str(folder)}, device=CPU).config, CPU)
    reward.tokenizer.chat_template = None
    assert texts(reward, [Completion(PLAIN, "2"), Completion(CHAT, "2")]) == ["1+1=2", "b2"]
    reward.tokenizer.chat_template = TEMPLATE
    assert texts(reward, [Completion(PLAIN, "2"), Completion(CHAT, "2")]) == [
        "[user]1+1=[assistant]2.",
        "[system]a[user]b[assistant]2.",
    ]


def test_a_text_beyond_its_context_is_invalid_and_no_other(folder: Path):
    reward = make_reward_model({"path": str(folder)}, device=CPU)
    scores = grade(reward, [Completion(PLAIN, "2"), Completion(PLAIN, "2" * 200)])
    assert [s.status for s in scores] == [Status.OK, Status.INVALID] and "context of 96" in scores[1].text


def test_its_numbers_are_float32_and_it_stays_out_of_training(folder: Path):
    model = LlamaForSequenceClassification.from_pretrained(folder).bfloat16()
    model.save_pretrained(folder.parent / "half")
    fresh_model(0)[1].save_pretrained(folder.parent / "half")
    reward = make_reward_model({"path": str(folder.parent / "half")}, device=CPU)
    assert {parameter.dtype for parameter in reward.model.parameters()} == {torch.float32}
    assert not reward.model.training and reward.threads == 0


def test_as_a_part_of_a_sum(folder: Path):
    reward = make_reward_model({"path": str(folder)}, device=CPU)
    (alone,) = grade(reward, [Completion(PLAIN, "2")])
    (score,) = grade(Composed((Part("liked", reward, 0.5),)), [Completion(PLAIN, "2")])
    assert score.components == {"liked": alone.total} and score.total == pytest.approx(alone.total / 2)


class TestRefused:
    def test_a_folder_that_is_none(self, tmp_path: Path):
        with pytest.raises(ModelError, match="has no config"):
            make_reward_model({"path": str(tmp_path / "nothing")}, device=CPU)

    def test_a_language_model_whose_head_would_be_random(self, tokenizer: Any, tmp_path: Path):
        LlamaForCausalLM(config(len(tokenizer))).save_pretrained(tmp_path / "lm")
        tokenizer.save_pretrained(tmp_path / "lm")
        with pytest.raises(ModelError, match=r"lacks weights of a sequence classifier, the first is score\.weight"):
            make_reward_model({"path": str(tmp_path / "lm")}, device=CPU)

    def test_a_classifier_of_several_classes(self, tokenizer: Any, tmp_path: Path):
        LlamaForSequenceClassification(config(len(tokenizer), num_labels=3)).save_pretrained(tmp_path / "many")
        tokenizer.save_pretrained(tmp_path / "many")
        with pytest.raises(ModelError, match="has 3 outputs: expected one"):
            make_reward_model({"path": str(tmp_path / "many")}, device=CPU)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({}, "'path' is missing"),
            ({"path": "x", "pth": "y"}, "Did you mean 'path'"),
            ({"path": "x", "batch_tokens": 0}, "0"),
        ],
    )
    def test_options(self, options: dict[str, Any], words: str):
        with pytest.raises(RewardError, match=words):
            make_reward_model(options, device=CPU)
