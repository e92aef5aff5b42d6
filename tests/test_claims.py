"""The ledger of claims and the tagged cells of the notebooks say the same, both ways."""

import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
VERDICT = re.compile(r"holds|holds if .+|does not hold")
LINK = re.compile(r"\[(\w+): [^\]]+\]\(<\w+\.ipynb#([^>]+)>\)")

# The claims of documents A, B and C that have a part in chapters 00 to 11.
DUE = {
    "A": "1-9 11-29 31-44 46-49 51-58",
    "B": "1-38 41 44 47-49",
    "C": "1-11 14-31 33-43 45-50 53-62 64-85 104-109 111-112 114-122",
}


def due():
    for document, ranges in DUE.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            width = 3 if document == "C" else 2
            for number in range(int(first), int(last or first) + 1):
                yield f"{document}-{number:0{width}d}"


def ledger():
    """Each row of claims.md: id -> (verdict, [(notebook, anchor of the heading)])."""
    rows = {}
    for line in (FOLDER / "claims.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"[ABC]-\d+", cells[0]):
            assert cells[0] not in rows, f"{cells[0]} has two rows"
            assert len(cells) == 5 and all(cells), cells[0]
            rows[cells[0]] = (cells[3], LINK.findall(cells[4]))
    return rows


def sections(path):
    """The ## sections of a notebook: anchor -> (its text, the claims that its cells carry)."""
    anchor, texts, claims = "", {"": ""}, {"": set()}
    for cell in nbformat.read(path, 4).cells:
        tags = cell.metadata.get("tags", [])
        found = {tag.removeprefix("claim-") for tag in tags if tag.startswith("claim-")}
        for number, line in enumerate(cell.source.splitlines()):
            if cell.cell_type == "markdown" and line.startswith("## "):
                anchor = line[3:].strip().replace(" ", "-")
                texts[anchor], claims[anchor] = "", set()
            texts[anchor] += line + "\n"
            if number == 0:  # a cell may end with the heading of the next section
                claims[anchor] |= found
    return {anchor: (texts[anchor], claims[anchor]) for anchor in texts}


LEDGER = ledger()
SECTIONS = {path.stem: sections(path) for path in sorted(FOLDER.glob("*.ipynb"))}


def test_every_claim_of_the_chapters_so_far_is_in_the_ledger():
    assert len(set(due())) == 192
    assert set(due()) <= set(LEDGER)


def test_ledger_and_tags_are_equal_both_ways():
    tagged = {
        (claim, stem)
        for stem, parts in SECTIONS.items()
        for _, claims in parts.values()
        for claim in claims
    }
    listed = {(claim, stem) for claim, (_, links) in LEDGER.items() for stem, _ in links}
    assert tagged == listed


@pytest.mark.parametrize("claim", LEDGER)
def test_each_row_has_a_verdict_and_leads_to_the_section_that_shows_it(claim):
    verdict, links = LEDGER[claim]
    assert VERDICT.fullmatch(verdict)
    assert links
    for stem, anchor in links:
        text, claims = SECTIONS[stem][anchor]
        assert claim in claims
        if verdict != "holds":
            assert re.search(r"\*\*The documents?\b", text), f"no box in {stem}: {anchor}"
