"""Names of the files that hold translations. Free of torch."""

TRANSLATIONS, CHANGED = "translations.jsonl", "changed-translations.json"
