"""A corpus on a hub: its card and its text."""

CARD = """---
configs:
- config_name: raw
  data_files:
  - split: train
    path: raw/train-*
  - split: validation
    path: raw/valid-*
- config_name: lines
  data_files:
  - split: train
    path: lines/*.jsonl
---
# A data set
"""


TRAIN = [["", " = One = \n", "", "the cat sat \n"], ["on the mat \n"]]
