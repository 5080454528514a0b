"""Options of tasks over a causal language model: the model, its training text, and its windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts.tasks import Context
from tasks.bases.parameters import Positive, Precision
from tasks.data.decontamination import Decontaminated, Joined
from tasks.data.text import Source
from tasks.data.text.kinds import Kind, open_source
from tasks.data.wikitext_style import AsWikitext
from tasks.models.lm.sizes import SIZES
from tasks.models.trained import TRAIN, size_to_train

if TYPE_CHECKING:
    from tasks.models.pretrained.generation import TextGenerator
    from tasks.models.pretrained.language import CausalLM

_SHARED = 0.1  # a document with this share of its 13-grams in the held-out text, or more, is not trained on


@dataclass(kw_only=True, eq=False)
class LanguageModelOptions:
    """source: of text, `embedded`, `folder` (under HARNESS_DATA) or `hub`. model: `train:SIZE`
    (`tasks.models.lm.sizes`), a hub id, a folder, a GGUF file, `package:NAME` or a name of
    `harness.common.checkpoints`. window: in tokens, null for the model's own. dtype: of its weights. training_text:
    further data sets under HARNESS_DATA that a size is trained on, without documents that share a tenth or more with
    the held-out text; so is the task's own text, if another text is held out. as_wikitext: convert further text to
    WikiText's format and to the words of the task's own text.
    """

    source: Kind = "embedded"
    model: str = "train:mini"
    window: Positive | None = None
    dtype: Precision = "float32"
    training_text: list[str] = field(default_factory=list)
    as_wikitext: bool = False

    def place(
        self, training: Source, context: Context, cache: Cache, progress: Progress, held_out: Source | None = None,
        parameter: str = "model",
    ) -> tuple[str, str]:  # fmt: skip
        """The model, as `TextGenerator.load` takes it, and its name in rows. A size is trained on the train split of
        `training`, unless the cache has it. held_out: the text whose validation and test splits are held out, if it is
        another. parameter: the one that names the model. Raises `RequestError` for an unknown size, and for missing or
        too little text."""
        model: str = getattr(self, parameter)
        size = size_to_train(model, SIZES, f"task.{parameter}")
        if size is None:
            return model, model
        from tasks.models.lm.training import trained_model

        training = self._joined(training, held_out or training, context, cache)
        name = model.removeprefix(TRAIN)
        folder = trained_model(name, size, training, cache, device=context.device, progress=progress)
        return str(folder), f"{model} on {training.name}"

    def text_generator(
        self, training: Source, context: Context, cache: Cache, progress: Progress, parameter: str = "model"
    ) -> TextGenerator:
        """The model as one that generates. training: the text that a size is trained on. parameter: as for `place`.
        Raises `RequestError` as `TextGenerator.load` does, and for an encoder-decoder."""
        from tasks.models.pretrained.generation import TextGenerator

        place, name = self.place(training, context, cache, progress, parameter=parameter)
        window = self.window if parameter == "model" else None
        model = TextGenerator.load(
            place, device=context.device, dtype=self.dtype, window=window, cache=cache, name=name
        )
        if model.kind != "causal":
            raise RequestError(f"the model {name} is an encoder-decoder; give a causal language model, such as gpt2")
        return model

    def _joined(self, training: Source, held_out: Source, context: Context, cache: Cache) -> Source:
        """The text that a size is trained on."""
        other = held_out is not training
        texts = [Decontaminated(training, [held_out], share=_SHARED) if other else training]
        for name in self.training_text:
            further = self.further_text(name, training, context, cache)
            texts.append(Decontaminated(further, [training, held_out] if other else [training], share=_SHARED))
        return Joined(texts) if len(texts) > 1 else texts[0]

    def further_text(self, name: str, own: Source, context: Context, cache: Cache) -> Source:
        """The data set of this name under HARNESS_DATA. own: the task's own text."""
        found = open_source("folder", name, context.data, cache)
        return AsWikitext(found, own) if self.as_wikitext else found  # then both have the same unknown words


@dataclass(kw_only=True, eq=False)
class SlidingWindowOptions(LanguageModelOptions):
    """Options of `LanguageModelOptions`, and dataset: a folder's name, or a hub id with an optional config after a
    colon. stride: tokens between the beginnings of two windows; null: half of the window. The model's own window counts
    as at most 1024 tokens."""

    dataset: str = ""
    stride: Positive | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.stride is not None and self.stride > self.window:
            raise RequestError(f"stride={self.stride} exceeds window={self.window}; tokens would be left out")

    def load(self, place: str, name: str, context: Context, cache: Cache) -> CausalLM:
        """The model, by folder or hub id. Raises `RequestError` and `MachineError` as `CausalLM.load` does."""
        from tasks.models.pretrained.language import CausalLM

        return CausalLM.load(
            place, device=context.device, window=self.window, stride=self.stride, dtype=self.dtype, cache=cache,
            name=name,
        )  # fmt: skip
