"""The commands that make artifacts again, spelled from their manifests."""
