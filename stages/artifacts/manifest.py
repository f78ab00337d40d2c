"""The manifest of an artifact: its settings, its inputs, its producer, and the digest of each of
its files.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from stages.artifacts.checksums import FileEntry, canonical_json, manifest_checksum, manifest_digest
from stages.artifacts.kinds import KINDS, STAGES
from stages.artifacts.references import MANIFEST, is_id, stays_inside
from stages.config import StageConfig
from stages.errors import ArtifactError, UsageError, shortened
from stages.registry import OUTSIDE, UnknownPart, missing_modules


class InputRecord(BaseModel):
    """An input of an artifact. The id names the work, and the digest covers the bytes."""

    model_config = ConfigDict(frozen=True)

    kind: str
    id: str
    digest: str

    @property
    def reference(self) -> str:
        return f"{self.kind}/{self.id}"


def identity(
    stage: str,
    format_version: int,
    config: StageConfig,
    inputs: Mapping[str, InputRecord],
    files: Sequence[Sequence[str]],
) -> str:
    """The id of a piece of work: a digest of its stage, non-default settings, inputs and files from
    outside.

    It has twelve hexadecimal digits.

    Args:
        stage: name of the stage.
        format_version: format version of the stage's kind.
        files: role and digest of each file from outside the store.
    """
    # Inputs count by id, not by digest: an id names the work, and its bytes may differ between
    # machines.
    references = {role: record.reference for role, record in inputs.items()}
    work = {"stage": stage, "format_version": format_version, "config": config.canonical()}
    spelled = canonical_json(work | {"inputs": references, "files": files})
    return hashlib.blake2b(spelled.encode()).hexdigest()[:12]


class Manifest(BaseModel):
    """Content of `manifest.json`, the last file to be written into an artifact."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    format_version: int
    kind: str
    stage: str
    """Name of the stage that made the artifact."""
    id: str
    config: dict[str, Any]
    """All settings that can change the result, in resolved form."""
    inputs: dict[str, InputRecord]
    files: dict[str, FileEntry]
    metrics: dict[str, Any]
    created: str
    seconds: float
    producer: dict[str, Any]
    command: list[str] = []
    """The words of the command that made the artifact, with ids for names; empty: it was made from
    Python.
    """
    outside_files: list[list[str]]
    """Role and digest of each file from outside the store, in order."""
    digest: str = ""
    """`manifest_digest` of the work and its result; manifests of later artifacts cover it."""
    checksum: str = ""
    """`manifest_checksum` of all other fields; empty: an older memlm wrote the manifest."""

    @property
    def record(self) -> InputRecord:
        """The record of the artifact in the manifests of artifacts made from it."""
        return InputRecord(kind=self.kind, id=self.id, digest=self.digest)

    def check_names(self) -> None:
        """Raises: ValueError for unknown kinds, malformed ids, and file names that lead out of the
        artifact.
        """
        for kind, id in (
            (self.kind, self.id),
            *((record.kind, record.id) for record in self.inputs.values()),
        ):
            if kind not in KINDS or not is_id(id):
                raise ValueError(f"{kind[:100]!r}/{id[:100]!r} is no kind and id")
        for name in self.files:
            if not stays_inside(name):
                raise ValueError(f"the file name {name[:100]!r} leads out of the artifact")

    def settings(self) -> StageConfig:
        """The settings of the work. A setting that the manifest lacks was added later, and has its
        default.

        Raises: ValidationError or UsageError for settings that this version does not read.
        """
        return STAGES.load(self.stage).Config.model_validate(self.config)

    def full_config(self) -> dict[str, Any]:
        """`config`, with defaults for settings that were added later. Raises: the errors of
        `settings`.
        """
        full: dict[str, Any] = json.loads(
            canonical_json(self.settings().stored())
        )  # in the order of the file
        return full

    @property
    def wrong_id(self) -> str | None:
        """Message if the id does not match the work in the manifest; None: it does. The settings
        must be legal.
        """
        id = identity(
            self.stage, self.format_version, self.settings(), self.inputs, self.outside_files
        )
        return None if id == self.id else f"what its manifest describes has the id {id}"

    def sealed(self) -> Self:
        """The manifest with its digest and its checksum filled in."""
        fields = self._fields()
        fields["digest"] = manifest_digest(fields)
        checksum = manifest_checksum(fields)
        return self.model_copy(update={"digest": fields["digest"], "checksum": checksum})

    def _fields(self) -> dict[str, Any]:
        try:
            return self.model_dump(mode="json")
        except (
            ValueError,
            RecursionError,
        ) as error:  # a rate nested a thousand levels deep: digests leave rates out
            raise ArtifactError(
                f"The manifest of {self.kind}/{self.id} is damaged ({error}); remove its draft with memlm artifacts "
                "gc --interrupted, and the same command begins anew."
            ) from None

    @property
    def bytes(self) -> int:
        """Size of all files except the manifest."""
        return sum(entry["bytes"] for entry in self.files.values())

    def dumps(self) -> str:
        """The text of the manifest's file."""
        return json.dumps(self._fields(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """Read and check the manifest of an artifact's folder.

        Raises: ArtifactError if it is missing, unreadable or changed, or has a format that this
        version does not read.
        """
        try:
            content = (folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            hint = f"; {_mend(folder)}" if folder.parent.name in KINDS else ""
            raise ArtifactError(
                f"{folder} has no {MANIFEST}: it is no artifact, or it was damaged{hint}."
            ) from None
        return parse_manifest(content, folder, _mend(folder))


def _finite(number: str) -> float:
    """Parse a number of a manifest. Raises: ValueError for nan, infinity, or a number too large for
    a float (1e400).
    """
    value = float(number)
    if not isfinite(value):
        raise ValueError(f"{number} is no finite number")
    return value


def parse_manifest(content: bytes, folder: Path | str, mend: str) -> Manifest:
    """Parse and check the bytes of a manifest, from a folder or a bucket.

    Args:
        content: bytes of the file.
        folder: place of the artifact, for messages.
        mend: advice in case of damage, for messages.
    Raises: ArtifactError, for the reasons of `Manifest.read`.
    """
    try:
        fields = json.loads(content, parse_float=_finite, parse_constant=_finite)
        # The version is checked first: another version may have other fields, and then the advice
        # is to upgrade.
        if isinstance(fields, Mapping):
            _check_format(fields, folder, mend)
        manifest = Manifest.model_validate(fields)
        manifest.check_names()
        intact = manifest.digest == manifest_digest(fields)
        if manifest.checksum:
            intact = intact and manifest.checksum == manifest_checksum(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ArtifactError(
            f"{folder}/{MANIFEST} is damaged ({where}: {first['msg']}); {mend}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{folder}/{MANIFEST} is damaged ({error}); {mend}.") from None
    if not intact:
        raise ArtifactError(
            f"{folder}/{MANIFEST} is damaged: it does not say what it said when it was written; {mend}."
        )
    return manifest


def _check_format(content: Mapping[str, Any], folder: Path | str, mend: str) -> None:
    kind = content.get("kind")
    version = content.get("format_version")
    producer = content.get("producer")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UncheckedArtifact(
            f"{folder} is of a kind that this memlm does not know: {shortened(repr(kind))}. If its stage is your own, "
            f"set {OUTSIDE} to the module that registers it."
        )
    newest = KINDS[kind].format_version
    if not isinstance(version, int) or version > newest:
        maker = producer.get("memlm", "unknown") if isinstance(producer, Mapping) else "unknown"
        raise UncheckedArtifact(
            f"{folder} has format {shortened(repr(version))} of {kind!r}, written by memlm {shortened(str(maker))}; "
            f"this memlm reads up to {newest}. Upgrade memlm."
        )
    if version < newest:
        raise UncheckedArtifact(
            f"{folder} has format {version} of {kind!r}, older than {newest}, which this memlm reads; {mend}."
        )


def _mend(folder: Path) -> str:
    command = KINDS[folder.parent.name].command if folder.parent.name in KINDS else "its command"
    reference = f"{folder.parent.name}/{folder.name}"
    return f"remove it with memlm artifacts rm --force {reference} and make it again with memlm {command}"


def wrong_manifest(manifest: Manifest) -> str | None:
    """Message about a setting or metric of a manifest that its stage does not write; None: there is
    none.

    Raises: UncheckedArtifact for a part or setting that is not known here, and for other defaults,
        since that is not damage.
    """
    try:
        stage = STAGES.load(manifest.stage)
        if stage.kind != manifest.kind:
            return f"stage {manifest.stage} makes {stage.kind}, not {manifest.kind}"
        place = "config"
        stored = manifest.settings().stored()
        place = "metrics"
        stage.schema.metrics.model_validate(manifest.metrics)
    except ValidationError as error:
        # An unknown setting is reported first: another version may also have changed which values
        # are legal.
        problems = error.errors(include_url=False)
        first = next(
            (problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0]
        )
        name = ".".join(map(str, first["loc"]))[:100]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, UnknownPart):
            raise _unknown_part(manifest, str(cause)) from None
        # Settings of an external part cannot be checked without its module, so this is not damage.
        missing = missing_modules(manifest.outside_files)
        if place == "config" and missing:
            raise _unknown_part(
                manifest, f"No part of {', '.join(missing)} is registered"
            ) from None
        if place == "config" and first["type"] == "extra_forbidden":
            maker = shortened(str(manifest.producer.get("memlm", "unknown")))
            raise UncheckedArtifact(
                f"{manifest.kind}/{manifest.id} was made with the setting {name}, which this memlm does not know: "
                f"version {maker} made it, older or newer, or with parts of its own. Read it with that, or make it "
                "again."
            ) from None
        return f"manifest.json has {place}.{name}: {first['msg']}"
    except UnknownPart as error:
        raise _unknown_part(manifest, str(error)) from None
    except UsageError as error:
        return f"manifest.json has what this memlm does not know: {error}"
    other = _difference(manifest.config, stored)
    if other is not None:
        return f"manifest.json has config.{other[:100]}: no stage of this version writes it so"
    # Ids leave out defaults, so the id stays right if a setting was added later, and not if one was
    # removed, or has another default now. The digest is intact: a version wrote it so.
    if stored != manifest.config:
        require_same_defaults(manifest)
    return None


def require_same_defaults(manifest: Manifest) -> None:
    """Check that the id still names the work in the manifest.

    Raises: UncheckedArtifact if the version that made it had other settings or defaults.
    """
    wrong = manifest.wrong_id
    if wrong is not None:
        maker = shortened(str(manifest.producer.get("memlm", "unknown")))
        reference = f"{manifest.kind}/{manifest.id}"
        raise UncheckedArtifact(
            f"{reference} was made by another version (memlm {maker}), with other defaults: {wrong} here. "
            f"Remove it with memlm artifacts rm --force {reference} and make it again with memlm {manifest.stage}."
        )


class UncheckedArtifact(ArtifactError):
    """An artifact that this memlm cannot read, though its bytes may be intact.

    It has another format, or other settings or defaults, or a part that is missing here.
    """


def _unknown_part(manifest: Manifest, reason: str) -> UncheckedArtifact:
    return UncheckedArtifact(
        f"{manifest.kind}/{manifest.id} was made with a part that is not known here. {reason.rstrip('.')}. "
        f"If the part is your own, set {OUTSIDE} to the module that registers it. Else this memlm may be too old."
    )


def _difference(config: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """The dotted name of the first setting that differs from what its stage stores; None: there is
    none.
    """
    for name, value in config.items():
        if name not in stored:
            return name
        if isinstance(value, Mapping) and isinstance(stored[name], Mapping):
            below = _difference(value, stored[name])
            if below is not None:
                return f"{name}.{below}"
        elif value != stored[name]:
            return name
    return None
