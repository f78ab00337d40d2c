"""Compare a real pretrained model in memlm with itself in transformers, on English, German, Chinese
and Python.

    python -m tests.endurance.pretrained MODEL [--context 256]        MODEL: a folder, FILE.gguf, or hf:NAME

Tokenizes a document of each, imports the model and evaluates it, all in a store that vanishes
afterwards. Prints the largest difference of a token's log-probability; fails if ids differ, or a
difference is above 1e-4 nats.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.evaluate import Evaluate, EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.pretrained.damage import quiet
from stages.pretrained.location import Location, locate
from stages.tokenize import Tokenize, TokenizeConfig

LARGEST = 1e-4
ROOT = Path(__file__).parents[2]
CHARACTERS = 4800
"""Of the texts in English and Python, so that each text has a thousand tokens or more."""
GERMAN = """Als Gregor Samsa eines Morgens aus unruhigen Träumen erwachte, fand er sich in seinem Bett zu einem
ungeheueren Ungeziefer verwandelt. Er lag auf seinem panzerartig harten Rücken und sah, wenn er den Kopf ein wenig hob,
seinen gewölbten, braunen, von bogenförmigen Versteifungen geteilten Bauch, auf dessen Höhe sich die Bettdecke, zum
gänzlichen Niedergleiten bereit, kaum noch erhalten konnte. Seine vielen, im Vergleich zu seinem sonstigen Umfang
kläglich dünnen Beine flimmerten ihm hilflos vor den Augen.

»Was ist mit mir geschehen?«, dachte er. Es war kein Traum. Sein Zimmer, ein richtiges, nur etwas zu kleines
Menschenzimmer, lag ruhig zwischen den vier wohlbekannten Wänden. Über dem Tisch, auf dem eine auseinandergepackte
Musterkollektion von Tuchwaren ausgebreitet war – Samsa war Reisender –, hing das Bild, das er vor kurzem aus einer
illustrierten Zeitschrift ausgeschnitten und in einem hübschen, vergoldeten Rahmen untergebracht hatte. Es stellte eine
Dame dar, die, mit einem Pelzhut und einer Pelzboa versehen, aufrecht dasaß und einen schweren Pelzmuff, in dem ihr
ganzer Unterarm verschwunden war, dem Beschauer entgegenhob.

Gregors Blick richtete sich dann zum Fenster, und das trübe Wetter – man hörte Regentropfen auf das Fensterblech
aufschlagen – machte ihn ganz melancholisch. »Wie wäre es, wenn ich noch ein wenig weiterschliefe und alle Narrheiten
vergäße«, dachte er, aber das war gänzlich undurchführbar, denn er war gewöhnt, auf der rechten Seite zu schlafen,
konnte sich aber in seinem gegenwärtigen Zustand nicht in diese Lage bringen. Mit welcher Kraft er sich auch auf die
rechte Seite warf, immer wieder schaukelte er in die Rückenlage zurück. Er versuchte es wohl hundertmal, schloß die
Augen, um die zappelnden Beine nicht sehen zu müssen, und ließ erst ab, als er in der Seite einen noch nie gefühlten,
leichten, dumpfen Schmerz zu fühlen begann.

»Ach Gott«, dachte er, »was für einen anstrengenden Beruf habe ich gewählt! Tag aus, Tag ein auf der Reise. Die
geschäftlichen Aufregungen sind viel größer, als im eigentlichen Geschäft zu Hause, und außerdem ist mir noch diese
Plage des Reisens auferlegt, die Sorgen um die Zuganschlüsse, das unregelmäßige, schlechte Essen, ein immer
wechselnder, nie andauernder, nie herzlich werdender menschlicher Verkehr. Der Teufel soll das alles holen!« Er fühlte
ein leichtes Jucken oben auf dem Bauch; schob sich auf dem Rücken langsam näher zum Bettpfosten, um den Kopf besser
heben zu können; fand die juckende Stelle, die mit lauter kleinen weißen Pünktchen besetzt war, die er nicht zu
beurteilen verstand; und wollte mit einem Bein die Stelle betasten, zog es aber gleich zurück, denn bei der Berührung
umwehten ihn Kälteschauer.
"""  # Kafka, Die Verwandlung, 1915
CHINESE = """子曰：「學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？」

有子曰：「其為人也孝弟，而好犯上者，鮮矣；不好犯上，而好作亂者，未之有也。君子務本，本立而道生。孝弟也者，其為仁之本與！」

子曰：「巧言令色，鮮矣仁！」

曾子曰：「吾日三省吾身：為人謀而不忠乎？與朋友交而不信乎？傳不習乎？」

子曰：「道千乘之國，敬事而信，節用而愛人，使民以時。」

子曰：「弟子入則孝，出則弟，謹而信，汎愛眾，而親仁。行有餘力，則以學文。」

子禽問於子貢曰：「夫子至於是邦也，必聞其政，求之與？抑與之與？」子貢曰：「夫子溫、良、恭、儉、讓以得之。夫子之求之也，其諸異乎人之求之與？」

