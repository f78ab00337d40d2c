"""The table of stages, one row each; the kinds of artifacts and the commands follow from it."""

from stages.artifacts.declaration import (
    Command,
    Kind,
    Reference,
    StageEntry,
    StageTable,
    declared_commands,
    declared_kinds,
)

STAGES = StageTable(
    "stage",
    {
        "tokenize": StageEntry(
            settings="stages.text.config:TokenizeConfig",
            contract="stages.tokenize:Tokenize",
            work="stages.tokenization.work:TokenizeWork",
            kind=Kind(
                "tokens",
                format_version=3,
                holds="stages.forgetting.rules:held_by_tokens",
                facts=(
                    ("vocabulary_size", "types"),
                    ("splits.train.tokens", "train"),
                    ("splits.valid.tokens", "valid"),
                    ("splits.test.tokens", "test"),
                ),
                result="memlm_cli.results.tokens:TokensView",
                notebook="memlm_cli.notebook.artifacts:Tokens",
            ),
            command=Command(
                "Text -> tokens: a vocabulary, and every split as token ids.",
                "Text files, folders or .jsonl, also compressed (.gz, .xz, .zst); patterns ('FOLDER/**/*.py'); .parquet; "
                ".arrow; .csv; .tsv; -: text on standard input; builtin:pydocs; "
                "data sets of the Hugging Face hub, hf:NAME/CONFIG@REVISION:COLUMN (only NAME is required), or "
                "hf:/FOLDER with the same layout. --split divides them.",
                references={
                    "train": Reference("Files of the train split.", metavar="FILE", several=True),
                    "valid": Reference("Files of the valid split.", metavar="FILE", several=True),
                    "test": Reference("Files of the test split.", metavar="FILE", several=True),
                    "tokenizer": Reference("", ("tokens",)),
                },
                reads_files=True,
            ),
        ),
        "train": StageEntry(
            settings="stages.training.config:TrainConfig",
            contract="stages.train:Train",
            work="stages.training.work:TrainWork",
            needs="stages.needs:train_needs",
            kind=Kind(
                "model",
                format_version=3,
                holds="stages.forgetting.rules:held_by_model",
                facts=(
                    ("parameters", "parameters"),
                    ("steps", "steps"),
                    ("passes", "passes over train"),
                    ("valid_perplexity", "valid perplexity"),
                ),
                result="memlm_cli.results.model:ModelView",
                notebook="memlm_cli.notebook.artifacts:Model",
            ),
            command=Command(
                "Tokens, batches, neighbors or episodes -> model: trains a language model.",
                "Data to learn from",
                ("tokens", "batches", "neighbors", "episodes"),
                {
                    "init_from": Reference("Begin with the weights of this model.", ("model",)),
                    "time_of": Reference(
                        "Make as many updates as fit into the time that this report, its datastore and its index took.",
                        ("report",),
                    ),
                },
                seeded=True,
            ),
        ),
        "import-model": StageEntry(
            settings="stages.pretrained.config:ImportConfig",
            contract="stages.import_model:ImportModel",
            work="stages.pretrained.work:ImportWork",
            needs="stages.needs:import_needs",
            kind="model",
            command=Command(
                "Pretrained causal language model or encoder, and tokens of its tokenizer -> model.",
                "Tokens made with its tokenizer",
                ("tokens",),
                {
                    "checkpoint": Reference(
                        "A folder with config.json and safetensors, FILE.gguf, or hf:NAME[@REVISION] of the Hugging "
                        "Face hub."
                    )
                },
                first="checkpoint",
            ),
        ),
        "build-datastore": StageEntry(
            settings="stages.encoding.datastore_config:DatastoreConfig",
            contract="stages.datastore:BuildDatastore",
            work="stages.encoding.datastore_work:DatastoreWork",
            needs="stages.needs:datastore_needs",
            kind=Kind(
                "datastore",
                format_version=2,
                holds="stages.forgetting.rules:held_by_datastore",
                facts=(("rows", "keys"), ("dim", "wide")),
                notebook="memlm_cli.notebook.artifacts:StoredDatastore",
            ),
            command=Command(
                "Model -> datastore: a key and a value for every token of a split.",
                "Its encoder",
                ("model",),
                {
                    "tokens": Reference(
                        "Another corpus than the model's, with its vocabulary.", ("tokens",)
                    )
                },
            ),
        ),
        "update-datastore": StageEntry(
            settings="stages.updating.config:UpdateConfig",
            contract="stages.update:UpdateDatastore",
            work="stages.updating.work:UpdateWork",
            needs="stages.needs:update_needs",
            kind="datastore",
            command=Command(
                "Datastore -> datastore: adds documents and forgets others, without encoding the rest again.",
                "The old datastore, which is kept",
                ("datastore",),
                {
                    "add": Reference(
                        "Text to add, tokenized with the datastore's vocabulary.", ("tokens",)
                    )
                },
                forgets=True,
            ),
        ),
        "build-index": StageEntry(
            settings="stages.search.config:IndexConfig",
            contract="stages.index:BuildIndex",
            work="stages.indexing.vectors:VectorIndexWork",
            needs="stages.needs:index_needs",
            kind=Kind(
                "index",
                format_version=3,
                holds="stages.forgetting.rules:held_by_index",
                facts=(("rows", "keys"), ("bytes_per_key", "bytes a key")),
                result="memlm_cli.results.index:IndexView",
                notebook="memlm_cli.notebook.artifacts:StoredIndex",
            ),
            command=Command(
                "Datastore -> index: finds the nearest keys. Tokens -> index (--index exact): finds exact matches.",
                "Keys to search, or tokens whose contexts are sorted",
                ("datastore", "tokens"),
                {
                    "update": Reference(
                        "Index of the datastore before its update. It is changed instead of building a new one, if "
                        "its kind allows (default: the latest with the same settings).",
                        ("index",),
                        "INDEX|none",
                    ),
                    "merge": Reference(
                        "Neighbours of the datastore's own rows: neighbours with the same token are merged into one "
                        "entry.",
                        ("neighbors",),
                    ),
                },
            ),
        ),
        "precompute-neighbors": StageEntry(
            settings="stages.search.config:NeighborsConfig",
            contract="stages.neighbors:PrecomputeNeighbors",
            work="stages.indexing.neighbors:NeighborsWork",
            needs="stages.needs:neighbors_needs",
            kind=Kind(
                "neighbors",
                format_version=2,
                holds="stages.forgetting.rules:held_by_neighbors",
                facts=(("k", "neighbours a token"),),
                notebook="memlm_cli.notebook.artifacts:Neighbors",
            ),
            command=Command(
                "Index -> neighbors: the nearest datastore rows of every token's context.",
                "Index to search",
                ("index",),
                {
                    "tokens": Reference(
                        "Another corpus than the encoder's, for queries.", ("tokens",)
                    )
                },
            ),
        ),
        "pack-batches": StageEntry(
            settings="stages.text.config:PackConfig",
            contract="stages.pack:PackBatches",
            work="stages.packing.work:PackWork",
            needs="stages.needs:pack_needs",
            kind=Kind(
                "batches",
                format_version=2,
                holds="stages.forgetting.rules:held_by_batches",
                facts=(("segments", "segments"), ("token_overlap", "token overlap")),
            ),
            command=Command(
                "Tokens -> batches: groups segments that share many words, for trime-ext.",
                "Tokens whose training split is packed",
                ("tokens",),
            ),
        ),
        "evaluate": StageEntry(
            settings="stages.evaluation.config:EvaluateConfig",
            contract="stages.evaluate:Evaluate",
            work="stages.evaluation.work:EvaluateWork",
            needs="stages.needs:evaluate_needs",
            kind=Kind(
                "report",
                format_version=11,
                holds="stages.forgetting.rules:held_by_report",
                facts=(("tokens", "tokens"), ("perplexity", "perplexity")),
                result="memlm_cli.results.report:ReportView",
                notebook="memlm_cli.notebook.artifacts:Report",
            ),
            command=Command(
                "Model, index or neighbors -> report: perplexity, with and without memory.",
                "A model, index or neighbors",
                ("model", "index", "neighbors"),
                {
                    "tokens": Reference(
                        "Another corpus to score instead of the model's.", ("tokens",)
                    ),
                    "index": Reference(
                        "Index of another encoder, to search as memory.", ("index",)
                    ),
                    "neighbors": Reference(
                        "Neighbours of another encoder, to read as memory; or those that a spalm model reads.",
                        ("neighbors",),
                    ),
                    "open_book": Reference(
                        "Tokens whose passages stand before the context, chosen anew every 32 tokens.",
                        ("tokens",),
                    ),
                    "baseline": Reference(
                        "Report of an ordinary model, as a first row to compare with.", ("report",)
                    ),
                },
            ),
        ),
        "build-episodes": StageEntry(
            settings="stages.tasks.episodes:EpisodesConfig",
            contract="stages.episodes:BuildEpisodes",
            work="stages.tasks.episodes_work:EpisodesWork",
            needs="stages.needs:episodes_needs",
            kind=Kind(
                "episodes",
                format_version=2,
                holds="stages.forgetting.rules:held_by_episodes",
            ),
            command=Command(
                "Model -> episodes: a key and a label for every document of a stream of tasks.",
                "The key network, which was not trained on the tasks",
                ("model",),
                {
                    "tokens": Reference(
                        "Tokens of the tasks, with the model's vocabulary.", ("tokens",)
                    )
                },
            ),
        ),
        "evaluate-tasks": StageEntry(
            settings="stages.tasks.config:EvaluateTasksConfig",
            contract="stages.evaluate_tasks:EvaluateTasks",
            work="stages.tasks.work:EvaluateTasksWork",
            needs="stages.needs:evaluate_tasks_needs",
            kind=Kind(
                "matrix",
                format_version=4,
                holds="stages.forgetting.rules:held_by_matrix",
                result="memlm_cli.results.matrix:MatrixView",
            ),
            command=Command(
                "Model trained on tasks -> matrix: accuracy on the test split of each task, after each task.",
                "A model trained by a method that learns tasks",
                ("model",),
                {"episodes": Reference("Keys of the documents in memory.", ("episodes",))},
            ),
        ),
    },
)
"""Every stage, in the order of the pipeline. One from outside the package is one more row."""

KINDS = declared_kinds(STAGES)
COMMANDS = declared_commands(STAGES)

PREVIOUS = "previous"
ADDED = "added"
USED_UP = frozenset({PREVIOUS, ADDED})
"""Roles of inputs that are not needed to read the output; these artifacts may be removed."""
