"""Tests of memlm; several processes run them, whose idle threads must not spin while others work."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
