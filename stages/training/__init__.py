"""Training: the loop, optimizers and schedules, checkpoints, the journal, presets."""

from stages.registry import Part, Registry

HERE = "stages.training"
INPUTS = Registry(
    "training input",
    {
        "batches": Part.within(HERE, "inputs:PackingInput", "training_data:open_packing"),
        "neighbors": Part.within(HERE, "inputs:NeighborsInput", "training_data:open_neighbors"),
        "soft-labels": Part.within(
            HERE, "inputs:SoftLabelsInput", "training_data:open_soft_labels"
        ),
        "episodes": Part.within(HERE, "inputs:EpisodesInput", "training_data:open_episode_keys"),
        "background": Part.within(HERE, "inputs:BackgroundInput", "training_data:open_background"),
    },
)
