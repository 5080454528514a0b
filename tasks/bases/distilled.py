"""Tasks whose model is trained here on pairs of texts, by distillation. Methods can train a drafter on these pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common.cache import Cache
from harness.contracts import TrainingPairs
from harness.contracts.tasks import Context, DecodingSetting
from tasks.bases.seq2seq import Seq2SeqTask
from tasks.models.seq2seq.sizes import SIZES, Size
from tasks.models.trained import size_to_train

if TYPE_CHECKING:
    from tasks.data.parallel import ParallelSource
    from tasks.models.seq2seq.distillation import Distillation


@dataclass(kw_only=True, eq=False)
class DistilledTask(Seq2SeqTask):
    """Parameters: those of `Seq2SeqTask`, and distilled: whether a model trained here learns from the outputs of a
    teacher of its own size, which is first trained on the original pairs (Ge et al., 2022, section 3.2.2).

    Methods train on the model's training pairs. For a model that was not trained here, these are the sources with its
    own outputs.
    """

    distilled: bool = True

    @abstractmethod
    def texts(self, context: Context) -> ParallelSource:
        """The pairs. Raises `RequestError` when they are not found."""

    @property
    @abstractmethod
    def learned_from(self) -> str:
        """The name of the pairs, for rows."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of source texts for the model. A task may cut its sources here."""
        return self.generator.encode([self.prompt.replace("{source}", text) for text in texts])

    def trained(self, size: Size, context: Context, cache: Cache, progress: Any) -> Path:
        distillation = self._distillation(size, context, cache, progress)
        return distillation.student() if self.distilled else distillation.teacher()

    def facts(self) -> dict[str, Any]:
        """The training data of a model that is trained here."""
        if size_to_train(self.model, SIZES) is None:
            return {}
        taught = "what a teacher of the same size writes" if self.distilled else "the pairs as they are"
        return {"trained_on": f"{self.learned_from}: {taught}"}

    def prepare(self, context: Context, progress: Any) -> DecodingSetting:
        setting = super().prepare(context, progress)
        cache, size = Cache(context.cache), size_to_train(self.model, SIZES)

        def training() -> TrainingPairs:
            if size is None:
                from tasks.models.seq2seq.distillation import distilled_by_itself

                sources = self.ids([source for source, _ in self.texts(context).pairs("train")])
                return distilled_by_itself(self.generator, sources, self.limit, cache, progress)
            distillation = self._distillation(size, context, cache, progress)
            return distillation.distilled() if self.distilled else distillation.pairs("train")

        setting.training = training
        return setting

    def _distillation(self, size: Size, context: Context, cache: Cache, progress: Any) -> Distillation:
        from tasks.models.seq2seq.distillation import Distillation

        return Distillation(
            self.texts(context), size, self.limit, cache, device=context.device, seed=self.seed, progress=progress
        )
