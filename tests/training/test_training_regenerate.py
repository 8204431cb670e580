"""``surefoot sample``: a sample made again from its seed is the sample, as long as its weights are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli.main import run as command
from surefoot.errors import RunFolderError
from surefoot.training import loop
from surefoot.training.regenerate import find_weights, regenerate
from tests.training.tiny import digits_reward, tiny


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int, str, int], list[int]]]:
    """A run of 5 steps that keeps the states 3, 4 and 5, and the tokens of every sample as they were drawn."""
    drawn: dict[tuple[str, int, str, int], list[int]] = {}
    config = tiny(
        tmp_path_factory.mktemp("runs"),
        train={"steps": 5},
        optimiser={"lr": 2e-2},
        evaluation={"every": 1, "problems": 4, "samples": 2, "temperature": 1.0},
        checkpoint={"every": 1, "keep_last": 3},
        rollout={"top_p": 0.95},
    )
    assemble = loop.assemble

    def spied(*arguments: Any, **options: Any) -> Any:
        parts = assemble(*arguments, **options)
        generate = parts.engine.generate

        def noted(requests: Any) -> Any:
            made = generate(requests)
            for group in made:
                for one in group:
                    kind = "heldout" if requests[0].sampling.top_p == 1.0 else "step"
                    step = int(one.version.max()) + (kind == "step")
                    drawn[kind, step, one.prompt_id, one.sample_id] = one.ids[one.prompt_length :].tolist()
            return made

        parts.engine.generate = noted  # type: ignore[method-assign]
        return parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "assemble", spied)
        return loop.train(config, reward=digits_reward()).folder, drawn


def test_every_sample_whose_weights_are_kept_comes_out_the_same(done: tuple[Path, Any]) -> None:
    run, drawn = done
    again = 0
    for (kind, step, prompt, number), ids in drawn.items():
        version = step - (kind == "step")
        if version not in (0, 3, 4, 5) or number != 1:
            continue
        made = regenerate(run, step, prompt, number, heldout=kind == "heldout")
        assert made.sample.ids[made.sample.prompt_length :].tolist() == ids
        assert made.same is not False
        again += 1
    assert again >= 12


def test_weights_that_are_gone_are_said(done: tuple[Path, Any]) -> None:
    run, drawn = done
    _, _, prompt, _ = next(key for key in drawn if key[:2] == ("step", 3))
    with pytest.raises(RunFolderError, match=r"version 2 are gone.*3, 4, 5.*checkpoint\.keep_last"):
        regenerate(run, 3, prompt, 0)


def test_the_last_model_serves_where_its_state_is_gone(done: tuple[Path, Any], tmp_path: Path) -> None:
    run, drawn = done
    moved = shutil.copytree(run, tmp_path / "moved")
    shutil.rmtree(moved / "state" / "step-000005")
    assert find_weights(moved, 5) == ("model", moved / "model")
    key = next(key for key in drawn if key[:2] == ("heldout", 5))
    made = regenerate(moved, 5, key[2], key[3], heldout=True)
    assert made.sample.ids[made.sample.prompt_length :].tolist() == drawn[key]


def test_an_adapter_is_put_back_on_its_base(tmp_path: Path) -> None:
    config = tiny(
        tmp_path, model={"lora": {"rank": 4}}, train={"steps": 2}, optimiser={"lr": 5e-2}, checkpoint={"every": 1}
    )
    run = loop.train(config, reward=digits_reward()).folder
    (record, *_) = [json.loads(line) for line in (run / "samples" / "step-000002.jsonl").open()]
    assert regenerate(run, 2, record["prompt_id"], record["sample_id"]).same
    for state in (run / "state").iterdir():
        (state / "model.safetensors").unlink()
    (record, *_) = [json.loads(line) for line in (run / "samples" / "heldout-000002.jsonl").open()]
    made = regenerate(run, 2, record["prompt_id"], record["sample_id"], heldout=True)
    assert made.same and made.weights == run / "model"


def test_mistakes_are_one_line(done: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = done
    for words, said in (
        ([str(tmp_path), "--step", "1", "--prompt", "x"], "holds no config.toml"),
        ([str(run), "--step", "1", "--prompt", "x"], "none of the 24 training prompts"),
        ([str(run), "--step", "0", "--prompt", "x"], "the first step is 1"),
    ):
        assert command(["sample", *words]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


def test_the_command_prints_the_text_and_says_whether_it_is_the_same(
    done: tuple[Path, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = done
    records = [json.loads(line) for line in (run / "samples" / "step-000005.jsonl").open()]
    words = ["sample", str(run), "--step", "5", "--prompt", records[1]["prompt_id"], "--sample", "1"]
    assert command(words) == 0
    out, err = capsys.readouterr()
    assert out == records[1]["completion"] + "\n" and "the same text as in samples/" in err
    assert command([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"] and found["seed"] == records[1]["seed"] and found["completion"] == records[1]["completion"]


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def _garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-100:] = b"\xff" * 100
    file.write_bytes(content)


@pytest.mark.parametrize("harm", [_cut, _garble], ids=["cut", "garbled"])
def test_a_damaged_state_is_not_used(done: tuple[Path, Any], tmp_path: Path, harm: Any) -> None:
    run = shutil.copytree(done[0], tmp_path / "moved")
    harm(run / "state" / "step-000004" / "model.safetensors")
    harm(run / "state" / "step-000005" / "model.safetensors")
    shutil.rmtree(run / "best", ignore_errors=True)
    with pytest.raises(
        RunFolderError, match=r"step-000004 is damaged \(model\.safetensors does not match its digest\)"
    ):
        find_weights(run, 4)
    assert find_weights(run, 5) == ("model", run / "model")  # the same weights
    (run / "state" / "step-000003" / "state.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"step-000003 is damaged \(JSONDecodeError"):
        find_weights(run, 3)


@pytest.mark.parametrize("content", ["[1]", '{"best": 3}', '{"best": [1], "steps": "5"}', "{", "[" * 5000, None])
def test_a_damaged_result_is_no_traceback(done: tuple[Path, Any], tmp_path: Path, content: str | None) -> None:
    run = tmp_path / "moved"
    for name in ("model", "best", "state/step-1x", "state/step-²"):
        (run / name).mkdir(parents=True)
    shutil.copy(done[0] / "config.toml", run)
    if content is not None:
        (run / "result.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"version 2 are gone: .* holds those of none"):
        find_weights(run, 2)


def test_what_can_be_made_is_said_where_weights_are_gone(done: tuple[Path, Any], tmp_path: Path) -> None:
    run = shutil.copytree(done[0], tmp_path / "moved")
    shutil.rmtree(run / "best", ignore_errors=True)
    for words in (
        r"training samples of steps 1, 4, 5, and with --heldout those of steps 0, 3, 4, 5",
        r"checkpoint\.every and checkpoint\.keep_last",
    ):
        with pytest.raises(RunFolderError, match=words):
            find_weights(run, 2)
    shutil.rmtree(run / "state")
    (run / "metrics.jsonl").write_text("{damaged\n[1]\n")
    with pytest.raises(RunFolderError, match="training samples of no step, and with --heldout those of steps 0, 5"):
        find_weights(run, 2)


def test_a_terminal_is_not_steered_by_a_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Made:
        text = "\x1b]0;title\x07\x1b[2J\x9b31m\u202ered\r\ttab\nline é"
        says = "the same"

    monkeypatch.setattr("surefoot.training.regenerate.regenerate", lambda *_, **__: Made)
    words = ["sample", str(tmp_path), "--step", "1", "--prompt", "x"]
    assert command(words) == 0 and capsys.readouterr().out == Made.text + "\n"  # a pipe gets what was written
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert command(words) == 0
    assert capsys.readouterr().out == r"\x1b]0;title\x07\x1b[2J\x9b31m\u202ered\r" + "\ttab\nline é\n"


def test_a_message_does_not_steer_the_terminal(done: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["sample", str(done[0]), "--step", "1", "--prompt", "\x1b[31mx\u202e"]) == 2
    err = capsys.readouterr().err
    assert r"'\x1b[31mx\u202e' is none of the" in err and "\x1b" not in err
