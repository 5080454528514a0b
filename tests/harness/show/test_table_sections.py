"""Rows of other machines and of cells that are gone stand in sections of their own."""

from dataclasses import replace

from harness.show import tables
from tests.harness.show.test_tables import CELLS, MACHINE, OTHER, build, lines_of, planned, row, rows, text


def test_rows_of_other_machines_are_shown_apart_and_finish_no_cell():
    ours = [replace(one, started="2026-01-02") for one in rows()]
    theirs = row(CELLS[0], 50.0, machine=OTHER, started="2026-01-01")
    table = build([theirs, *ours])
    assert [len(lines) for _, lines in tables.sections(table.lead)] == [3, 1]
    assert "Another CPU" in list(tables.sections(table.lead))[1][0] and lines_of(table, 1)[0][2].startswith("50.0")
    newer = build([*ours, replace(theirs, started="2026-01-03")], cells=planned(CELLS[:1]))
    assert lines_of(newer)[0][2].startswith("50.0") and len(lines_of(newer, 1)) == 3  # the newest measurement leads
    nothing = build([theirs], lead="runs", cells=planned())
    assert [line[2] for line in lines_of(nothing)] == ["not run"] * 4


def test_on_a_terminal_a_heading_is_whole_and_its_lines_stand_under_the_heads():
    theirs = row(CELLS[0], 50.0, machine=OTHER, started="2026-01-01")
    table = build([theirs, *(replace(one, started="2026-01-02") for one in rows())])
    lines = text(table).splitlines()
    (heads,) = (place for place, line in enumerate(lines) if line.startswith("row "))
    heading = lines.index(list(tables.sections(table.lead))[1][0])
    (apart,) = (line for line in lines[heading:] if line.startswith("LM "))
    assert lines[heads + 2].startswith("LM ") and heads < heading
    assert apart.index("50.0") == lines[heads + 2].index("92.0")


def test_a_table_of_earlier_cells_alone_has_its_heads_first():
    lines = text(build(cells=planned([("LM", "FoSS=9")]))).splitlines()
    (heads,) = (place for place, line in enumerate(lines) if line.startswith("row "))
    assert heads < lines.index(tables.EARLIER)


def test_machines_that_differ_in_what_their_description_leaves_out_have_a_section_each():
    def on(system, day):
        return row(CELLS[0], 50.0, machine={**MACHINE, "os": system}, started=f"2026-01-0{day}")

    table = build([on("one", 1), on("another", 2), on("the newest", 3)])
    assert [len(lines) for _, lines in tables.sections(table.lead)] == [1, 1, 1]


def test_rows_of_cells_that_the_recipe_no_longer_has_are_shown_apart():
    table = build(cells=planned(CELLS[:2]))
    (_, today), (heading, earlier) = tables.sections(table.lead)
    assert (len(today), heading, len(earlier)) == (2, tables.EARLIER, 1)
