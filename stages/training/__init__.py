"""Training: the loop, optimizers and schedules, checkpoints, the journal, presets."""
