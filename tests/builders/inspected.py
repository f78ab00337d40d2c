"""An inspected passage, made by hand."""

from stages.inspection.contexts import Context, EnteredContext, LookedUpContext
from stages.inspection.inspect import Inspected, MemoryView, TokenView
from stages.text.excerpt import Excerpt

EVIL = "<script>alert('x')</script>"


def token(
    label: str, model: float, final: float, gain: float, gate: float | None = None
) -> TokenView:
    source = Excerpt("train", 70, 3, 7, f"before {EVIL} ", label, " after & beyond")
    contexts = [Context(0, 0.75, 0.3, True, None, source), Context(0, 0.25, 0.1, False, 4, source)]
    entered = [] if gate is None else [EnteredContext(True, source)]
    looked_up = [] if gate is None else [LookedUpContext(0.125, 3000, True, source)]
    columns = {} if gate is None else {"gate": gate}
    return TokenView(
        **{
            "position": 5,
            "id": 1,
            "label": label,
            "text": f" {label}",
            "model": model,
            "final": final,
            "gain": gain,
        },
        **{
            "memories": [MemoryView(0.5, 0.4)],
            "columns": columns,
            "contexts": contexts,
            "entered": entered,
        },
        looked_up=looked_up,
    )


def inspected(*tokens: TokenView) -> Inspected:
    memory = {
        "sources": ["external"],
        "reader": "interpolate",
        "k": 8,
        "lambda": 0.4,
        "numbers": "default",
    }
    return Inspected("model/0123456789ab", "test", 5, [memory], list(tokens))
