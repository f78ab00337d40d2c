import numpy as np
import zarr

from stages.evaluation.results.paragraphs import repeated_tokens


class Tokens:
    def __init__(self, folder, **splits):
        self.group = zarr.open_group(folder, mode="w")
        for split, (ends, hashes) in splits.items():
            self.group.create_array(f"{split}/paragraph_ends", data=np.array(ends, np.int64))
            self.group.create_array(f"{split}/paragraph_hashes", data=np.array(hashes, np.uint64))

    def zarr(self, name):
        assert name == "tokens.zarr"
        return self.group


def test_tokens_of_paragraphs_that_train_has_are_marked(tmp_path):
    big = 2**64 - 1
    tokens = Tokens(tmp_path, test=([3, 4, 6], [big, 8, 7]))
    repeated = repeated_tokens(tokens, "test", np.array([7, big], np.uint64))
    assert repeated.tolist() == [True, True, True, False, True, True]
