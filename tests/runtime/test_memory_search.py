"""Memory search: words, identifiers, weights, order and lines; a query is data only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried
from memory_projects import ask, matching_paths, no_check, repository, update

from llc.runtime.memory import recall, search
from llc.runtime.memory.index import Index, index_path
from llc.runtime.memory.outline import outline
from llc.runtime.memory.recall import BadRequest, plain_text, read_request
from llc.runtime.memory.terms import stem, term_text, terms

FILES: dict[str, str | bytes] = {
    "src/config.py": '"""Settings."""\n\nimport os\n\ndef parseConfig(text):\n    return text\n',
    "src/http_server.py": "class HTTPServer:\n    def handle_request(self):\n        load_settings()\n",
    "src/journal.go": "// Keeps a log of events.\npackage journal\n\nfunc (j *Journal) AppendEvent() {}\n",
    "docs/guide.md": "# User guide\n\nHow to restore a snapshot.\n\n## Restoring\n\nCall restore.\n",
    "web/app.ts": "export const renderPage = () => 1;\nexport interface PageProps { title: string }\n",
    "data/menu.yaml": "name: lunch menu\ndescription: What the kitchen serves\nitems: [soup]\n",
    "文档.txt": "日本語の設定ファイル\n",
    "café.txt": "Crème brûlée is naïve\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("search") / "project", FILES)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("parse config", "src/config.py"),
        ("parse_config", "src/config.py"),
        ("ParseConfig", "src/config.py"),
        ("parseconfig", "src/config.py"),
        ("parsing configs", "src/config.py"),
        ("HTTP server", "src/http_server.py"),
        ("httpserver", "src/http_server.py"),
        ("handleRequest", "src/http_server.py"),
        ("append-event", "src/journal.go"),
        ("how do I restore snapshots?", "docs/guide.md"),
        ("設定", "文档.txt"),
        ("creme BRULEE", "café.txt"),
        ("renderPage()", "web/app.ts"),
    ],
)
def test_a_file_is_found_by_words_of_its_content(project: Path, query: str, path: str) -> None:
    """Identifiers match in full and by their parts, words in other forms, in any script."""
    assert matching_paths(project, query)[:1] == [path]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("settings", "src/config.py"),
        ("user guide", "docs/guide.md"),
        ("lunch", "data/menu.yaml"),
        ("page props", "web/app.ts"),
        ("keeps log", "src/journal.go"),
        ("AppendEvent", "src/journal.go"),
        ("yaml", "data/menu.yaml"),
        ("http_server.py", "src/http_server.py"),
    ],
)
def test_a_file_is_found_by_its_metadata(project: Path, query: str, path: str) -> None:
    """Path, name, extension, leading comment, headings, titles and defined names."""
    assert matching_paths(project, query, matching_strategy="metadata")[:1] == [path]


def test_metadata_does_not_include_the_body(project: Path) -> None:
    assert matching_paths(project, "soup") == ["data/menu.yaml"]
    assert matching_paths(project, "soup", matching_strategy="metadata") == []


def test_the_best_line_is_shown(project: Path) -> None:
    """The snippet is the first of the lines with the most terms of the query."""
    (match, *_) = ask(project, "parse config").matches
    assert (match.path, match.line, match.snippet) == ("src/config.py", 5, "def parseConfig(text):")


def test_a_match_by_path_alone_has_no_line(project: Path) -> None:
    (match,) = ask(project, "web").matches
    assert (match.path, match.line, match.snippet) == ("web/app.ts", None, None)


def test_a_long_line_is_shortened_around_the_matching_word(tmp_path: Path) -> None:
    folder = repository(tmp_path / "p", {"a.txt": "padding " * 1000 + "treasure " + "padding " * 1000})
    (match,) = ask(folder, "treasure").matches
    assert match.snippet is not None
    assert "treasure" in match.snippet
    assert len(match.snippet) <= search.MAX_SNIPPET
    assert match.snippet.startswith("…")
    assert match.snippet.endswith("…")


def test_equal_scores_are_in_the_order_of_paths(tmp_path: Path) -> None:
    """The order of indexing does not matter."""
    names = [f"{letter}.txt" for letter in "qwertyuiopasdfgh"]
    folder = repository(tmp_path / "p", {})
    for name in random.Random(4).sample(names, len(names)):
        (folder / name).write_text("treasure")
        update(folder)
    assert matching_paths(folder, "treasure", limit=50) == sorted(names)


def test_history_and_inputs_count_less_than_the_query(tmp_path: Path) -> None:
    """They order the matches of the query, and find files if there is no query."""
    files: dict[str, str | bytes] = {
        "alpha.txt": "engine\n",
        "beta.txt": "engine\n",
        "gamma.txt": "brake\n",
        "x.txt": "other\n",
        "y.txt": "y z\n",
    }
    folder = repository(tmp_path / "p", files)
    assert matching_paths(folder, "engine") == ["alpha.txt", "beta.txt"]
    assert matching_paths(folder, "engine", history="what about beta?") == ["beta.txt", "alpha.txt"]
    assert matching_paths(folder, "engine", inputs={"topic": "beta"})[0] == "beta.txt"
    assert matching_paths(folder, "engine", history="brake " * 50 + "lorem ipsum " * 50)[0] == "alpha.txt"
    assert matching_paths(folder, history="brake") == ["gamma.txt"]
    assert matching_paths(folder, inputs={"a": ["brake", {"b": 3}], "c": None}) == ["gamma.txt"]
    assert matching_paths(folder, inputs={"a": "brake", "b": "engine"}, context_relevance={"b": False}) == [
        "gamma.txt"
    ]
    pairs = [["a", "brake"], ["b", "engine"]]
    assert matching_paths(folder, inputs=pairs, context_relevance={"b": False}) == ["gamma.txt"]
    assert matching_paths(folder, inputs=pairs, context_relevance={"a": False}) == matching_paths(
        folder, "engine"
    )
    assert matching_paths(folder, inputs=["brake", ["b"]], context_relevance={"a": False}) == ["gamma.txt"]
    assert matching_paths(folder, "engine", fresh_context="disabled") == []


def test_the_number_of_matches_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `limit` (default 10) and by the size of an answer, with a notice."""
    folder = repository(tmp_path / "p", {f"{number:02}.txt": "treasure" for number in range(30)})
    assert len(matching_paths(folder, "treasure")) == 10
    assert len(matching_paths(folder, "treasure", limit=25)) == 25
    monkeypatch.setattr(recall, "MAX_ANSWER", 100)
    answer = ask(folder, "treasure", limit=25)
    assert len(answer.matches) == 7
    assert answer.notices == ["18 more were found than an answer holds"]


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": "5"},
        {"limit": True},
        {"matching_strategy": "contents"},
        {"fresh_context": "no"},
        {"context_relevance": ["a"]},
        {"model": 3},
        {"matching_strategy": ["content"]},
    ],
)
def test_a_field_of_a_wrong_type_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match=f"`{next(iter(fields))}` is "):
        read_request({"query": "x", **fields})


