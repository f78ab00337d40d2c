"""Characters of texts that would command a terminal or turn the direction of a page."""

from pathlib import Path

from stages.web import render


def test_control_and_direction_characters_are_spelled_out(tmp_path: Path) -> None:
    template = tmp_path / "page.html"
    template.write_text("<p>{{ text }}</p>\n<p>é\t{{ text }}</p>")
    text = "a\x1b[31mb\u202ec\u2066d\x00"
    spelled = r"a\x1b[31mb\u202ec\u2066d\x00"
    assert render(template, text=text) == f"<p>{spelled}</p>\n<p>é\t{spelled}</p>"
