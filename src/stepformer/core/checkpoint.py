"""Checkpoints: safetensors with the model's config, its encoder, how it was trained, and a hash of its weights.

Nothing is ever unpickled, except through the restricted reader when the released code's checkpoint is converted.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepformer.base.files import no_such, replacing
from stepformer.base.guard import plain_file, reader
from stepformer.core.devices import torch_device
from stepformer.core.model import ModelConfig, StepDecoder, build_decoder, released_codes
from stepformer.core.options import PAPER_INFERENCE, InferenceConfig
from stepformer.errors import InputError, UsageError

FORMAT = "stepformer-1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A decoder and what is known about it.

    encoder: name of the encoder whose features it was trained on; provenance: command, data, steps, scores;
    inference: the options that were chosen for it on the dev split, the paper's unless given; hash: SHA-256 over the
    weights.
    """

    model: StepDecoder
    encoder: str
    provenance: dict[str, Any] = field(default_factory=dict)
    inference: InferenceConfig = PAPER_INFERENCE
    hash: str = ""


def weights_hash(state: dict[str, Tensor]) -> str:
    """SHA-256 over names, shapes and bytes of the tensors, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def save_checkpoint(
    path: str | Path,
    model: StepDecoder,
    encoder: str,
    provenance: dict[str, Any] | None = None,
    inference: InferenceConfig = PAPER_INFERENCE,
    dtype: torch.dtype = torch.float32,
) -> str:
    """Writes one file, atomically, and returns the hash of its weights. float16 halves it for shipping."""
    state = {name: value.detach().cpu().to(dtype).contiguous() for name, value in model.state_dict().items()}
    digest = weights_hash(state)
    info = {
        "config": asdict(model.config),
        "encoder": encoder,
        "provenance": provenance or {},
        "inference": asdict(inference),
        "hash": digest,
    }
    with replacing(path) as temporary:
        save_file(state, temporary, {"format": FORMAT, "stepformer": json.dumps(info)})
    return digest


def _is_torch_file(path: str | Path) -> bool:
    """Whether a file begins as torch's zip archives or pickles do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4).startswith((b"PK\x03\x04", b"\x80"))
    except OSError:
        return False


