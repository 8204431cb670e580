"""The peak memory of log-probability and backward, measured in a process of its own, grows by hidden states only.

A vocabulary of 150,000 makes the logits of one token 600 kilobytes: whatever held them for all tokens would show at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

VOCABULARY, WIDTH, CHUNK = 150_000, 16, 64
# In hidden states of a token: the state and its gradient are 2; targets, temperatures and results are a few numbers more.
ALLOWED = 6
SLACK = 8 * 2**20  # of the allocator, whatever the number of tokens

PROGRAM = """
import json, sys
from pathlib import Path

import torch

from surefoot.policy.head import Head
from surefoot.policy.logprob import chunked_logprobs

vocabulary, width, chunk = (int(word) for word in sys.argv[1:4])


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


torch.manual_seed(0)
torch.set_num_threads(1)
module = torch.nn.Linear(width, vocabulary, bias=False)
module.weight.grad = torch.zeros_like(module.weight)
head = Head(module)
found = []
for tokens in (chunk, *(int(word) for word in sys.argv[4:])):  # the first also fills the buffers of the libraries
    hidden = torch.randn(tokens, width).requires_grad_()
    target = torch.randint(vocabulary, (tokens,))
    Path("/proc/self/clear_refs").write_text("5")
    begin = peak()
    logp, _, _ = chunked_logprobs(hidden, head, target, torch.ones(tokens), chunk)
    logp.sum().backward()
    found.append(peak() - begin)
    del hidden, target, logp
print(json.dumps(found[1:]))
"""


def peaks(*tokens: int) -> list[int]:
    """Bytes above what was resident before, for each number of tokens."""
    words = [VOCABULARY, WIDTH, CHUNK, *tokens]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of a part of a process is known on Linux only"
)


@pytest.mark.parametrize(
    "tokens", [(256, 1024), pytest.param((1024, 16384), marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_peak_grows_by_hidden_states_only(tokens: tuple[int, int]) -> None:
    few, many = peaks(*tokens)
    grown = tokens[1] - tokens[0]
    assert many - few <= ALLOWED * grown * WIDTH * 4 + SLACK
    assert few < 8 * CHUNK * VOCABULARY * 4  # a few chunks of logits at a time, and the gradient of the weights
    logits = grown * VOCABULARY * 4
    assert many - few < logits / 20
