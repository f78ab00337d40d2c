"""Attacks on the command line, for as long as one likes; see `python -m tests.endurance.campaign
--help`.

Every attack is a module with a list `ATTACKS`; a case of an attack is decided by its name, the seed
and a number, so that one line tries it again. Nothing outside a scratch folder is touched.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "CUDA_VISIBLE_DEVICES": ""}
# Before anything is imported that reads it: forks of a process that has threads may hang.
