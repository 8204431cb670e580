"""The critic: the value of the state before each token, from a linear head on hidden states.

    V(s_t) = w . h_t + b,    h_t: the hidden state that predicts token t

The hidden states are the policy's own (``critic.kind = "head"``: no second model, and the loss of the values moves the
policy's weights too) or those of a model of its own (``"model"``, as in InstructGPT, arXiv 2203.02155). A model of its own
has no language-model head, which nothing would train. Where the policy learns by adapters, so does the critic: a critic that
starts from the policy shares its base and has adapters of its own.

The head starts at zero. A random head adds noise of the size of the rewards to the first advantages; with zeros they are
what the rewards alone make them, and the first step, whose gradient is h_t, moves the head all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from surefoot.batches import Packed
from surefoot.errors import ModelError, RunFolderError
from surefoot.files import write_folder_atomic
from surefoot.policy.autocast import Autocast, autocast
from surefoot.policy.config import CriticConfig, LoraConfig
from surefoot.policy.layout import Layout, decoder, hidden_states
from surefoot.policy.loading import check_folder, load_policy, remove_dropout, told
from surefoot.policy.lora import adapters, attach, copy_of, merged, own_parameters
from surefoot.policy.policy import Policy
from surefoot.policy.quiet import quiet

VALUE_HEAD = "value_head.safetensors"  # a folder that holds it is a critic's


@dataclass(frozen=True)
class Critic:
    """A value for every state.

    Attributes:
        module: the critic's own parameters: ``head``, float32, and ``trunk``, in the policy's dtype, where it has one.
        tokenizer: the policy's, saved beside the weights.
        autocast: what a model of its own runs in, that of the policy; the head runs in float32.
    """

    module: nn.ModuleDict
    tokenizer: Any
    autocast: Autocast = "off"

    @property
    def shared(self) -> bool:
        """Whether it reads the policy's hidden states and has no model of its own."""
        return "trunk" not in self.module

    @property
    def head(self) -> nn.Linear:
        head = self.module["head"]
        assert isinstance(head, nn.Linear)
        return head

    @property
    def trunk(self) -> Any:
        """The model of its own, without a language-model head; None where it has none."""
        return None if self.shared else self.module["trunk"]

    def predict(self, packed: Packed, hidden: Tensor | None = None, layout: Layout = "right") -> Tensor:
        """The value of the state before each loss token, with gradient.

        Args:
            packed: the micro-batch, M loss tokens.
            hidden: [M, d], the policy's hidden states that predict the loss tokens. A critic with a model of its own does
                not look at them.
            layout: how the sequences lie in the forward pass of a model of its own; every layout gives the same values.

        Returns:
            [M] float32, in stream order.

        Raises:
            ModelError: the critic's model cannot take the layout.
            ValueError: no hidden states for a critic that shares the policy's.
        """
        if not self.shared:
            device = self.head.weight.device
            with autocast(self.autocast, device):
                hidden = hidden_states(self.trunk, packed.to(device), layout)
        elif hidden is None:
            raise ValueError("a critic of the kind 'head' needs the policy's hidden states")
        values: Tensor = self.head(hidden.float())
        return values.squeeze(-1)


def make_critic(policy: Policy, config: CriticConfig) -> Critic:
    """The critic that the configuration names, on the policy's device; the policy's weights are copied, not shared.

    Raises:
        ModelError: a path that is not there, holds another kind of critic, or reads other tokens than the policy; a
            policy whose hidden states cannot be told from its logits.
    """
    folder = None if config.path is None else Path(config.path).expanduser()
    saved = folder if folder is not None and (folder / VALUE_HEAD).is_file() else None
    if config.kind == "head":
        trunk = None
        check_shared(policy, config, saved)
    elif saved is not None:
        trunk = read_trunk(policy, config, saved)
    else:
        trunk = fresh_trunk(policy, config)
    size = width(policy.model if trunk is None else trunk)
    head = nn.utils.skip_init(nn.Linear, size, 1, device=policy.device, dtype=torch.float32)  # draws no random numbers
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    if saved is not None:
        read_head(head, saved, config)
    parts: dict[str, nn.Module] = {"head": head} if trunk is None else {"trunk": trunk, "head": head}
    return Critic(nn.ModuleDict(parts), policy.tokenizer, policy.config.autocast)


def save_critic(critic: Critic, folder: Path) -> None:
    """Write the critic, whole or not at all, so that ``critic.path`` can name the folder; an older one is replaced.

    A model of its own is written in Hugging Face layout (``AutoModel`` reads it), the head in a file beside it.

    Raises:
        RunFolderError: a full disk, no permission, or a folder that holds something other than a critic.
    """
    if folder.exists() and not (folder / VALUE_HEAD).exists() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} holds something that is not a critic and would be removed: name another folder")

    def fill(target: Path) -> None:
        if not critic.shared:
            merged(critic.trunk).save_pretrained(target)
            critic.tokenizer.save_pretrained(target)
        head = {name: value.detach().contiguous() for name, value in critic.head.named_parameters()}
        save_file(head, target / VALUE_HEAD)

    with quiet():
        write_folder_atomic(folder, fill)


