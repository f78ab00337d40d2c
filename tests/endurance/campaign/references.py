"""References that lead nowhere, elsewhere, or to the wrong kind: refused, or the same as the right
one.
"""

from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import TEXTS

READERS = {
    "model": ["train", "{tokens}", "--steps", "1"],
    "datastore": ["build-datastore", "{model}"],
    "index": ["build-index", "{datastore}"],
    "neighbors": ["precompute-neighbors", "{index}"],
    "batches": ["pack-batches", "{tokens}"],
    "evaluate": ["evaluate", "{lstm}"],
    "tokens": ["build-datastore", "{model}", "--tokens", "{bpe}"],
    "init": ["train", "{tokens}", "--init-from", "{lstm}", "--steps", "1"],
    "given": ["tokenize", "train.txt", "--tokenizer", "{tokens}", "--documents", "line"],
    "show": ["artifacts", "show", "{model}"],
    "verify": ["artifacts", "verify", "{model}"],
    "graph": ["artifacts", "graph", "{model}"],
    "inspect": ["inspect", "{lstm}", "--position", "8", "--length", "2"],
    "generate": ["generate", "{lstm}", "--max-tokens", "2", "--prompt", "the"],
    "compare": ["compare", "{report}", "{recent}", "--samples", "20"],
    "page": ["report", "{report}", "--output", "page.html"],
}
KEPT = {"show", "verify", "graph", "inspect", "generate", "compare", "page"}
"""Commands that make no artifact."""


def bad_reference(case: Case) -> Verdict:
    """One reference of a command replaced; the store holds as many artifacts as before where it is
    refused.
    """
    case.world.copy(case.store)
    name = case.random.choice(list(READERS))
    arguments = list(READERS[name])
    at = case.random.choice([i for i, part in enumerate(arguments) if part.startswith("{")])
    arguments[at] = _reference(case, case.world.filled(arguments[at]))
    arguments = [case.world.filled(part) if part.startswith("{") else part for part in arguments]
    stdin = b""
    if case.random.random() < 0.2:
        stdin, arguments[at] = arguments[at].encode("utf-8", "surrogateescape"), "-"
    case.note(f"{' '.join(part[:80] for part in arguments)} < {stdin[:80]!r}")
    before = len(list(case.store.glob("*/*/manifest.json")))
    ended = case.memlm(*arguments, stdin=stdin)
    verdict = judge(ended)
    made = len(list(case.store.glob("*/*/manifest.json"))) - before
    if verdict.judgement == "refused" and made:
        return failed(f"refused, but made {made} artifacts")
    return verdict


def _reference(case: Case, right: str) -> str:
    kind, id = right.split("/")
    others = [made.reference for made in case.world.made.values()]
    odd = [
        *(
            f"{kind}/{id.upper()}",
            f"{kind}/{id[:-1]}",
            f"{kind}/{id}0",
            f"{kind}//{id}",
            f"./{right}",
            f"store/{right}",
        ),
        *(
            f"{right}/",
            f"{right}/..",
            f"../{right}",
            f"{kind}/../{right}",
            f"{kind}/{'0' * 12}",
            f"{kind}/{'f' * 12}",
        ),
        *(
            f"x{kind}/{id}",
            f"{kind}s/{id}",
            kind,
            id,
            f" {right} ",
            f"{right}\n{right}",
            f"{right}\0",
            "strangers",
        ),
        *(
            "store",
            "store/names",
            f"store/{kind}/.{id}-partial",
            "/proc/self",
            "train.txt",
            f"{kind}/{'x' * 101}",
        ),
        *(
            f"{kind}/..",
            f"{kind}/.",
            f"{kind}/%2e%2e",
            f"{kind}/\u0430{id[1:]}",
            f"{kind}/*",
            f"{kind}/" + "a" * 5000,
        ),
    ]
    return case.random.choice(
        [case.random.choice(odd), case.random.choice(others), case.random.choice(TEXTS)]
    )


ATTACKS = {"bad-reference": bad_reference}
