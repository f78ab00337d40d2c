"""How fast this machine trains a model, measured on a few updates. For forecasts alone: no artifact depends on it."""

from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from stages.reporting import ProgressAlone, Reporter
from stages.training.config import TrainConfig

UPDATES, WARM_UP = 6, 2
"""Updates that are timed at least, and others before them: the first take longer, while memory is found for them."""
ENOUGH, MOST = 2.0, 60
"""Seconds of updates that tell the speed, where six take less; and updates in which most of them have gone by."""


def training_speed(config: TrainConfig, vocabulary: int, device: str, reporter: Reporter) -> float:
    """Tokens a second that training reads, on tokens drawn at random.

    Args:
        config: of a method that learns from tokens alone.
        vocabulary: token types.
        device: auto, cpu or cuda.
        reporter: hears how many updates are made.
    """
    import numpy as np

    from stages.methods import METHODS
    from stages.methods.method import SideInputs
    from stages.models.devices import resolve_device, resolve_precision
    from stages.models.language_model import LanguageModel
    from stages.training.loop import Trainer
    from stages.training.progress import Splits
    from stages.training.ranks import make_fabric

    place = resolve_device(device)
    timed = config.model_copy(
        update={
            "model": config.model.sized(vocabulary, config.segment_length),
            "precision": resolve_precision(config.precision, place.type),
            "compile": False,  # which takes longer than what is timed
        }
    )
    ids = np.random.default_rng(0).integers(vocabulary, size=UPDATES * config.batch_tokens)

    def trained(updates: int) -> tuple[float, float]:
        """Tokens a second, and the seconds."""
        config = timed.model_copy(update={"steps": updates})
        with TemporaryDirectory() as folder:
            method = METHODS.load(config.method)(config.method_settings, SideInputs())
            model, splits = LanguageModel(config.model), Splits(ids, None, 0)
            trainer = Trainer(
                make_fabric(place), config, model, method, splits, Path(folder), ProgressAlone(reporter), 3600.0
            )
            progress = trainer.run()
        return progress.step * trainer.update_tokens / progress.seconds, progress.seconds

    trained(WARM_UP)
    speed, seconds = trained(UPDATES)
    if seconds < ENOUGH:
        speed, _ = trained(min(MOST, ceil(UPDATES * ENOUGH / seconds)))
    return speed
