"""`artifacts rm` and `gc` with names, folders and links that lead elsewhere: strangers and other
artifacts survive.
"""

import shutil
from pathlib import Path

from tests.endurance.campaign.case import Case, Verdict, failed, judge, snapshot
from tests.endurance.campaign.mutate import ELSEWHERE


def remove_elsewhere(case: Case) -> Verdict:
    """A link or a name is planted, then something is removed; only what was named may go."""
    case.world.copy(case.store)
    kind, id = case.random.choice(list(case.world.made.values())).reference.split("/")
    planted = case.random.choice(list(PLANTS))
    reference = PLANTS[planted](case, kind, id)
    commands = [
        ["rm", reference],
        ["rm", "--force", reference],
        ["rm", "--force", reference, reference],
        ["gc"],
        ["gc", "--unnamed"],
        ["gc", "--interrupted"],
        ["gc", "--dry-run"],
    ]
    command = case.random.choice(commands)
    before, strangers = _artifacts(case.store), snapshot(case.folder / "strangers")
    case.note(f"{planted} ({kind}/{id}), artifacts {' '.join(command)}")
    ended = case.memlm("artifacts", *command)
    gone = before.keys() - _artifacts(case.store).keys()
    allowed = (
        {f"{kind}/{id}"}
        if command[0] == "rm"
        else set(before)
        if command[-1] == "--unnamed"
        else set()
    )
    if gone - allowed:
        return failed(f"gone: {', '.join(sorted(gone - allowed))}")
    found = snapshot(case.folder / "strangers")
    lost = [Path(path).name for path, content in strangers.items() if found.get(path) != content]
    if lost:
        return failed(f"strangers lost or changed: {', '.join(lost)}")
    again = case.memlm("artifacts", "list")
    verdict = judge(again)
    return (
        failed(f"artifacts list: {verdict.why}") if verdict.judgement == "failed" else judge(ended)
    )


def _artifacts(store: Path) -> dict[str, int]:
    """Every artifact of the store itself, by reference, with the number of its files."""
    found = [
        path for path in store.glob("*/*/manifest.json") if not path.parent.name.startswith(".")
    ]
    return {f"{p.parent.parent.name}/{p.parent.name}": len(snapshot(p.parent)) for p in found}


def _link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(to)


def _name_elsewhere(case: Case, kind: str, id: str) -> str:
    name = case.store / "names" / kind / "pet"
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text(
        case.random.choice([*ELSEWHERE, "", "..", ".", str(case.folder / "strangers"), f"{id}/.."])
    )
    return f"{kind}/pet"


def _name_linked(case: Case, kind: str, id: str) -> str:
    target = case.folder / "strangers" / "kept.txt"
    _link(case.store / "names" / kind / "pet", target)
    return f"{kind}/pet"


def _names_folder_linked(case: Case, kind: str, id: str) -> str:
    (case.folder / "strangers" / "pet").write_text(f"{id}\n")
    _link(case.store / "names" / kind, case.folder / "strangers")
    return f"{kind}/pet"


def _artifact_linked(case: Case, kind: str, id: str) -> str:
    _link(case.store / kind / id, case.folder / "strangers")
    return f"{kind}/{id}"


def _kind_linked(case: Case, kind: str, id: str) -> str:
    moved = case.folder / "strangers" / "all"
    shutil.move(case.store / kind, moved)
    (case.store / kind).symlink_to(moved)
    return f"{kind}/{id}"


def _draft_linked(case: Case, kind: str, id: str) -> str:
    ending = case.random.choice(["partial", "removed"])
    _link(case.store / kind / f".{'0' * 12}-{ending}", case.folder / "strangers")
    return f"{kind}/{'0' * 12}"


def _link_in_artifact(case: Case, kind: str, id: str) -> str:
    (case.store / kind / id / "elsewhere").symlink_to(case.folder / "strangers")
    return f"{kind}/{id}"


def _link_in_draft(case: Case, kind: str, id: str) -> str:
    draft = case.store / kind / f".{'0' * 12}-partial"
    draft.mkdir()
    (draft / "scratch").symlink_to(case.folder / "strangers")
    return f"{kind}/{'0' * 12}"


def _lock_linked(case: Case, kind: str, id: str) -> str:
    _link(case.store / kind / f".{id}.lock", case.folder / "strangers" / "kept.txt")
    return f"{kind}/{id}"


def _stamps_linked(case: Case, kind: str, id: str) -> str:
    (case.folder / "strangers" / f"{id}.json").write_text("{}")
    _link(case.store / ".stamps" / kind, case.folder / "strangers")
    return f"{kind}/{id}"


def _a_path(case: Case, kind: str, id: str) -> str:
    inside = f"store/{kind}/{id}"
    return case.random.choice(
        ["strangers", "./strangers", str(case.folder / "strangers"), inside, ".", "..", ""]
    )


def _odd_spelling(case: Case, kind: str, id: str) -> str:
    return case.random.choice(
        [
            f"{kind}/../../strangers",
            f"{kind}/..",
            f"{kind}/.",
            f"{kind}/",
            f"names/{kind}",
            f"../strangers/{id}",
            kind,
        ]
    )


PLANTS = {
    "a name with a path": _name_elsewhere,
    "a name that is a link": _name_linked,
    "names behind a link": _names_folder_linked,
    "an artifact that is a link": _artifact_linked,
    "a kind that is a link": _kind_linked,
    "a draft that is a link": _draft_linked,
    "a link in an artifact": _link_in_artifact,
    "a link in a draft": _link_in_draft,
    "a lock that is a link": _lock_linked,
    "stamps behind a link": _stamps_linked,
    "a path": _a_path,
    "an odd spelling": _odd_spelling,
}
ATTACKS = {"remove-elsewhere": remove_elsewhere}
