"""Bad input raises at once: labels are named, the way out is said, no other library's error gets through."""

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayes_irt.errors import InvalidResponsesError
from bayes_irt.readers import TableColumns, read_responses

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256))

# name: (file name, content, what the message says, its way out)
FILES = {
    "empty": ("t.csv", b"", "is empty", "header row"),
    "only blank lines": ("t.csv", b"\n\n", "is empty", "header row"),
    "only a header": ("t.csv", b"model,q1,q2\n", "no rows", "At least two LLMs"),
    "empty Parquet": ("t.parquet", b"", "is empty", "header row"),
    "no LLM column": ("t.csv", b"item,score\nq1,1\nq2,0\n", "no LLM column", "--llm"),
    "no item column": ("t.csv", b"model,score\na,1\na,0\nb,1\n", "no item column", "--item"),
    "no score column": ("t.csv", b"model,item,points\na,q1,1\nb,q1,0\n", "no score column", "--score"),
    "neither LLM nor item": ("t.csv", b"who,what,score\na,q1,1\nb,q2,0\n", "'what'", "(llm, item), or named"),
    "repeated rows": ("t.csv", b"model,item,score\na,q,1\na,q,0\nb,q,1\n", "LLM 'a', item 'q'", "--attempt"),
    "repeated attempts": (
        "t.csv",
        b"model,item,attempt,score\na,q,1,1\na,q,1,0\nb,q,1,1\n",
        "LLM 'a', item 'q', attempt 1",
        "Number the attempts",
    ),
    "repeated counts": (
        "t.csv",
        b"model,item,successes,attempts\na,q,1,2\na,q,0,2\n",
        "LLM 'a', item 'q'",
        "remove the repeats",
    ),
    "outside the coding": (
        "t.csv",
        b"model,q1,q2\na,1,0\nb,2,1\n",
        "'2' for LLM 'b', item 'q1'",
        "0/1, -1/1",
    ),
    "two codings": ("t.csv", b"model,q1,q2\na,1,0\nb,-1,1\n", "item 'q2'", "Use either 0/1 or -1/1"),
    "two codings, long": (
        "t.csv",
        b"model,item,score\na,q1,1\na,q2,0\nb,q1,-1\nb,q2,1\n",
        "LLM 'b', item 'q1'",
        "Use either 0/1 or -1/1",
    ),
    "fractional": ("t.csv", b"model,q1,q2\na,1,0.5\nb,0,1\n", "'0.5' for LLM 'a', item 'q2'", "threshold"),
    "fractional, long": (
        "t.csv",
        b"model,item,score\na,q1,.25\nb,q1,1\n",
        "'.25' for LLM 'a'",
        "'successes'",
    ),
    "infinite": ("t.csv", b"model,q1,q2\na,1,inf\nb,0,1\n", "LLM 'a', item 'q2'", "must be 0/1"),
    "text": ("t.csv", b"model,q1,q2\na,1,yes\nb,0,1\n", "'yes' for LLM 'a', item 'q2'", "empty mean missing"),
    "text, long": (
        "t.csv",
        b"model,item,score\na,q1,B\na,q2,1\n",
        "'B' for LLM 'a', item 'q1'",
        "must be 0/1",
    ),
    "text column": ("t.csv", b"model,q1,size\na,1,7B\nb,0,9B\n", "'size'", "--llm-columns"),
    "empty row": (
        "t.csv",
        b"model,q1,q2\na,,\nb,0,1\nc,1,1\n",
        "1 LLM without an answer ('a')",
        "--drop-empty",
    ),
    "empty column": ("t.csv", b"model,q1,q2,q3\na,,1,0\nb,,0,1\n", "('q1')", "--drop-empty"),
    "empty row, long": ("t.csv", b"model,item,score\na,q1,\nb,q1,1\nb,q2,0\n", "('a')", "--drop-empty"),
    "one LLM": ("t.csv", b"model,q1,q2\na,1,0\n", "only one LLM: 'a'", "At least two LLMs"),
    "one item": ("t.csv", b"model,q1\na,1\nb,0\n", "only one item: 'q1'", "At least two items"),
    "repeated label": ("t.csv", b"model,q1,q2\na,1,0\na,0,1\n", "'a'", "rename or remove"),
    "no label": ("t.csv", b"model,item,score\n,q1,1\nb,q1,0\n", "row 1", "Every row needs one"),
    "repeated column": ("t.csv", b"model,q1,q1\na,1,0\nb,0,1\n", "repeats 'q1'", "name of its own"),
    "no header": ("t.csv", b"1,1,0\n0,1,1\n", "repeats '1'", "if the file has no header row, add one"),
    "ragged": ("t.csv", b"model,q1,q2\na,1\nb,0,1\n", "no proper table", "as many fields as the header"),
    "semicolons": ("t.csv", b"model;q1;q2\na;1;0\n", "contains ';'", "separated by ','"),
    "counts above attempts": (
        "t.csv",
        b"model,item,successes,attempts\na,q1,3,2\nb,q1,1,2\n",
        "LLM 'a', item 'q1' has more successes than attempts",
        "Correct",
    ),
    "counts not whole": (
        "t.csv",
        b"llm,item,successes,attempts\na,q,.5,2\nb,q,1,2\n",
        "LLM 'a'",
        "whole numbers",
    ),
    "counts negative": ("t.csv", b"llm,item,successes,attempts\na,q,-1,2\nb,q,1,2\n", "LLM 'a'", "from 0 up"),
    "half a count": ("t.csv", b"llm,item,successes,attempts\na,q,1,\nb,q,1,2\n", "LLM 'a'", "both empty"),
    "successes alone": (
        "t.csv",
        b"llm,item,successes\na,q,1\nb,q,1\n",
        "not its partner",
        "--ignore successes",
    ),
    "attempts with scores": ("t.csv", b"llm,item,score,attempts\na,q,1,4\n", "not its partner", "--ignore"),
    "CSV called Parquet": ("t.parquet", b"model,q1\na,1\n", "ends in .parquet but is text", "Rename"),
    "PNG called CSV": ("t.csv", PNG, "but is a PNG image", "Rename"),
    "PNG called Parquet": ("t.parquet", PNG, "but is a PNG image", "Rename"),
    "zip called CSV": ("t.csv", b"PK\x03\x04\x00\x00", "a zip file", "Rename"),
    "gzip called CSV": ("t.csv", b"\x1f\x8b\x08\x00", "compressed by gzip", "Rename"),
    "text called gzip": ("t.csv.gz", b"model,q1\n", "cannot be decompressed", "drop the ending"),
    "damaged Parquet": ("t.parquet", b"PAR1" + bytes(40) + b"PAR1", "damaged Parquet file", "again"),
    "Latin-1": ("t.csv", "model,q1,q2\né,1,0\nb,0,1\n".encode("latin-1"), "not text in UTF-8", "UTF-8"),
    "UTF-16": ("t.csv", "model,q1,q2\na,1,0\n".encode("utf-16"), "not text in UTF-8", "UTF-8"),
    "unknown ending": ("t.xlsx", b"PK", "unknown ending '.xlsx'", ".csv"),
}


