"""The documentation becomes a site without a warning, and the site needs nothing from elsewhere."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDED = ("sphinx", "furo", "myst_parser")

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in NEEDED),
    reason="Sphinx is not installed (pip install -e '.[docs]')",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, ROOT / "docs/site/build.py", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_document_is_a_page_that_the_contents_lead_to(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    for document in (ROOT / "docs").rglob("*.md"):
        page = document.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / page).is_file()
        assert f'href="{page}"' in home


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.search(r"<(script|img|iframe|source)\b[^>]*\bsrc=\"(https?:)?//", text), page
        assert not re.search(r"<link\b[^>]*\bhref=\"(https?:)?//", text), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text("utf-8")), (
            style
        )


def test_the_reference_has_every_command_and_its_options(site: Path) -> None:
    text = (site / "commands.html").read_text("utf-8")
    for words in (
        "memlm evaluate",
        "--open-book",
        "memlm artifacts graph",
        "TOKENS|BATCHES|NEIGHBORS",
    ):
        assert words in text


def test_every_setting_is_on_a_page_that_others_lead_to(site: Path) -> None:
    text = (site / "settings.html").read_text("utf-8")
    for words in (
        "model.attention.long_length",
        "model.feed_forward.sub_keys",
        "memory.neighbor_dropout",
        "batch_tokens",
    ):
        assert words in text
    page = (site / "explanation/memorizing-transformer.html").read_text("utf-8")
    assert "settings.html#stages-models-layers-memory-settings-memorizingsettings" in page


def test_every_field_of_a_report_is_on_a_page_that_others_lead_to(site: Path) -> None:
    text = (site / "fields.html").read_text("utf-8")
    for words in ("share_of_gain", "perplexity_ratio_interval", "memory_tokens"):
        assert words in text
    for page, room in (
        ("reference/artifacts", "reports-fields"),
        ("how-to/compare", "comparison-settings"),
    ):
        assert f"fields.html#stages-{room}" in (site / f"{page}.html").read_text("utf-8")