def read_tensors(path: str | Path, form: str, what: str, advice: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of one of our safetensors files, whose metadata say that it is of ``form``.

    Raises:
        InputError: no such file, or not one of these; ``what`` it should be, and ``advice`` for one that is something
            else.
    """
    try:
        with safe_open(plain_file(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            if (found := metadata.get("format")) != form:
                raise InputError(f"{path} is not a {what} of this version (format {found!r}); {advice}")
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise no_such(path, what, advice) from None
    except (OSError, SafetensorError) as error:
        how = "; it is a torch file, which is converted with: stepformer models convert" if _is_torch_file(path) else ""
        raise InputError(f"cannot read the {what} {path}: {error}{how}") from None


@reader("checkpoint")
def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Reads a checkpoint and checks its hash; weights come back as float32, the model in eval mode."""
    advice = "one of the released code is converted with: stepformer models convert"
    metadata, state = read_tensors(path, FORMAT, "checkpoint", advice)
    try:
        info = json.loads(metadata["stepformer"])
        config = ModelConfig(**info["config"])
        inference = InferenceConfig.from_dict(info["inference"])
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise InputError(f"the checkpoint {path} has no valid config: {error}") from None
    digest = weights_hash(state)
    if digest != info["hash"]:
        raise InputError(f"the weights of {path} do not match their hash: the file is damaged; get it again")
    # a config must agree with its tensors: two billion layers would never be built
    largest = max((value.numel() for value in state.values()), default=1)
    grid = max(config.dim * config.dim, config.dim * config.feedforward, config.dim * config.slots)
    if config.decoder == "step" and (config.layers > len(state) or grid > 4 * largest):
        raise InputError(f"the weights of {path} do not fit its config: it is far larger than they are")
    try:
        model = build_decoder(config)
    except UsageError as error:
        raise InputError(f"{path}: {error} (is its plugin given with --plugin?)") from None
    try:
        model.load_state_dict({name: value.float() for name, value in state.items()})
    except RuntimeError as error:
        raise InputError(f"the weights of {path} do not fit its config: {error}") from None
    model.to(torch_device(device)).eval()
    return Checkpoint(model, info["encoder"], info["provenance"], inference, digest)


# -- the released code's layout ---------------------------------------------------------------------------------

_RELEASED_LAYER = {
    "norm1": "norm1", "norm2": "norm2", "norm3": "norm3",
    "linear1": "feedforward.0", "linear2": "feedforward.3",
}  # fmt: skip
_RELEASED_ATTENTION = {"self_attn": "self_attention", "multihead_attn": "cross_attention"}


def from_released(state: dict[str, Tensor]) -> StepDecoder:
    """A decoder with the weights of the released code's ``state_dict``.

    Its layout: ``query_embed.weight`` (K, d); ``decoder.layers.<i>.`` with ``self_attn`` and ``multihead_attn`` as
    packed attention (``in_proj_weight`` (3d, d), ``out_proj``), ``linear1``, ``linear2``, ``norm1..3``;
    ``decoder.norm``; ``output_projection`` where there is one; ``pos_enc_like.pe``, position codes (..., P, d), where
    it was trained with them; all behind the training wrapper's ``model.``. Position codes that are not those of the
    released formula are kept as a table.
    """
    plain = {name.removeprefix("model."): value.float() for name, value in state.items()}
    try:
        slots, dim = plain["query_embed.weight"].shape
        layers = 1 + max(int(name.split(".")[2]) for name in plain if name.startswith("decoder.layers."))
        feedforward = plain["decoder.layers.0.linear1.weight"].shape[0]
    except (KeyError, ValueError):
        raise InputError(
            "this is not the released StepFormer layout: it lacks query_embed.weight or decoder.layers.<i>."
        ) from None
    output = plain.get("output_projection.weight")
    table = _position_table(plain.pop("pos_enc_like.pe", None), dim)
    config = ModelConfig(
        feature_dim=dim if output is None else output.shape[0], dim=dim, layers=layers, heads=8,
        feedforward=feedforward, slots=slots, queries="position", positions_on="keys", output_layer=output is not None,
        positions="none" if table is None else "absolute", position_code="released",
        position_rows=len(table) if isinstance(table, Tensor) else 0, level=False,
    )  # fmt: skip
    ours: dict[str, Tensor] = {"queries": plain.pop("query_embed.weight")}
    if isinstance(table, Tensor):
        ours["position_table"] = table
    for i in range(layers):
        theirs, mine = f"decoder.layers.{i}", f"decoder.{i}"
        for kind in ("weight", "bias"):
            for a, b in _RELEASED_LAYER.items():
                ours[f"{mine}.{b}.{kind}"] = _take(plain, f"{theirs}.{a}.{kind}")
            for a, b in _RELEASED_ATTENTION.items():
                packed = _take(plain, f"{theirs}.{a}.in_proj_{kind}")
                for name, part in zip("qkv", torch.chunk(packed, 3), strict=True):
                    ours[f"{mine}.{b}.{name}.{kind}"] = part
                ours[f"{mine}.{b}.out.{kind}"] = _take(plain, f"{theirs}.{a}.out_proj.{kind}")
    for kind in ("weight", "bias"):
        ours[f"norm.{kind}"] = _take(plain, f"decoder.norm.{kind}")
        if output is not None:
            ours[f"project_out.{kind}"] = _take(plain, f"output_projection.{kind}")
    if plain:
        raise InputError(f"the released checkpoint has weights unknown here: {', '.join(sorted(plain)[:5])}")
    model = StepDecoder(config)
    try:
        model.load_state_dict(ours)
    except RuntimeError as error:
        raise InputError(f"the released checkpoint's weights do not fit each other: {error}") from None
    return model.eval()


def _position_table(stored: Tensor | None, dim: int) -> Tensor | Literal["formula"] | None:
    """A checkpoint's own position codes (P, dim); "formula" where they are the released formula's; None without any."""
    if stored is None:
        return None
    if stored.shape[-1] != dim or stored.numel() != max(stored.shape[:-1]) * dim:
        raise InputError(f"pos_enc_like.pe has the shape {tuple(stored.shape)}; expected one row of {dim} per frame")
    table = stored.reshape(-1, dim)
    expected = released_codes(torch.arange(len(table)), dim)
    return "formula" if torch.allclose(table, expected, rtol=0, atol=1e-6) else table


def _take(state: dict[str, Tensor], name: str) -> Tensor:
    if name not in state:
        raise InputError(f"the released checkpoint lacks {name}")
    return state.pop(name)
