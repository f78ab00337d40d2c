"""The work of import-model: the weights of a pretrained model, in memlm's own layout."""

import json
from typing import Any

from safetensors.torch import save_file

from stages.artifacts.stage import Job, SerialWork
from stages.errors import ArtifactError, DataError, ResourceError
from stages.machine import memory_bytes
from stages.models.weights import load_model
from stages.numbers import size
from stages.pretrained.config import ImportConfig
from stages.pretrained.damage import reading
from stages.pretrained.model import Imported, read_pretrained
from stages.pretrained.resolve import checkpoint_of, pretrained_size


class ImportWork(SerialWork[ImportConfig]):
    """Stores weights, once their scores are those of transformers."""

    def run(self, job: Job[ImportConfig]) -> dict[str, Any]:
        needed = pretrained_size(job.config, job.inputs).memory
        memory = memory_bytes()
        if needed > memory:
            raise ResourceError(
                f"Importing {checkpoint_of(job.inputs).spec} takes {size(needed)} of memory, where its scores are compared "
                f"with those of transformers, and this machine has {size(memory)}: import it on a larger one, or a "
                "smaller model."
            )
        assert isinstance(job.config.model, Imported)
        location = checkpoint_of(job.inputs)
        tokens = job.inputs["tokens"]
        if not location.has_tokenizer:
            job.reporter.warning(
                f"{location.spec} has no tokenizer.json: it could not be checked whether {tokens.reference} was made "
                "with the model's own tokenizer; with another, perplexities mean nothing."
            )
        output = "keys" if job.config.model.pools else "scores"
        job.reporter.info(f"reading weights, and comparing {output} with those of transformers")
        # One more for the prefix of a window.
        length = (job.config.segment_length or 1) + 1
        longest = job.config.model.reads.longest_context
        if longest is not None:
            length = min(length, longest)
        # Some classes of transformers cannot be taken apart, and fail in ways of their own.
        with reading(location, "model"):
            weights, require_same = read_pretrained(location, job.config.model, length)
        parameters = sum(weight.numel() for weight in weights.values())
        job.draft.expect(sum(weight.nbytes for weight in weights.values()))
        file = job.draft.add("model.safetensors")
        save_file(weights, file)
        weights.clear()
        settings = {
            "model": job.config.stored()["model"],
            "method": "lm",
            "memory": None,
            "training": None,
        }
        job.draft.add("config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        try:
            # What later stages will load, by the way in which they load it.
            with reading(location, "model"):
                require_same(load_model(job.draft.path, "cpu"))
        except DataError:
            file.unlink()
            raise
        except ArtifactError as error:  # tables of other shapes, which no setting tells (Moshi)
            file.unlink()
            raise DataError(
                f"{location.spec} is built in a way that memlm does not know: its weights have other shapes than its "
                "settings say. It cannot be imported."
            ) from error
        return {"parameters": parameters}