@pytest.mark.parametrize(("name", "content", "problem", "remedy"), FILES.values(), ids=FILES.keys())
def test_bad_files_are_refused(tmp_path, name, content, problem, remedy):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidResponsesError) as caught:
        read_responses(path)
    message = str(caught.value)
    assert problem in message
    assert remedy in message
    assert str(path) in message
    assert list(tmp_path.iterdir()) == [path]


def test_a_parquet_file_called_csv_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"model": ["a", "b"], "q1": [1, 0]}).to_parquet(path)
    with pytest.raises(InvalidResponsesError, match=r"ends in \.csv but is a Parquet file"):
        read_responses(path)


def test_infinities_of_parquet_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"model": ["a", "b"], "q1": [1, 0], "q2": [np.inf, 1]}).to_parquet(path)
    with pytest.raises(InvalidResponsesError, match="LLM 'a', item 'q2' is text or infinite"):
        read_responses(path)


def test_lists_in_cells_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"model": ["a", "b"], "q1": [[1], [0, 1]], "q2": [1, 0]}).to_parquet(path)
    with pytest.raises(InvalidResponsesError, match="'q1'"):
        read_responses(path)


def test_random_bytes_never_give_another_error(tmp_path):
    rng = np.random.default_rng(0)
    for size in (1, 10, 1000, 100_000):
        for name in ("t.csv", "t.tsv", "t.csv.gz", "t.parquet"):
            (tmp_path / name).write_bytes(rng.bytes(size))
            with pytest.raises(InvalidResponsesError):
                read_responses(tmp_path / name)


def test_absent_files_and_directories_are_refused(tmp_path):
    with pytest.raises(InvalidResponsesError, match=r"cannot be read: No such file.*Check the name"):
        read_responses(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidResponsesError, match=r"is a directory\. Name the file"):
        read_responses(tmp_path / "folder.csv")
    with pytest.raises(InvalidResponsesError, match="is a directory"):
        read_responses(tmp_path)


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("model,q1\na,1\n")

    def refuse(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything, so chmod would not do
    with pytest.raises(InvalidResponsesError, match="Permission denied"):
        read_responses(path)


def test_an_unknown_column_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2\na,1,0\nb,0,1\n")
    for columns in (TableColumns(ignore=("absent",)), TableColumns(llm_columns=("absent",))):
        with pytest.raises(InvalidResponsesError, match="no column 'absent'"):
            read_responses(path, columns=columns)


def test_drop_empty_is_the_way_out_and_names_what_it_drops(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2,q3\na,,,\nb,0,1,\nc,1,1,\n")
    with pytest.warns(UserWarning, match="Left out") as warned:
        responses = read_responses(path, drop_empty=True)
    assert [str(warning.message) for warning in warned] == [
        "Left out 1 LLM without an answer: 'a'.",
        "Left out 1 item without an answer: 'q3'.",
    ]
    assert (responses.llms, responses.items) == (("b", "c"), ("q1", "q2"))


@pytest.mark.parametrize("number", [2, 3])
def test_two_and_three_llms_are_enough_to_read(tmp_path, number):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2\n" + "".join(f"m{i},1,{i % 2}\n" for i in range(number)))
    assert read_responses(path).num_llms == number
