"""The non-autoregressive drafter (Ge et al., 2022, section 3.2.1) and its training.

The drafter has the verifier's architecture and vocabulary, and one more token, MASK. Its decoder attends in both
directions over the output so far and k masks, and predicts the token of each mask. It is trained on prefixes of random
length of the verifier's training pairs, with the glancing strategy (Qian et al., 2021): some masked targets are shown,
the more of them the more it gets wrong, and the loss is over the others.

Prefixes are distributed roughly as in drafting. The empty prefix is drawn more often than others, because every output
begins with it and short outputs have few other drafts. The number of masks varies: masks attend to each other, so a
block of an unseen length would be a new task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.files import digest
from harness.common.training.loop import Plan, record, train, warmup_cosine
from harness.common.training.optimizers import Name, optimizer
from harness.common.training.pairs import Pairs, length_batches
from harness.common.training.precision import fast_precision
from harness.contracts import Artifacts, GenerationModel, TrainingPairs
from methods.aggressive.glancing import Masked, glancing_loss, held_out_loss, masked
from methods.aggressive.markov import MarkovHead, detach_head

ARTIFACT = "nar-drafter"
_GLANCING = (0.5, 0.3)  # share of the wrong targets that are shown, at the first and at the last step
_HELD_OUT = 256  # pairs held out for evaluation, if there are at least ten times as many


@dataclass(kw_only=True)
class DrafterOptions:
    """Training of the drafter: linear warm-up over a tenth of `steps`, then half a cosine. It starts from the
    verifier's weights.

    batch_ids: padded ids of the longer side per step. optimizer: AdamW, or Muon for the matrices
    (`harness.common.training.optimizers`). seed: of dropout, prefixes and shown targets.
    layers: of the decoder, the verifier's lowest; None: all. own_encoder: whether the drafter has its own encoder, as
    in the paper; else it uses the verifier's. width: None: the verifier's; another width starts from random weights,
    and inner layers scale by the same factor.
    trained_block: longest block that the drafter learns to fill. markov_rank: of a head by which a token depends on the
    one before it (`methods.aggressive.markov`); None: no head. prefixes: number per target in a step; the source is
    encoded once for all of them.
    """

    steps: Annotated[int, Field(ge=1)] = 6000
    batch_ids: Annotated[int, Field(ge=16)] = 4096
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    optimizer: Name = "adamw"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    layers: Annotated[int, Field(ge=1)] | None = None
    own_encoder: bool = True
    width: Annotated[int, Field(ge=1)] | None = None
    trained_block: Annotated[int, Field(ge=1)] = 25
    markov_rank: Annotated[int, Field(ge=1)] | None = None
    prefixes: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> DrafterOptions:
        """These options without those of subclasses."""
        return DrafterOptions(**{name: getattr(self, name) for name in DrafterOptions.__dataclass_fields__})


def fit_drafter(
    model: GenerationModel, training: TrainingPairs, options: DrafterOptions, artifacts: Artifacts,
    trial: Callable[[GenerationModel, DrafterOptions], None],
) -> None:  # fmt: skip
    """Train the drafter of a verifier on pairs of ids, unless the cache has it. Interrupted training is resumed.

    Pairs with an empty target are left out. trial: refuses a model whose drafter does not run. Raises `RequestError`
    also if no pair is short enough.
    """
    key = {"model": model.hash, "pairs": _hash(training), **asdict(options)}

    def build(folder: Path) -> None:
        trial(model, options)
        _train(model, training, options, folder)

    artifacts.build(ARTIFACT, key, build)


def _hash(pairs: TrainingPairs) -> str:
    """Hash of the pairs' ids; of `Pairs` on disk from their arrays, without reading each pair."""
    return pairs.hash if isinstance(pairs, Pairs) else digest([list(map(list, pair)) for pair in pairs])


def opened_drafter(model: GenerationModel, artifacts: Artifacts) -> GenerationModel:
    """The drafter as a generation model. Its vocabulary is the verifier's, then MASK.

    Raises `RequestError` for a drafter with another vocabulary.
    """
    drafter = copy(model)
    drafter.name, drafter.vocabulary_size = f"the drafter of {model.name}", model.vocabulary_size + 1
    folder = artifacts.path(ARTIFACT)
    drafter.module = type(model.module).from_pretrained(folder, dtype=model.module.dtype).to(model.device).eval()
    found = drafter.module.get_input_embeddings().num_embeddings
    if found != drafter.vocabulary_size:
        raise RequestError(
            f"the drafter in {folder} has {found} tokens, and {model.name} with a MASK has {drafter.vocabulary_size}: "
            "train one for this model"
        )
    return drafter


