"""The pages that memlm writes, one of each kind."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.comparison.page import page as comparison_page
from stages.inspection.page import GAINS, LOSSES, Chosen, ChosenPassage, page_of_passages
from stages.inspection.page import page as passage_page
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from stages.reports.remarks.table import remark
from tests.builders.inspected import inspected, token
from tests.conftest import drawing
from tests.stages.comparison.found import FOUND
from tests.stages.pages import made

LONG = "a-name-that-somebody-gave-without-a-thought-of-those-who-read-it-on-a-phone"


@pytest.fixture(scope="package")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Report, passage, several passages and comparison, with long names, long words and long
    remarks.
    """
    folder = tmp_path_factory.mktemp("pages")
    store = Store(folder / "store")
    read = {"tokens": "tokens/none", "model": LONG, "datastore": LONG}
    report = made.chain(store, {"exclude": "window:128", "read": read})
    (store.root / "names" / "report" / "first").unlink()
    store.name(report, LONG)
    remarks = [
        remark("plan", {"line": f"{LONG * 3} against plain of the baseline: perplexity x 0.5"})
    ]
    with drawing():
        report_page = build_page(
            find_reports([report.reference], store), lambda members: LONG * 4, lambda _: remarks
        )
        compared = comparison_page(FOUND)
    passage = inspected(token(LONG, 0.2, 0.4, 0.69, 0.25), token("  ", 0.4, 0.2, -0.69, 0.75))
    several = [ChosenPassage(Chosen(kind, 5, 7, 14.2), passage) for kind in (GAINS, LOSSES)]
    texts = {
        "report": report_page.html,
        "passage": passage_page(passage),
        "passages": page_of_passages(several, f"report/{LONG}"),
        "compare": compared,
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return [folder / f"{name}.html" for name in texts]
