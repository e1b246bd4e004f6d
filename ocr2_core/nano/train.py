"""Train nano from nothing: `python -m ocr2_core.nano.train FOLDER`.

Five stages, each with losses of its own (`reading_loss`, `characters`): *seeing* trains the vision tower alone on
pages full of text; *reading* trains the whole model on pages of five lines and more, alone and in groups of up to
eight; *fluency* goes on with pages of any length, *groups* with groups alone, since the model slips from page to page
where it has seen too few of them, and *sizes* with groups of every size: those it has not seen it does not read. Then
the gates are trained on the finished weights
(`gate_training`). The run stops and resumes at any point: its state lies in FOLDER/state.pt, data follow from stage
and step alone. FOLDER/checkpoint is written at every save.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocr2_core.errors import EngineError
from ocr2_core.nano.architecture import new_model
from ocr2_core.nano.characters import CharacterHeads
from ocr2_core.nano.checkpoint import configuration, export
from ocr2_core.nano.gate_training import train_gates
from ocr2_core.nano.optimiser import Optimisers, learning_rate
from ocr2_core.nano.pages import NanoPage, PageStyle, draw_document
from ocr2_core.nano.reading_loss import Reader
from ocr2_core.nano.sequences import build_batch
from ocr2_core.nano.vocabulary import write_page
from ocr2_core.ocr2.gates import GATE_FILE
from ocr2_core.ocr2.model import load_model

SEED = 0
GATE_STEPS = 150
# documents of different stages are different
_SEEDS_A_STAGE = 10_000_000
_LOG_EVERY, _SAVE_EVERY = 25, 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """`steps` of `pages` each; the learning rate falls as if there were `schedule_steps`. `group_sizes`: pages of a
    document, one of them drawn for each step; `is_seeing` trains the vision tower alone; `looking_weight`: see
    `reading_loss`."""

    name: str
    steps: int
    schedule_steps: int
    peak_rate: float
    group_sizes: tuple[int, ...]
    pages: int = 32
    is_seeing: bool = False
    looking_weight: float = 0.3
    style: PageStyle = field(default_factory=PageStyle)


STAGES = (
    Stage("seeing", 400, 1200, 2e-3, (4,), is_seeing=True, style=PageStyle(least_lines=7)),
    Stage("reading", 1500, 1500, 8e-4, (1, 1, 2, 4, 8), pages=24, style=PageStyle(least_lines=5)),
    Stage("fluency", 1600, 1600, 8e-4, (1, 1, 2, 4, 8), pages=24),
    Stage("groups", 600, 600, 5e-4, (2, 4, 8), pages=24, looking_weight=1.0),
    Stage("sizes", 500, 500, 5e-4, tuple(range(1, 9)), pages=24, looking_weight=1.0),
)


class Training:
    """The run: where it stands, and its state on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = new_model(configuration(), SEED)
        vision: Any = self.model.config.vision_config
        self.heads = CharacterHeads(vision.sam_config.output_channels, self.model.text_config.hidden_size)
        self.reader = Reader(self.model, self.heads)
        self.stage_number = self.step = 0
        self._load()

    def run(self, deadline_s: float) -> bool:
        """Go on until the end (True) or `deadline_s` on the monotonic clock (False)."""
        while self.stage_number < len(STAGES):
            stage = STAGES[self.stage_number]
            while self.step < stage.steps:
                if time.monotonic() >= deadline_s:
                    self.save()
                    return False
                self._take_step(stage)
            self.stage_number, self.step = self.stage_number + 1, 0
            self.optimisers = self._new_optimisers()
            self.save()
        checkpoint = self.folder / "checkpoint"
        if not (checkpoint / GATE_FILE).is_file():
            train_gates(load_model(checkpoint, dtype=torch.float32), checkpoint, steps=GATE_STEPS)
        return True

    def save(self) -> None:
        """Write the state and the checkpoint, which has no gates until they are trained on these very weights."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "stage": self.stage_number,
            "step": self.step,
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "optimisers": self.optimisers.state_dict(),
        }
        torch.save(state, self.folder / "state.pt.new")
        (self.folder / "state.pt.new").replace(self.folder / "state.pt")
        export(self.model.state_dict(), self.folder / "checkpoint")
        (self.folder / "checkpoint" / GATE_FILE).unlink(missing_ok=True)

    def _take_step(self, stage: Stage) -> None:
        started = time.monotonic()
        rate = learning_rate(stage.peak_rate, self.step, stage.schedule_steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, figures = self._losses(stage)
        self.optimisers.step(loss, rate)
        self.step += 1
        self._log(stage, figures, time.monotonic() - started)
        if self.step % _SAVE_EVERY == 0:
            self.save()

    def _losses(self, stage: Stage) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"{SEED} {stage.name} {self.step}")
        size = rng.choice(stage.group_sizes)
        first = self.stage_number * _SEEDS_A_STAGE + self.step * (stage.pages // min(stage.group_sizes))
        documents = [
            list(draw_document(seed, size, split="train", style=stage.style))
            for seed in range(first, first + stage.pages // size)
        ]
        pages: Sequence[NanoPage] = list(itertools.chain.from_iterable(documents))
        if stage.is_seeing:
            loss, right = self.reader.seeing_loss(pages)
            return loss, {"loss": float(loss.detach()), "characters": right}
        batch = build_batch([[write_page(page) for page in document] for document in documents], rng)
        losses = self.reader.losses(pages, batch, stage.looking_weight)
        figures = {
            "writing": losses.writing,
            "characters": losses.characters_right,
            "tokens": losses.tokens_right,
            "places": losses.places_right,
            "turns": losses.turns_right,
        }
        return losses.total, figures

    def _log(self, stage: Stage, figures: dict[str, float], seconds: float) -> None:
        self._figures.append({**figures, "seconds": seconds})
        if self.step % _LOG_EVERY == 0:
            means = {name: np.mean([row[name] for row in self._figures]) for name in self._figures[-1]}
            told = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())
            logger.info("%s %d of %d: %s", stage.name, self.step, stage.steps, told)
            self._figures.clear()

    def _new_optimisers(self) -> Optimisers:
        stage = STAGES[min(self.stage_number, len(STAGES) - 1)]
        named: list[tuple[str, Any]] = list(self.model.named_parameters())
        if stage.is_seeing:
            named = [(name, value) for name, value in named if "vision_tower" in name or "projector" in name]
        return Optimisers([*named, *((f"heads.{name}", value) for name, value in self.heads.named_parameters())])

    def _load(self) -> None:
        self._figures: list[dict[str, float]] = []
        state = _read_state(self.folder / "state.pt")
        if state is not None:
            self.stage_number, self.step = state["stage"], state["step"]
            self.model.load_state_dict(state["model"])
            self.heads.load_state_dict(state["heads"])
        self.optimisers = self._new_optimisers()
        if state is not None:
            self.optimisers.load_state_dict(state["optimisers"])
            logger.info("resumed at stage %d, step %d", self.stage_number + 1, self.step)


def _read_state(path: Path) -> dict[str, Any] | None:
    """What `save` wrote, None where nothing was. Raises EngineError for a file that cannot be read."""
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:
        raise EngineError(f"{path} cannot be read: {error}. Remove it to train from the beginning.") from error
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes; go on later")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(arguments.threads)
    # its backward pass costs three times the plain one here, on short rows
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        training = Training(arguments.folder)
    except EngineError as error:
        parser.error(str(error))
    is_done = training.run(time.monotonic() + arguments.minutes * 60)
    logger.info("%s", "done" if is_done else "stopped; the same command goes on")


if __name__ == "__main__":
    main()