子曰：「父在，觀其志；父沒，觀其行；三年無改於父之道，可謂孝矣。」

有子曰：「禮之用，和為貴。先王之道斯為美，小大由之。有所不行，知和而和，不以禮節之，亦不可行也。」

有子曰：「信近於義，言可復也；恭近於禮，遠恥辱也；因不失其親，亦可宗也。」

子曰：「君子食無求飽，居無求安，敏於事而慎於言，就有道而正焉，可謂好學也已。」

子貢曰：「貧而無諂，富而無驕，何如？」子曰：「可也。未若貧而樂，富而好禮者也。」

子曰：「不患人之不己知，患不知人也。」

子曰：「為政以德，譬如北辰，居其所而眾星共之。」

子曰：「詩三百，一言以蔽之，曰：『思無邪。』」

子曰：「道之以政，齊之以刑，民免而無恥；道之以德，齊之以禮，有恥且格。」

子曰：「吾十有五而志于學，三十而立，四十而不惑，五十而知天命，六十而耳順，七十而從心所欲，不踰矩。」
"""  # Analects, books 1 and 2


def texts() -> dict[str, str]:
    """A document of each language; English and Python are memlm's own."""
    return {
        "English": (ROOT / "docs/explanation/retrieval-leaks.md").read_text("utf-8")[:CHARACTERS],
        "German": GERMAN,
        "Chinese": CHINESE,
        "Python": (ROOT / "stages/models/cross_entropy.py").read_text("utf-8")[:CHARACTERS],
    }


def written(folder: Path) -> list[str]:
    """The texts as files, in order."""
    for name, text in texts().items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return [str(folder / f"{name}.txt") for name in texts()]


def made(store: Store, stage: Any, config: StageConfig, **references: Any) -> Artifact:
    return make(stage, config, references, store, Execution(device="cpu")).artifact


def evaluated(store: Store, spec: str, context: int, folder: Path) -> tuple[Artifact, Artifact]:
    """Tokens of the texts, a document each, and the report of their scores."""
    files = written(folder)
    corpus = {"train": files[:1], "test": files}
    tokens = made(
        store, Tokenize(), TokenizeConfig(tokenizer="given"), source=[], tokenizer=spec, **corpus
    )
    model = made(store, ImportModel(), ImportConfig(), source=tokens.reference, checkpoint=spec)
    config = EvaluateConfig(
        context=context, stride=context, save_token_scores=True, memory=("none",)
    )
    return tokens, made(store, Evaluate(), config, source=model.reference)


def opened(location: Location) -> tuple[Any, Any]:
    """Tokenizer and model as transformers reads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(location.folder), **location.loading())
    model = AutoModelForCausalLM.from_pretrained(
        str(location.folder), dtype=torch.float32, **location.loading()
    )
    return tokenizer, model.eval()


@torch.no_grad()
def log_probs(
    model: Any, ids: torch.Tensor, start: int, prefix: int | None, context: int
) -> np.ndarray:
    """Of each token, in windows of `context` inputs, each behind the token that the model expects
    there, once.
    """
    inputs = torch.cat((torch.tensor([start]), ids[:-1]))
    expected = torch.tensor([] if prefix is None else [prefix], dtype=torch.int64)
    found = []
    for first in range(0, len(ids), context):
        before = expected[:0] if inputs[first] == prefix else expected
        window = torch.cat((before, inputs[first : first + context]))
        scores = model(window[None]).logits[0, len(before) :].log_softmax(-1)
        found.append(scores.gather(1, ids[first : first + context, None])[:, 0])
    return np.asarray(torch.cat(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        tokens, report = evaluated(store, options.model, options.context, Path(folder))
        ids = np.asarray(tokens.zarr("tokens.zarr")["test/ids"][:]).astype(np.int64)
        ends = np.asarray(tokens.zarr("tokens.zarr")["test/doc_offsets"][:])
        ours = np.asarray(report.zarr("scores.zarr")["logp_lm"][:])
    with quiet():
        tokenizer, model = opened(locate(options.model))
    special = tokens.metrics
    theirs = log_probs(
        model, torch.from_numpy(ids), special["start_id"], special["prefix_id"], options.context
    )
    worst = 0.0
    for (name, text), start, stop in zip(texts().items(), ends[:-1], ends[1:], strict=True):
        wanted = [*tokenizer(text, add_special_tokens=False).input_ids, special["eos_id"]]
        assert wanted == ids[start:stop].tolist(), f"{name}: other ids"
        difference = np.abs(ours - theirs)[start:stop].max()
        mean = np.exp(-ours[start:stop].mean())
        print(
            f"{name:8} {stop - start:5} tokens, perplexity {mean:8.2f}, largest difference {difference:.1e} nats"
        )
        worst = max(worst, float(difference))
    sys.exit(f"differences up to {worst:.1e} nats" if worst > LARGEST else 0)


if __name__ == "__main__":
    main()
