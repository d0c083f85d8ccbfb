"""Fitting output to a terminal, and parsing the command line. terminal_spec.rb in spec/tracing and
spec/commands has the same.
"""

import io
from argparse import Namespace

import pytest
from probescope.command import cells
from probescope.command.definitions import ALL, LINES, LISTS, Column
from probescope.command.display import LEAST_WIDTH, NARROWEST
from probescope.command.errors import Usage
from probescope.command.main import expanded, main, parser
from probescope.command.terminal import Terminal, heat, narrowed, shortened, width
from probescope.command.trace import program_name, sort_column, to_file
from tracing import python


def test_paths_are_cut_in_their_middle_and_keep_the_files_name_and_the_line():
    assert shortened("app/models/concerns/order.py:12", 20) == "app/mod…/order.py:12"
    assert shortened("app/models/concerns/order.py:12", 31) == "app/models/concerns/order.py:12"
    assert len(shortened("app/a_very_long_name_of_a_file.py:12", 16)) == 16


def test_other_names_are_cut_in_their_middle_also_those_whose_characters_are_wide():
    assert shortened("Orders.Checkout.charge_the_customer", 17) == "Orders.C…customer"
    assert 15 <= width(shortened("注文" * 20, 17)) <= 17


def test_the_widest_columns_become_narrower_first_and_figures_never():
    may = [False, True, True]
    assert narrowed([8, 40, 90], may, 100) == [8, 40, 52]
    assert narrowed([8, 40, 90], may, 60) == [8, 26, 26]
    assert narrowed([8, 40, 90], may, 20) == [8, LEAST_WIDTH, LEAST_WIDTH]
    assert narrowed([8, 4], [False, False], 5) == [8, 4]


class Screen(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal


def test_it_is_as_wide_as_columns_says_and_not_known_where_there_is_none():
    assert Terminal(Screen(True), env={"COLUMNS": "132"}).width == 132
    assert Terminal(Screen(True), env={"COLUMNS": "7"}).width == NARROWEST
    assert Terminal(Screen(False), env={"COLUMNS": "132"}).width is None


@pytest.mark.parametrize(
    ("color", "env", "is_terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("never", {}, True, False),
        ("auto", {}, False, False),
        ("always", {"NO_COLOR": "1"}, False, True),
    ],
)
def test_it_has_colours_unless_something_says_otherwise(color, env, is_terminal, colored):
    assert (Terminal(Screen(is_terminal), color, env).paint("50 %", "hot") != "50 %") == colored
    assert [heat(part) for part in (None, 0.01, 0.05, 0.2)] == [None, None, "warm", "hot"]


def test_rows_are_sorted_by_any_column_and_what_is_not_known_comes_last():
    rows = [{"calls": 2, "name": "b"}, {"calls": None, "name": "a"}, {"calls": 9, "name": "c"}]
    by_count = cells.ordered(rows, Column("CALLS", "count", "calls", False))
    assert [row["name"] for row in by_count] == ["c", "b", "a"]
    by_name = cells.ordered(rows, Column("NAME", "text", "name", False))
    assert [row["name"] for row in by_name] == ["a", "b", "c"]


def test_every_kind_of_column_has_cells():
    columns = [one.columns for one in (*ALL.values(), *LINES.values())]
    columns += [found for lists in LISTS.values() for found in lists.values()]
    assert {column.kind for found in columns for column in found} <= set(cells.KINDS)


def options(*words):
    return parser().parse_args(expanded(["trace", *words]))


def test_options_choose_the_program():
    names = {
        ("slow",): "slow",
        ("slow", "--threshold", "25ms"): "slow10ms",
        ("slow", "--threshold", "1.5s", "--by-request"): "slow100ms_by_request",
        ("hot",): "hot_own",
        ("lines", "--by", "own"): "lines_own",
        ("hot", "--by", "total"): "hot",
        ("lines", "--by", "self"): "lines",
        ("hot", "--by-request"): "hot_by_request",
        ("hot_by_request", "--by-request"): "hot_by_request",
    }
    for words, name in names.items():
        assert program_name(options(*words, "-p", "1")) == name, words
    for words in (("slow", "--threshold", "1us"), ("hot", "--threshold", "1s")):
        with pytest.raises(Usage):
            program_name(options(*words, "-p", "1"))
    for words in (("hot", "--own", "a/*", "--by", "self"), ("hot", "--by", "own", "--by-request")):
        with pytest.raises(Usage):
            program_name(options(*words, "-p", "1"))
    assert options("hot", "-p", "1", "--own", "a/*, b/*", "--own", "!c").own == ["a/*", "b/*", "!c"]
    with pytest.raises(Usage, match="has no column 'SLEF'"):
        sort_column("hot", "SLEF")
    assert sort_column("hot_by_request", "self").key == "self_share"


def test_a_command_of_the_gem_is_one_here_and_takes_options_from_the_environment(monkeypatch):
    monkeypatch.setenv("PROBESCOPE_OPTS", "-d 30 --top '5'")
    found = parser().parse_args(expanded(["hot", "-p", "7", "--top", "9"]))
    assert (found.command, found.name, found.seconds, found.top) == ("trace", "hot", 30.0, 9)
    monkeypatch.setenv("PROBESCOPE_OPTS", "'")
    with pytest.raises(Usage, match="PROBESCOPE_OPTS is no list of options"):
        expanded(["hot", "-p", "7"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("slow -p 1 1ms", "unexpected argument '1ms'; a time is given with --threshold"),
        ("hot -p 1 more", "unexpected argument 'more'; usage: probescope trace NAME -p PID [options]"),
        ("attach 1 2", "unexpected argument '2'; usage: probescope attach PID"),
        ("script hot 1ms", "unexpected argument '1ms'; usage: probescope script [NAME]"),
        ("doctor --what", "unrecognized arguments: --what"),
        ("--what", "unrecognized arguments: --what"),
    ],
)
def test_an_argument_that_the_command_does_not_take_is_named(words, message, capsys):
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"probescope: {message}\n  try: probescope ")


def test_a_command_that_is_not_there_may_have_been_meant_for_another():
    ran = python("-m", "probescope", "exeptions", "-p", "1")
    assert ran.returncode == 2
    assert "no command 'exeptions'; did you mean exceptions" in ran.stderr


def test_an_answer_goes_into_a_file_which_stays_as_it_was_where_there_is_none(tmp_path):
    path = tmp_path / "answer.json"
    path.write_text("before")
    with pytest.raises(Exception, match="to sort by"):
        to_file(
            Namespace(
                output=str(path),
                name="hot",
                pid=0,
                json=True,
                threshold=None,
                by_request=False,
                by=None,
                own=[],
                files=False,
                min=0,
                sort="x",
            )
        )
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["answer.json"]