# --- hostile queries --------------------------------------------------------------------------

HOSTILE = [
    "",
    " ",
    "\0",
    '"',
    "'",
    '"" OR ""',
    "NEAR(a b)",
    "a NOT b",
    "AND",
    "OR OR OR",
    "path : x",
    "{path} : x",
    "-x",
    "^x",
    "x*",
    "(((",
    "\\",
    "%_",
    "'; DROP TABLE files; --",
    "\ud800",
    "a\ud800b",
    "😀",
    "x" * 1_000_000,
    "(" * 100_000,
    "a b " * 250_000,
    " ".join(f"w{number}" for number in range(150_000)),
    "\n" * 1000,
    "ſtraße İ ﬁ ǅ",
    "a\u0301\u0302",
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_any_query_is_accepted(project: Path, query: str) -> None:
    """Operators, quotes, a megabyte of text and empty queries."""
    for strategy in search.STRATEGIES:
        assert isinstance(matching_paths(project, query, matching_strategy=strategy, history=query), list)


@settings(max_examples=tried(66))
@given(st.text(max_size=200) | st.text(alphabet="\"'()*:^-+ab OR{}\\\n\0", max_size=80))
def test_any_text_can_be_searched(project: Path, text: str) -> None:
    with Index(str(project), no_check, index_path(str(project))) as index:
        search.find(index, str(project), [search.Source(text, 1.0), search.Source(text, 0.5)], "content", 5)


@settings(max_examples=tried(66))
@given(st.text(max_size=100), st.text(max_size=100))
def test_terms_are_letters_and_digits_only(first: str, second: str) -> None:
    """Terms contain no operator of SQLite, and the terms of two lines are those of each line."""
    of_first = terms(first)
    assert all(term.isalnum() and not any(map(str.isspace, term)) for term in of_first)
    assert terms(f"{first}\n{second}") == [*of_first, *terms(second)]
    assert term_text(first).split(" ") == (of_first or [""])


@settings(max_examples=tried(40))
@given(st.from_regex(r"[a-z]{1,12}", fullmatch=True))
def test_a_file_is_found_by_each_of_its_words(tmp_path_factory: pytest.TempPathFactory, word: str) -> None:
    """SQLite splits terms in the same way when indexing and when searching."""
    with Index("", no_check, None) as index:
        indexed = term_text(f"{word} {word.title()}X {word}_ü{word}")
        index.execute("INSERT INTO contents (rowid, path, text) VALUES (1, '', ?)", (indexed,))
        for term in set(indexed.split()):
            assert index.execute(
                "SELECT rowid FROM contents WHERE contents MATCH ?", (f'"{term}"',)
            ).fetchall()
            assert index.execute("SELECT doc FROM contents_words WHERE term = ?", (term,)).fetchone() == (1,)


@pytest.mark.parametrize(
    ("words", "stemmed"),
    [
        ("parse parses parsed parsing", "pars"),
        ("query queries", "query"),
        ("box boxes boxed", "box"),
        ("run runs running", "run"),
        ("class classes", "class"),
        ("embed embedding embedded", "emb"),
        ("status", "status"),
        ("string strings", "string"),
        ("need needs", "need"),
        ("analysis", "analysis"),
        ("ring", "ring"),
    ],
)
def test_forms_of_a_word_have_one_stem(words: str, stemmed: str) -> None:
    """English plurals and verb forms; words that only look like them are unchanged."""
    assert {stem(word) for word in words.split()} == {stemmed}


def test_the_texts_of_any_value_are_extracted() -> None:
    """In order, with numbers; keys of maps, booleans and null are left out."""
    assert plain_text({"a": ["x", {"b": "y"}], "c": 3, "d": None, "e": True, "f": 1.5}) == "x\ny\n3\n1.5"
    deep: object = "end"
    for _ in range(50_000):
        deep = [deep]
    assert plain_text(deep) == "end"


@pytest.mark.parametrize(
    ("path", "text", "about", "symbols"),
    [
        (
            "a.py",
            '#!/usr/bin/env python\n"""One.\n\nTwo."""\nX = 1\nclass A:\n    async def f(self): pass\n',
            "One.\nTwo.",
            "A f X",
        ),
        (
            "a.rs",
            "//! Docs.\npub(crate) fn go() {}\nimpl Thing {}\nconst MAX: u8 = 3;",
            "Docs.",
            "go Thing MAX",
        ),
        ("a.go", "package main\n\nfunc (s *S) Run() {}\ntype T struct{}", "", "main Run T"),
        (
            "a.c",
            "/* Lists. */\nstatic int list_len(struct list *l)\n{\n  return f(x);\n}",
            "Lists.",
            "list_len",
        ),
        ("a.sexp", "; Loops.\n(define (twice x) x)\n(define-syntax swap! 1)", "Loops.", "twice swap!"),
        ("a.sh", "#!/bin/sh\n# Deploys.\ngo_on() {\n}\n", "Deploys.", "go_on"),
        ("Makefile", "# Builds.\nall: x\n\tcc\nCC := gcc\n", "Builds.", "all"),
        ("a.sql", "-- People.\nCREATE TABLE IF NOT EXISTS people (id int);", "People.", "people"),
        (
            "a.md",
            "# Title\n\nFirst words\nand more.\n\nLater.\n\n## Part\n",
            "Title\nPart\nFirst words and more.",
            "",
        ),
        ("a.rst", "Title\n=====\n\nWords.\n", "Title\nTitle", ""),
        (
            "package.json",
            '{"name": "thing", "description": "Does, well, things"}',
            "thing\nDoes, well, things",
            "",
        ),
        ("fix.yaml", "# Loops.\nname: fix\ndescription: Fixes things\n", "Loops.\nfix\nFixes things", ""),
        ("a.html", "<html><title>Page</title>", "Page", ""),
    ],
)
def test_an_outline_has_description_and_symbols(path: str, text: str, about: str, symbols: str) -> None:
    """The description is the leading comment or the headings; symbols are the defined names."""
    assert outline(path, text) == (about, symbols)


@settings(max_examples=tried(50))
@given(
    st.sampled_from(["a.py", "a.md", "a.json", "a.c", "a.sexp", "Makefile", "a.sql", "a"]),
    st.text(max_size=500),
)
def test_the_outline_of_any_text_is_bounded(path: str, text: str) -> None:
    result = outline(path, text)
    assert len(result.about) <= 4_000


@pytest.mark.parametrize(
    "piece",
    [
        " ",
        "\t",
        "\n",
        "(",
        "a",
        "a ",
        "=",
        "#",
        "/*",
        "def ",
        "a(",
        "create ",
        "const ",
        '"""',
        "-",
        "<title",
        "pub ",
    ],
)
def test_an_outline_of_a_hostile_file_is_fast(piece: str) -> None:
    """A megabyte of one repeated piece causes no backtracking."""
    for path in ("a.py", "a.md", "a.json", "a.c", "a.sexp", "a.sh", "Makefile", "a.sql"):
        outline(path, piece * ((1 << 20) // len(piece)))
