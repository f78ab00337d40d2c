"""Options that choose layers."""

KEYS = {"name": "product-keys", "layers": "[1]", "sub_keys": 4, "neighbors": 2}


NGRAMS = {"name": "hashed-ngrams", "layers": "[1]", "slots": 60, "heads": 2}


ENTRIES = {"name": "memorizing", "layers": "[2]", "long_length": 20, "neighbors": 4}


SIGNAL = {"name": "infinity", "layers": "[2]", "basis": 8, "samples": 6}


def chosen(place: str, settings: dict[str, object]) -> list[str]:
    return [
        part
        for name, value in settings.items()
        for part in ("--set", f"model.{place}.{name}={value}")
    ]
