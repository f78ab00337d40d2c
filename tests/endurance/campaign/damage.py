"""Damaged bytes in finished artifacts, manifests, names and stamps: refused, or the very same
result.
"""

from pathlib import Path

from tests.endurance.campaign.case import REFUSED, Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import ELSEWHERE, damaged_bytes, damaged_json_text
from tests.endurance.campaign.world import STAGES

STAMPS = ".stamps"


def damaged_file(case: Case) -> Verdict:
    """A listed file of something that a stage reads, changed, or gone, or replaced by a folder or a
    link.
    """
    stage = _consumer(case)
    case.before(stage)
    files = [path for path in _files(case.store) if path.name != "manifest.json"]
    path = case.random.choice(files)
    _damage_file(case, path)
    verify = case.memlm("artifacts", "verify")
    if verify.code != 4:
        return failed(
            f"artifacts verify ended with {verify.code} although {path.relative_to(case.store)} is damaged"
        )
    return _then_use(case, stage)


def damaged_manifest(case: Case) -> Verdict:
    """A manifest with another number, name or shape in it, or with damaged bytes."""
    stage = _consumer(case)
    case.before(stage)
    path = case.random.choice(sorted(case.store.glob("*/*/manifest.json")))
    if case.random.random() < 0.75:
        within = case.random.choice([("config",), ("metrics",), ("inputs", "files"), ()])
        text, how = damaged_json_text(case.random, path.read_text(), within)
        path.write_text(text)
    else:
        content, how = damaged_bytes(case.random, path.read_bytes())
        path.write_bytes(content)
    case.note(f"{path.relative_to(case.store)}: {how}; then {stage}")
    for command in ("verify", "list", "graph", "gc"):
        verdict = judge(case.memlm("artifacts", command))
        if verdict.judgement == "failed":
            return failed(f"artifacts {command}: {verdict.why}")
    return _then_use(case, stage)


def damaged_name(case: Case) -> Verdict:
    """A name file with other content, and stamps that say other things."""
    case.world.copy(case.store)
    made = {name: made.reference for name, made in case.world.made.items()}
    stage = case.random.choice(["datastore", "index"])
    source = {"datastore": made["model"], "index": made["datastore"]}[stage]
    kind, id = source.split("/")
    name = case.store / "names" / kind / "pet"
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text(f"{id}\n")
    victims = [name, *_files(case.store / STAMPS)]
    victim = case.random.choice([name, case.random.choice(victims)])
    content, how = damaged_bytes(case.random, victim.read_bytes())
    if victim == name and case.random.random() < 0.5:
        content = case.random.choice(
            [*ELSEWHERE, "", ".", "..", f"../{source}", made["tokens"], f"{id}x"]
        ).encode()
        how = f"now {content.decode()!r}"
    elif victim != name and case.random.random() < 0.7:
        text, how = damaged_json_text(case.random, victim.read_text())
        content = text.encode()
    victim.write_bytes(content)
    case.note(f"{victim.relative_to(case.store)}: {how}")
    for arguments in (
        ["list"],
        ["verify"],
        ["graph"],
        ["show", f"{kind}/pet"],
        ["gc", "--unnamed", "--dry-run"],
    ):
        verdict = judge(case.memlm("artifacts", *arguments))
        if verdict.judgement == "failed":
            return failed(f"artifacts {' '.join(arguments)}: {verdict.why}")
    command = [f"{kind}/pet" if part == source else part for part in case.world.arguments(stage)]
    ended = case.memlm(*command)
    return judge(ended, lambda: "" if ended.reference == made[stage] else f"made {ended.reference}")


def _consumer(case: Case) -> str:
    return case.random.choice([name for name in STAGES if name not in ("tokens", "bpe")])


def _damage_file(case: Case, path: Path) -> None:
    relative = path.relative_to(case.store)
    match case.random.choice(["bytes"] * 6 + ["gone", "folder", "link", "twin"]):
        case "bytes":
            content, how = damaged_bytes(case.random, path.read_bytes())
            path.write_bytes(content)
        case "gone":
            how = "removed"
            path.unlink()
        case "folder":
            how = "now a folder"
            path.unlink()
            path.mkdir()
        case "link":
            how = "now a link to a stranger"
            path.unlink()
            path.symlink_to(case.folder / "strangers" / "kept.txt")
        case _:
            how = "content of another file"
            others = [
                p.read_bytes() for p in _files(case.store) if p.read_bytes() != path.read_bytes()
            ]
            path.write_bytes(case.random.choice(others))
    case.note(f"{relative}: {how}")


def _then_use(case: Case, stage: str) -> Verdict:
    """The command that reads what is damaged: refused with 4, or right."""
    ended = case.stage(stage)
    verdict = judge(ended, lambda: case.wrong(stage))
    if verdict.judgement == "failed":
        return failed(f"{stage}: {verdict.why}")
    return (
        verdict
        if verdict != REFUSED or ended.code == 4
        else failed(f"{stage}: code {ended.code}: {ended.err[-200:]}")
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


ATTACKS = {
    "damaged-file": damaged_file,
    "damaged-manifest": damaged_manifest,
    "damaged-name": damaged_name,
}
