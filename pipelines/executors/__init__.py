"""Where the stages of a recipe run: a module each, with a function `run_stage`."""