def new_drafter(model: GenerationModel, options: DrafterOptions) -> Any:
    """The untrained drafter: the verifier's weights in float32, with the mean embedding for MASK. Random weights if
    `width` is given."""
    before = model.module.config
    config = deepcopy(before)
    config.dropout, config.attention_dropout, config.activation_dropout = options.dropout, 0.0, 0.0
    config.decoder_layers = min(options.layers or before.decoder_layers, before.decoder_layers)
    if options.width is not None:
        config.d_model = options.width
        for name in ("encoder_ffn_dim", "decoder_ffn_dim"):
            setattr(config, name, getattr(before, name) * options.width // before.d_model)
        config.vocab_size = model.vocabulary_size + 1
        if getattr(before, "decoder_vocab_size", None):  # Marian
            config.decoder_vocab_size = config.vocab_size
        return type(model.module)(config)
    left_out = tuple(f"model.decoder.layers.{n}." for n in range(config.decoder_layers, before.decoder_layers))
    weights = model.module.state_dict()
    module = type(model.module)(config)
    module.load_state_dict({name: weights[name].float() for name in weights if not name.startswith(left_out)})
    module.resize_token_embeddings(model.vocabulary_size + 1, mean_resizing=False)
    with torch.no_grad():
        for table in {part.weight for part in (module.get_input_embeddings(), module.get_output_embeddings())}:
            table[-1] = table[:-1].mean(0)
    return module


def _train(model: GenerationModel, pairs: TrainingPairs, options: DrafterOptions, folder: Path) -> None:
    device, mask = model.device, model.vocabulary_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        module = new_drafter(model, options)
        if options.markov_rank is not None:
            module.markov = MarkovHead(model.vocabulary_size + 1, options.markov_rank)
        module.to(device)
    if torch.device(device).type == "cpu":
        module.set_attn_implementation("eager")  # why: `tasks.models.seq2seq.training`
    held_out = range(0, len(pairs), len(pairs) // _HELD_OUT) if len(pairs) >= 10 * _HELD_OUT else range(0)
    masks = options.trained_block + 1  # after the start token and a prefix that may be as long as the target
    every = np.array([(len(source), len(target) + masks) for source, target in pairs], np.int64).reshape(-1, 2)
    written = every[:, 1] > masks  # pairs whose target has a token to predict
    trained = np.setdiff1d(np.flatnonzero(written), np.asarray(held_out, np.int64))
    lengths = every[trained]
    try:
        numbers = length_batches(lengths, options.batch_ids, model.window, options.seed)
        numbers(0)
    except ValueError as error:
        raise RequestError(f"no training pair fits the drafter: {error}; give other text") from error
    precision = fast_precision(device)

    def batches(step: int) -> Masked:
        chosen = [pairs[int(trained[number])] for number in numbers(step)]
        rng = np.random.default_rng([options.seed, 1, step])
        batch = masked(chosen, rng, options.trained_block, mask, model.start_id, options.prefixes)
        batch.shown = _GLANCING[0] + (_GLANCING[1] - _GLANCING[0]) * step / options.steps
        return batch.to(device)

    checkpoint = folder / "training.pt"
    plan = Plan(
        steps=options.steps, schedule=warmup_cosine(options.steps, max(1, options.steps // 10), floor=0.05),
        autocast=precision, seed=options.seed, tokens_per_step=options.batch_ids, stage="training the drafter",
        evaluate_every=max(1, options.steps // 20),
    )  # fmt: skip
    encoder = None if options.own_encoder else model.module.get_encoder()
    unseen = [pairs[number] for number in held_out if written[number] and every[number].max() <= model.window]

    def judged(drafter: Any, empty: float) -> tuple[float, float]:
        """For the held-out pairs: mean cross-entropy (nats), and mean tokens of a block before the first wrong one."""
        rng, losses, agreed = np.random.default_rng([options.seed, 2]), [], []
        for start in range(0, len(unseen), 32):
            batch = masked(
                unseen[start : start + 32], rng, options.trained_block, mask, model.start_id, empty=empty, whole=1.0
            ).to(device)  # fmt: skip
            loss, right = held_out_loss(drafter, batch, mask, encoder)
            losses += loss
            agreed += right
        return float(np.mean(losses)), float(np.mean(agreed))

    history = train(
        module, lambda drafter, batch: glancing_loss(drafter, batch, mask, encoder), batches,
        optimizer(options.optimizer, module, options.learning_rate, 0.01, (0.9, 0.98)), plan,
        evaluate=(lambda drafter: judged(drafter, 0.0)[0]) if unseen else None,
        checkpoint=checkpoint,
    )  # fmt: skip
    agreed = {
        name: judged(module, empty)[1] for name, empty in (("tokens_agreed", 0.0), ("tokens_agreed_at_first", 1.0))
    } if unseen else {}  # fmt: skip
    detach_head(module, folder)
    module.save_pretrained(folder)
    made = {
        "pairs": len(pairs),
        "too_long": int((every.max(1) > model.window).sum()),
        "mask": mask,
        "held_out": len(unseen),
        "evaluations": history.evaluations,
        **agreed,
        **record(history, device, precision),
    }
    (folder / "training.json").write_text(json.dumps(made, indent=1))
    checkpoint.unlink(missing_ok=True)
