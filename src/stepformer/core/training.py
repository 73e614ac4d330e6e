"""The training loop, whole and visible.

    stepformer simulate --out world.safetensors                 # once: the simulated corpus
    stepformer train --set data.world=world.safetensors --out runs/default
    stepformer train --config run.toml --out runs/mine          # a feature store of real videos: [data] store = "..."
    stepformer train --out runs/mine --resume                   # goes on exactly where it stopped
    torchrun --nproc-per-node 8 -m stepformer train --config run.toml --out runs/mine      # eight processes

A run folder holds ``config.json``, ``metrics.jsonl``, ``last.safetensors``, ``best.safetensors``, ``state.safetensors``
(optimiser moments; with it a resumed run gives the same numbers as one that never stopped) and ``alignment/*.png``.
Every source of chance is a function of (seed, step): batches, dropout, the frames drawn for smoothness.

Needs torch and NumPy alone.
"""

from __future__ import annotations

import copy
import json
import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from stepformer.base.files import lock_folder, make_folder, replacing, write_json, write_text
from stepformer.base.guard import plain_file, reading
from stepformer.base.loggers import open_loggers
from stepformer.base.plugins import Registry
from stepformer.base.progress import Progress
from stepformer.core.checkpoint import save_checkpoint
from stepformer.core.config import OptimConfig, TrainConfig
from stepformer.core.devices import seed_device, torch_device
from stepformer.core.distributed import Batch, Ranks, SharedCriterion, added, own_rows
from stepformer.core.graph import LATE, Flags, GraphStep, NotFinite, why_not
from stepformer.core.losses import Criterion
from stepformer.core.model import StepDecoder, build_decoder
from stepformer.errors import InputError, StepFormerError, UsageError
from stepformer.version import __version__

Log = Callable[[str], None]
Validator = Callable[[StepDecoder], Mapping[str, float]]
"""Scores of the weights as they stand, by name; ``un_f1``, plus ``zs_iou`` where there are texts, finds the best."""
Painter = Callable[[StepDecoder, int], None]
"""Draws what the weights do with one fixed video at a step, so that one can watch the alignment form."""


class BatchSource(Protocol):
    """Where batches come from. The same number gives the same batch, which has the fields of :class:`Batch`."""

    dim: int  # D, the width of frames and phrases
    encoder: str  # whose vectors they are
    origin: Any  # what the checkpoint says of the data: plain values

    def batch(self, step: int, size: int) -> Any:
        """Batch number ``step``, of ``size`` videos."""

    def held_out_batches(self, size: int) -> Iterable[Any]:
        """Batches that are never trained on, for the validation loss; there may be none."""

    def describe(self) -> str:
        """A sentence on the data for the log; empty where there is nothing to say."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up from 0, then cosine to the final rate; ``step`` counts from 0."""
    o = config.optim
    warm = max(1, round(o.warmup * config.steps))
    if step < warm:
        return o.lr * (step + 1) / warm
    share = (step - warm) / max(1, config.steps - warm)
    return o.final_lr + 0.5 * (o.lr - o.final_lr) * (1 + math.cos(math.pi * min(1.0, share)))


MakeOptimizer = Callable[[StepDecoder, OptimConfig], torch.optim.Optimizer]


def _adam(kind: type[torch.optim.AdamW | torch.optim.Adam]) -> MakeOptimizer:
    def make(model: StepDecoder, config: OptimConfig) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        settings: dict[str, Any] = {"lr": config.lr, "betas": config.betas, "weight_decay": config.weight_decay}
        return kind(parameters, fused=parameters[0].is_cuda, **settings, **config.options)

    return make


OPTIMIZERS: Registry[MakeOptimizer] = Registry(
    "optimizer", "optimizers", {"adamw": _adam(torch.optim.AdamW), "adam": _adam(torch.optim.Adam)}
)
"""Optimisers by name: functions of the decoder and the config. A resume keeps the tensors of an optimiser's state."""


ALONE = Ranks()


class NonFiniteLossError(StepFormerError):
    """A loss or gradient became NaN or infinite; what is needed to look into it was saved."""


