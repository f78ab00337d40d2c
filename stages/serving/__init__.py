"""An address over HTTP: a model with its memories completes and scores texts for other programs."""
