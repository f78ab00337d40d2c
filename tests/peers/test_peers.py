"""memlm against the authors' own code, where it is there: MEMLM_PEERS names the folder with it
(README.md).
"""

import os
from pathlib import Path

import pytest
import torch

from tests.peers.__main__ import main
from tests.peers.agreement import Agreement, difference
from tests.peers.registry import PEERS

SOURCES = os.environ.get("MEMLM_PEERS")


@pytest.mark.skipif(
    not SOURCES, reason="MEMLM_PEERS names no folder with the peers' code (tests/peers/README.md)"
)
@pytest.mark.parametrize("name", PEERS)
def test_memlm_agrees_with(name):
    peer = PEERS[name].PEER
    folder = peer.folder(Path(SOURCES).resolve())
    if not folder.is_dir():
        pytest.skip(f"not there: {peer.clone} {folder}")
    results = list(PEERS[name].comparisons(folder))
    assert results
    assert not [result for result in results if not result.agreed]


@pytest.mark.parametrize("number", [float("nan"), 2.0])
def test_what_is_another_number_or_none_does_not_agree(number):
    one, other = torch.ones(3), torch.tensor([1.0, number, 1.0])
    assert not Agreement("", "", difference([one, one], [one, other])).agreed
    assert not Agreement("", "", difference([other, one], [one, one])).agreed
    assert Agreement("", "", difference([one], [one])).agreed


def test_the_table_says_what_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["peers", "--sources", str(tmp_path), "--peer", "TRIME"])
    assert main() == 2
    assert "https://github.com/princeton-nlp/TRIME" in capsys.readouterr().out
