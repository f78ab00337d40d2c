"""The table of remarks: every code is made by some condition, and every sentence is short."""

import re
from pathlib import Path
from string import Formatter

import pytest

from stages.reports.remarks import gains, scored_text, tuning
from stages.reports.remarks.table import SENTENCES, Severity, remark
from tests.snapshot import same_as

ELSEWHERE = {"against-baseline", "twin", "train-twin", "plan"}
"""Codes of remarks that need more than figures."""
MOST_WORDS = 20
WORDING = Path(__file__).with_name("wording.txt")


def test_conditions_and_sentences_have_the_same_codes() -> None:
    rooms = (gains, scored_text, tuning)
    source = "".join(Path(str(room.__file__)).read_text("utf-8") for room in rooms)
    assert set(SENTENCES) - ELSEWHERE == {code for code in SENTENCES if f'"{code}"' in source}
    assert set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source)) <= set(SENTENCES)


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_has_twenty_words_at_most(code: str) -> None:
    plain = re.sub(r"\([^)]*\)", "", SENTENCES[code].text)
    for sentence in re.split(r"[.;:] ", plain):
        assert len(sentence.split()) <= MOST_WORDS, sentence


def test_the_wording_is_as_it_was_agreed_on() -> None:
    lines = []
    for code, sentence in SENTENCES.items():
        gaps = [name for _, name, _, _ in Formatter().parse(sentence.text + sentence.short) if name]
        made = remark(code, {name: f"<{name}>" for name in gaps})
        lines.append(f"{Severity(made.severity).name} {code}: {made.text}{f' | {made.short}' if made.short else ''}\n")
    assert same_as(WORDING, "".join(lines))  # MEMLM_UPDATE_SNAPSHOTS=1 pytest writes the file again
