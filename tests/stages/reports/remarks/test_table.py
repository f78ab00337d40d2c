"""The table of remarks: every code is made by some condition, and every sentence is short."""

import re
from pathlib import Path
from string import Formatter

import pytest

from stages.reports.remarks import gains, scored_text, tuning
from stages.reports.remarks.table import CODES, SENTENCES, SHORT, remark
from tests.snapshot import same_as

ELSEWHERE = {"against-baseline", "twin", "train-twin", "plan"}
"""Codes of remarks that need more than figures."""
MOST_WORDS = 20
WORDING = Path(__file__).with_name("wording.txt")


def test_conditions_and_sentences_have_the_same_codes() -> None:
    rooms = (gains, scored_text, tuning)
    source = "".join(Path(str(room.__file__)).read_text("utf-8") for room in rooms)
    assert set(CODES) - ELSEWHERE == {code for code in CODES if f'"{code}"' in source}
    assert set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source)) <= set(CODES)


@pytest.mark.parametrize("text", [text for texts in SENTENCES.values() for text in texts.values()])
def test_a_sentence_has_twenty_words_at_most(text: str) -> None:
    plain = re.sub(r"\([^)]*\)", "", text)
    for sentence in re.split(r"[.;:] ", plain):
        assert len(sentence.split()) <= MOST_WORDS, sentence


def test_the_wording_is_as_it_was_agreed_on() -> None:
    lines = []
    for severity, texts in SENTENCES.items():
        for code, text in texts.items():
            gaps = [name for _, name, _, _ in Formatter().parse(text + SHORT.get(code, "")) if name]
            made = remark(code, {name: f"<{name}>" for name in gaps})
            short = f" | {made.short}" if made.short else ""
            lines.append(f"{severity.name} {code}: {made.text}{short}\n")
    assert same_as(WORDING, "".join(lines))  # MEMLM_UPDATE_SNAPSHOTS=1 pytest writes the file again
