"""The archive of model.pt2, all but its weights and metadata, against that of a fresh export."""

from export.proof.checks.files import Files, read_archive
from export.proof.checks.fresh_export import fresh_export, judge
from export.pt2 import PT2_FILE
from export.pt2_guard import PT2_DOCUMENTS, PT2_FORMAT, read_documents


def check_pt2_graph(files: Files) -> list[str]:
    """Compare what is no number in the archive, to the letter: its names and its order depend on nothing else."""
    fresh = fresh_export(files)
    got_records, wanted_records = dict(files.pt2_archive), dict(read_archive(PT2_FILE, fresh.pt2))
    problems = [
        f"{PT2_FILE}, {name} is not that of a fresh export"
        for name in PT2_FORMAT
        if got_records[name] != wanted_records[name]
    ]
    for name, got, wanted in zip(
        PT2_DOCUMENTS, read_documents(files.read(PT2_FILE)), read_documents(fresh.pt2), strict=True
    ):
        where = _first_difference(got, wanted)
        if where is not None:
            problems.append(f"{PT2_FILE}, {name} differs from that of a fresh export at {where}")
    return judge(files, PT2_FILE, problems)


def _first_difference(got: object, wanted: object, path: str = "") -> str | None:
    """Return the place of the first difference of two JSON documents; None if there is none."""
    if isinstance(got, dict) and isinstance(wanted, dict) and got.keys() == wanted.keys():
        parts = [(f"{path}.{key}".removeprefix("."), got[key], wanted[key]) for key in wanted]
    elif isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        parts = [(f"{path}[{place}]", one, other) for place, (one, other) in enumerate(zip(got, wanted, strict=True))]
    else:
        return None if type(got) is type(wanted) and got == wanted else path or "its root"
    places = (_first_difference(one, other, where) for where, one, other in parts)
    return next((place for place in places if place is not None), None)
