"""Compares memlm with the authors' own code and prints a table; README.md beside this file says how
to get that code.

Exit code 0: all agree; 1: one does not; 2: the code of one is not there.
"""

import argparse
import sys
from pathlib import Path

from tests.peers.agreement import Agreement
from tests.peers.registry import PEERS
from tests.peers.sources import Peer


def main() -> int:
    asked = _arguments()
    print(_row("peer", "compared", "on", "largest difference"))
    codes = [_compare(name, asked.sources) for name in asked.peer or PEERS]
    return 1 if 1 in codes else max(codes)


def _compare(name: str, sources: Path) -> int:
    """Print what there is to say of a peer; returns an exit code."""
    peer: Peer = PEERS[name].PEER
    folder = peer.folder(sources)
    if not folder.is_dir():
        print(f"{name:<15} not there: {peer.clone} {folder}")
        return 2
    agreed = True
    for result in PEERS[name].comparisons(folder):
        print(_line(name, result), flush=True)
        agreed = agreed and result.agreed
    print(f"{'':<15} made equal: {peer.made_equal}\n{'':<15} patched: {peer.patched}")
    return 0 if agreed else 1


def _line(name: str, result: Agreement) -> str:
    verdict = "agrees" if result.agreed else f"DISAGREES: more than {result.tolerance:.0e}"
    return _row(name, result.compared, result.on, f"{result.difference:.1e} {verdict}")


def _row(*cells: str) -> str:
    return "{:<15} {:<38} {:<66} {}".format(*cells)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sources",
        type=Path,
        required=True,
        help="folder with the repositories, as git clones them",
    )
    parser.add_argument(
        "--peer", action="append", choices=PEERS, help="this one alone; may be given several times"
    )
    asked = parser.parse_args()
    asked.sources = asked.sources.resolve()
    return asked


if __name__ == "__main__":
    sys.exit(main())
