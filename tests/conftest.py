"""What holds for every test."""

from hypothesis import settings

settings.register_profile("memlm", deadline=None)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("memlm")
"""No example fails for being slow: machines that run the tests are shared. Hours: `--hypothesis-profile long`."""