def fresh_trunk(policy: Policy, config: CriticConfig) -> Any:
    """The policy's model, or the one that the path names, without its language-model head."""
    source = policy
    if config.path is not None:
        # Its language-model head is not used, in whatever format, and adapters of the policy are not its own.
        change = {"path": config.path, "head_float32": False, "lora": LoraConfig()}
        try:
            source = load_policy(policy.config.model_copy(update=change))
        except ModelError as error:
            raise ModelError(str(error).replace("model.path", "critic.path")) from error
        check_tokens(policy, source.tokenizer, config)
    trunk = decoder(source.model)
    if trunk is source.model:
        raise ModelError(
            f"{type(trunk).__name__} makes no hidden states apart from its logits, which a critic needs: set critic.path "
            f"to another model"
        )
    return learning(copy_of(trunk) if source is policy else trunk, policy).eval()


def read_trunk(policy: Policy, config: CriticConfig, folder: Path) -> Any:
    """The model of a critic that a run saved."""
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"critic.path = '{config.path}' is a head without a model, and critic.kind is 'model': set critic.kind = 'head', or "
            f"leave critic.path out"
        )
    with quiet(), told(f"critic.path = '{config.path}'"):
        try:
            check_folder(str(config.path), folder)
        except ModelError as error:
            raise ModelError(str(error).replace("model.path", "critic.path")) from error
        check_tokens(policy, AutoTokenizer.from_pretrained(folder, trust_remote_code=False), config)
        loaded: Any = AutoModel.from_pretrained(
            folder,
            dtype=getattr(torch, policy.config.dtype),
            attn_implementation=policy.config.attention,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, which is read below
        )
        trunk, report = loaded
        wrong = [key for kind in ("missing_keys", "mismatched_keys", "unexpected_keys") for key in report[kind]]
        refuse_weights(config, [str(key[0] if isinstance(key, tuple) else key) for key in wrong])
        remove_dropout(trunk)
    return learning(trunk.to(policy.device), policy)


def learning(trunk: Any, policy: Policy) -> Any:
    """The trunk with what learns of it: all of it, or adapters like the policy's alone where the policy has some."""
    layers = adapters(policy.model)
    if layers and not adapters(trunk):
        names = sorted({name.rsplit(".", 1)[-1] for name in layers})
        attach(trunk, next(iter(layers.values())).spec, names, policy.config.seed)
    for parameter in own_parameters(trunk).values():
        parameter.requires_grad_(True)
    return trunk


def read_head(head: nn.Linear, folder: Path, config: CriticConfig) -> None:
    with told(f"critic.path = '{config.path}'"):
        stored = load_file(folder / VALUE_HEAD)
        parameters = dict(head.named_parameters())
        refuse_weights(
            config,
            [
                name
                for name in sorted({*parameters, *stored})
                if name not in stored or name not in parameters or stored[name].shape != parameters[name].shape
            ],
        )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(stored[name])


def check_shared(policy: Policy, config: CriticConfig, saved: Path | None) -> None:
    """A head reads the hidden states of the policy, and starts from nothing but a head."""
    if policy.head is None:
        raise ModelError(
            f"critic.kind = 'head' needs a policy whose hidden states can be told from its logits, which "
            f"model.path = '{policy.config.path}' does not give: set critic.kind = 'model'"
        )
    if config.path is not None and saved is None:
        raise ModelError(
            f"critic.path = '{config.path}' has no {VALUE_HEAD}: with critic.kind = 'head' it can only be the critic folder of a "
            f"run with that kind; set critic.kind = 'model' for a model of its own"
        )
    if saved is not None and (saved / "config.json").exists():
        raise ModelError(
            f"critic.path = '{config.path}' holds a critic with a model of its own: set critic.kind = 'model'"
        )


def check_tokens(policy: Policy, tokenizer: Any, config: CriticConfig) -> None:
    """The critic reads the policy's token ids, so that they must mean the same to it."""
    theirs = tokenizer.get_vocab()
    for token, index in policy.tokenizer.get_vocab().items():
        if theirs.get(token) != index:
            raise ModelError(
                f"critic.path = '{config.path}' has another tokenizer than model.path = '{policy.config.path}' ({token!r} is "
                f"{theirs.get(token)} there and {index} here): name a model of the same family"
            )


def refuse_weights(config: CriticConfig, names: Sequence[str]) -> None:
    if names:
        raise ModelError(
            f"critic.path = '{config.path}': {len(names)} of its weights are missing, of another shape or not its own, the "
            f"first is {min(names)}: name a critic folder that a run with this model saved"
        )


def width(model: Any) -> int:
    """The size of a hidden state, from a forward pass of one token: configurations name it in many ways."""
    base = decoder(model)
    ids = torch.zeros(1, 1, dtype=torch.int64, device=base.get_input_embeddings().weight.device)
    with torch.no_grad():
        return int(base(input_ids=ids, use_cache=False).last_hidden_state.shape[-1])