class Trainer:
    """One run in one folder. ``run()`` trains to the end; Ctrl-C ends the step, saves and raises.

    The data, the validation and the pictures are given (:func:`stepformer.app.training.make_trainer` builds them from
    a config), so that this file needs torch and NumPy alone.
    """

    def __init__(
        self,
        config: TrainConfig,
        out: str | Path,
        source: BatchSource,
        device: str | torch.device | None = None,
        validator: Validator | None = None,
        painter: Painter | None = None,
        quiet: bool = False,
        ranks: Ranks = ALONE,
    ) -> None:
        if not config.model.feature_dim:  # the data knows it
            config = replace(config, model=replace(config.model, feature_dim=source.dim))
        self.config, self.out, self.source, self.quiet = config, Path(out), source, quiet or not ranks.first
        self.ranks = ranks
        self.validator, self.painter = validator, painter
        self.device = torch_device(device)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # similarities in TF32: far finer than the noise in them
            # with a workspace cuBLAS clears counters before most products, and the GPU waits for that in between
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":0:0")  # both are read at the first product
            os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "0")
        self.criterion = self.shared = Criterion(config.loss)
        if ranks.size > 1:
            self.shared = SharedCriterion(config.loss, ranks, config.batch)
        if source.dim != config.model.feature_dim:
            raise UsageError(
                f"the data has vectors of width {source.dim}, the config says {config.model.feature_dim}; omit "
                "model.feature_dim; it is taken from the data"
            )
        torch.manual_seed(config.seed)
        self.model = build_decoder(config.model).to(self.device)
        # what is validated and saved: the running mean of the weights, or the weights themselves
        self.mean = copy.deepcopy(self.model).requires_grad_(False) if config.optim.ema else self.model
        self.optimizer = OPTIMIZERS[config.optim.optimizer](self.model, config.optim)
        self.precision = config.optim.precision
        if self.precision == "auto":
            self.precision = "bf16" if self.device.type == "cuda" else "fp32"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.eager_because = why_not(config, self.model, self.device, self.precision, ranks.size)
        """Why steps are not recorded as CUDA graphs; None where they are."""
        self._graph: GraphStep | None = None
        # of steps that are not recorded: an update that can be called off on the device need not be waited for. Several
        # processes would have to raise together, and fp16 has its own way to call one off
        fused = all(group.get("fused") for group in self.optimizer.param_groups)
        late = fused and ranks.size == 1 and not self.scaler.is_enabled()
        self._flags = Flags(self.device, torch.float32) if late else None
        self.step = 0
        self.best = -math.inf

    # -- one step -------------------------------------------------------------------------------------------------

    def start_from(self, model: StepDecoder) -> None:
        """Begins with the weights of a trained model of the same shape instead of random ones."""
        for mine in (self.model, self.mean):
            mine.load_state_dict(model.state_dict())
        self._graph = None

    def _losses(self, model: StepDecoder, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        video, video_mask, phrases, phrase_mask, times = self._on_device(batch)
        kind = torch.float16 if self.precision == "fp16" else torch.bfloat16
        with torch.autocast(self.device.type, dtype=kind, enabled=self.precision != "fp32"):
            output = model(video, video_mask, attention=self.criterion.needs_attention)
        criterion = self.shared if model.training else self.criterion  # only the first process validates
        return criterion(output, phrases, phrase_mask, video_mask, phrase_times=times)

    def _on_device(self, batch: Any) -> list[Tensor]:
        """What is read of a batch; vectors may come as float16 and are made float32 here, behind the bus."""
        values = [getattr(batch, name).to(self.device, non_blocking=True) for name in Batch._fields]
        return [value.float() if value.dtype == torch.float16 else value for value in values]

    def train_step(self, step: int) -> dict[str, Tensor | float]:
        """One optimiser step: forward, losses, backward, clip, update."""
        if self.eager_because is None:
            return self._recorded_step(step)
        self.settle(LATE)
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        logged: dict[str, Tensor | float] = {}
        for part in range(config.optim.accumulate):
            number = step * config.optim.accumulate + part
            # dropout and frame draws
            seed_device(self.device, config.seed * 1_000_003 + number + (self.ranks.rank << 32))
            batch = own_rows(self.source, self.ranks, number, config.batch)
            loss, parts = self._losses(self.model, batch)
            self.scaler.scale(loss / config.optim.accumulate).backward()  # type: ignore[no-untyped-call]
            for name, value in {"loss": loss, **parts}.items():
                logged[name] = logged.get(name, 0.0) + value.detach() / config.optim.accumulate
        self.ranks.add_(p.grad for p in self.model.parameters() if p.grad is not None)
        self.scaler.unscale_(self.optimizer)
        limit = config.optim.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        logged["grad_norm"] = norm
        if self._flags is not None:
            self._flags.bad.add_(torch.isfinite(norm).logical_not_()).clamp_(max=1)
            self._flags.send(step)
            self.optimizer.found_inf = self._flags.bad  # type: ignore[attr-defined]  # what a fused update looks at
        else:
            overflow = self.scaler.is_enabled() and bool(torch.isfinite(torch.as_tensor(logged["loss"])))
            if not bool(torch.isfinite(norm)) and not overflow:  # fp16 overflow of gradients is the scaler's business
                self._save_evidence(step, logged, batch)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.mean is not self.model:
            with torch.no_grad():
                torch._foreach_lerp_(list(self.mean.parameters()), list(self.model.parameters()), self._follow(step))
        return logged

    def _follow(self, step: int) -> float:
        """How far the mean of the weights moves: far at first, so that it does not remember the untrained weights."""
        return 1 - min(self.config.optim.ema, (1 + step) / (10 + step))

    def _recorded_step(self, step: int) -> dict[str, Tensor | float]:
        """The same as a CUDA graph (`core.graph`): started and not waited for."""
        config = self.config
        if self._graph is None:
            self._graph = GraphStep(config, self.model, self.mean, self.optimizer, self.criterion, self.precision)
        if not self.model.training:  # which asks every module: a millisecond
            self.model.train()
        batch = self.source.batch(step, config.batch)
        try:
            seed = config.seed * 1_000_003 + step
            return {**self._graph(batch, step, seed, learning_rate(config, step), self._follow(step))}
        except NotFinite as error:
            self._explain(error)

    def settle(self, running: int = 0) -> None:
        """Waits until at most so many steps are under way, and raises where one was not finite."""
        steps = self._graph or self._flags
        if steps is not None:
            try:
                steps.finish(running)
            except NotFinite as error:
                self._explain(error)

    def _explain(self, error: NotFinite) -> NoReturn:
        """Saves what a step that failed on the device saw: its batch is read again, the weights have not changed."""
        number = (error.step + 1) * self.config.optim.accumulate - 1  # the last of its batches
        batch = self.source.batch(number, self.config.batch)
        seed_device(self.device, self.config.seed * 1_000_003 + number)
        with torch.no_grad():
            loss, parts = self._losses(self.model, batch)
        self._save_evidence(error.step, {"loss": loss, **parts}, batch)

    def _save_evidence(self, step: int, logged: Mapping[str, Tensor | float], batch: Any) -> NoReturn:
        of = "" if self.ranks.first else f"-rank{self.ranks.rank}"
        path = self.out / f"nonfinite-{step}{of}.safetensors"
        tensors = {f"batch.{name}": getattr(batch, name) for name in Batch._fields}
        tensors |= {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"loss.{name}": torch.as_tensor(value) for name, value in logged.items()}
        _write(path, tensors)
        values = ", ".join(f"{k} {float(v):.4g}" for k, v in logged.items())
        raise NonFiniteLossError(
            f"step {step}: not finite ({values}); the batch, the weights and the losses are in {path}. "
            "A lower learning rate, fp32 (--set optim.precision=fp32) or clipping usually helps"
        )

    @torch.no_grad()
    def rehearse(self) -> str:
        """One small batch through model and losses, nothing changed or written; a sentence on what was seen.

        Raises what the run itself would: data that cannot be read, widths or options that do not fit.
        """
        batch = self.source.batch(0, min(self.config.batch, 2))
        loss, _ = self._losses(self.model.eval(), batch)
        size = sum(p.numel() for p in self.model.parameters())
        return (
            f"one batch fits: {len(batch.video)} videos of up to {batch.video.shape[1]} frames and "
            f"{batch.phrases.shape[1]} phrases, {self.source.dim} wide; loss {float(loss):.3f}; "
            f"{size:,} parameters on {self.device}"
        )

    # -- the loop -------------------------------------------------------------------------------------------------

    def run(self, resume: bool = False, log: Log = lambda text: None) -> dict[str, float]:
        """Trains from the start, or from the last saved step; returns the last validation scores."""
        make_folder(self.out)
        with lock_folder(self.out) if self.ranks.first else nullcontext():
            return self._run(resume, log)

    def _run(self, resume: bool, log: Log) -> dict[str, float]:
        config, first = self.config, self.ranks.first
        if resume:
            self._load_state()
            log(f"resumed at step {self.step}")
        elif (self.out / "state.safetensors").exists():
            raise UsageError(f"{self.out} already holds a run; give --resume to continue it, or another --out")
        elif first:
            (self.out / "metrics.jsonl").unlink(missing_ok=True)  # of a run that was killed before it saved anything
        if said := self.source.describe():
            log(said)
        if self.eager_because is not None and self.device.type == "cuda":
            log(f"kernels are launched one by one, which takes several times as long: {self.eager_because}")
        self.ranks.copy_first_(self.model.state_dict().values())
        if first:
            write_json(self.out / "config.json", asdict(config))
        scores: dict[str, float] = {}
        loggers = open_loggers(config.loggers, self.out, asdict(config), log) if first else []
        with (
            ExitStack() as behind,  # loggers are closed behind metrics.jsonl, which one of them reads
            Progress("train", config.steps, "steps", quiet=self.quiet) as progress,
            (self.out / "metrics.jsonl" if first else Path(os.devnull)).open("a", encoding="utf-8") as metrics,
            _asked_to_stop() as asked,
        ):
            progress.restart(self.step)
            for logger in loggers:
                behind.callback(logger.close)

            def write(row: dict[str, Any]) -> None:
                metrics.write(json.dumps(row) + "\n")
                metrics.flush()
                for logger in loggers:
                    logger.write(row["step"], {k: v for k, v in row.items() if isinstance(v, float)})

            while self.step < config.steps:
                # several processes agree on it now and then: who stopped alone would leave the others waiting
                agreeing = self.ranks.size == 1 or self.step % config.log_every == 0
                if agreeing and self.ranks.any(bool(asked)):
                    self.save()
                    raise KeyboardInterrupt
                logged = self.train_step(self.step)
                self.step += 1
                last = self.step == config.steps
                if self.step % config.log_every == 0 or last:
                    summed = added(self.ranks, logged)
                    row = {k: round(v, 6) for k, v in summed.items()}
                    write({"step": self.step, "lr": learning_rate(config, self.step - 1), **row})
                    progress.advance(0, note=f"loss {row['loss']:.3f}")
                progress.advance()
                if first and config.validation.every and (self.step % config.validation.every == 0 or last):
                    scores = self.validate()
                    write({"step": self.step, **{f"val_{k}": v for k, v in scores.items()}})
                    shown = ("zs_iou", "un_f1", "loss")
                    log(f"step {self.step}: " + ", ".join(f"{k} {scores[k]:.3f}" for k in shown if k in scores))
                    self._keep_best(scores)
                    if self.painter is not None:
                        self.painter(self.mean, self.step)
                if self.step % config.save_every == 0 or last:
                    self.save()
        return scores

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """What the validator says of the weights, and the loss on held-out videos."""
        self.settle()
        scores = dict(self.validator(self.mean)) if self.validator is not None else {}
        self.mean.eval()
        losses = []
        for number, batch in enumerate(self.source.held_out_batches(self.config.batch)):
            torch.manual_seed(number)
            losses.append(float(self._losses(self.mean, batch)[0]))
        if losses:
            scores["loss"] = sum(losses) / len(losses)
        return {k: round(v, 6) for k, v in scores.items()}

    def _keep_best(self, scores: Mapping[str, float]) -> None:
        value = scores.get("zs_iou", 0.0) + scores["un_f1"] if "un_f1" in scores else -scores.get("loss", math.inf)
        if value > self.best:
            self.best = value
            self._save_model("best.safetensors", scores)

    # -- saving ---------------------------------------------------------------------------------------------------

    def provenance(self, scores: Mapping[str, float] | None = None) -> dict[str, Any]:
        """How these weights came to be."""
        c = self.config
        return {
            "version": __version__,
            "preset": c.preset,
            "seed": c.seed,
            "step": self.step,
            "steps": c.steps,
            "batch": c.batch,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "config": asdict(c),
            "data": self.source.origin,
            "scores": dict(scores or {}),
        }

    def _save_model(self, name: str, scores: Mapping[str, float] | None = None) -> None:
        encoder = self.config.encoder or self.source.encoder
        save_checkpoint(self.out / name, self.mean, encoder, self.provenance(scores), self.config.inference)

    def _optimized(self) -> list[str]:
        """Names of the parameters in the optimiser's own order, by which its state counts them."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [names[id(p)] for group in self.optimizer.param_groups for p in group["params"]]

    def save(self) -> None:
        """Last weights, and what an exact resume needs; the first process does it."""
        if not self.ranks.first:
            return
        self.settle()
        self._save_model("last.safetensors")
        tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.mean is not self.model:
            tensors |= {f"mean.{k}": v for k, v in self.mean.state_dict().items()}
        names = self._optimized()
        for index, state in self.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if value is not None:
                    tensors[f"optimizer.{key}.{names[index]}"] = torch.as_tensor(value)
        scaler = self.scaler.state_dict() if self.scaler.is_enabled() else {}
        info = {"step": self.step, "best": self.best, "scaler": scaler, "config": asdict(self.config)}
        _write(self.out / "state.safetensors", tensors, {"state": json.dumps(info, default=str)})

    def _load_state(self) -> None:
        path = self.out / "state.safetensors"
        if not path.exists():
            raise InputError(f"{self.out} has no state.safetensors to resume from; start without --resume")
        with reading(path, "training state"), safe_open(plain_file(path), framework="pt") as file:
            self._restore(load_file(path, device=str(self.device)), json.loads((file.metadata() or {})["state"]))

    def _restore(self, tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
        saved, now = (json.loads(json.dumps(c, default=str)) for c in (info["config"], asdict(self.config)))
        if saved["model"] != now["model"] or saved["seed"] != now["seed"] or saved["batch"] != now["batch"]:
            raise UsageError(f"{self.out} was started with another model, seed or batch size; resume needs the same")
        self.model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
        if self.mean is not self.model:
            self.mean.load_state_dict({k[5:]: v for k, v in tensors.items() if k.startswith("mean.")})
        index = {name: number for number, name in enumerate(self._optimized())}
        moments: dict[int, dict[str, Tensor]] = {}
        for saved_as, value in tensors.items():
            if saved_as.startswith("optimizer."):
                _, key, name = saved_as.split(".", 2)
                moments.setdefault(index[name], {})[key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self._graph = None
        if info["scaler"]:
            self.scaler.load_state_dict(info["scaler"])
        self.step, self.best = int(info["step"]), float(info["best"])
        if self.ranks.first:
            _cut_metrics(self.out / "metrics.jsonl", self.step)


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    with replacing(path) as temporary:
        save_file({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, temporary, metadata)


def _cut_metrics(path: Path, step: int) -> None:
    """Drops rows after the step that is resumed, which will be written again, and lines that are cut short or
    damaged."""
    kept = []
    for row in path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            if json.loads(row)["step"] <= step:
                kept.append(row + "\n")
    write_text(path, "".join(kept))


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that fills when Ctrl-C or a polite kill asks the run to stop.

    The step under way is finished first: a state saved in the middle of an update could not be resumed exactly. Who
    asks twice is not made to wait; the last saved state stays.
    """
    asked: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    previous: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread: the caller's handlers stay
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, stop)
    try:
        yield asked
    finally:
        for which, handler in previous.items():
            signal.signal(which, handler)


def with_loss_off(config: TrainConfig, *names: str) -> TrainConfig:
    """The same run without some losses: the ablations of the paper's Table 3."""
    return replace(config, loss=config.loss.without(*names))
