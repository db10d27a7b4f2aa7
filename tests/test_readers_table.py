"""Tables are read right: real files to the counts their README states, examples cell by cell."""

import gzip
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from bayes_irt.errors import InvalidResponsesError
from bayes_irt.readers import TableColumns, read_responses


@dataclass(frozen=True)
class Stated:
    """What the README of the data says about one file."""

    llms: int
    items: int
    missing: float
    mean: float
    most_attempts: int = 1
    items_wrong: int = 0
    items_right: int = 0
    llms_wrong: int = 0
    llms_repeated: int | None = None
    items_repeated: int | None = None


STATED = {
    "agentic_sparse": Stated(176, 1019, 0.518, 0.498, items_wrong=138, items_right=27),
    "chembench": Stated(35, 2788, 0, 0.462, items_wrong=253),
    "classic_lsat6": Stated(1000, 5, 0, 0.764, llms_wrong=3, llms_repeated=970),
    "classic_lsat7": Stated(1000, 5, 0, 0.741, llms_wrong=12, llms_repeated=968),
    "classic_sat12": Stated(600, 32, 0, 0.569),
    "classic_verbagg": Stated(316, 24, 0, 0.476, llms_wrong=4),
    "cruxeval": Stated(68, 1600, 0.015, 0.400, most_attempts=10, items_wrong=33, items_right=1),
    "livecodebench": Stated(94, 3168, 0.639, 0.388, most_attempts=10, items_wrong=215, items_right=95),
    "math500_paper": Stated(140, 500, 0, 0.546, items_wrong=11, llms_repeated=13),
    "math_reasoning": Stated(158, 600, 0.002, 0.447, items_wrong=20, llms_wrong=15),
    "metabench": Stated(6320, 694, 0.210, 0.474, llms_wrong=6, llms_repeated=149),
    "mmlu_pro": Stated(29, 12032, 0.005, 0.402, items_wrong=640, items_right=236, items_repeated=2643),
    "swebench_verified": Stated(158, 500, 0.0001, 0.501, items_wrong=32),
}
COLUMNS = {
    "classic_sat12": TableColumns(ignore=("item32_alt_key3",)),
    "classic_verbagg": TableColumns(llm_columns=("gender", "anger")),
}


def repeated_rows(*counts):
    """Return how many rows equal an earlier one."""
    joined = np.hstack(counts)
    return len(joined) - len({row.tobytes() for row in joined})


@pytest.mark.parametrize("name", STATED)
def test_real_files_read_to_the_counts_stated(data_dir, name):
    stated = STATED[name]
    started = time.monotonic()
    responses = read_responses(data_dir / f"{name}.parquet", columns=COLUMNS.get(name))
    assert time.monotonic() - started < 10
    successes, attempts = responses.successes, responses.attempts
    assert (responses.num_llms, responses.num_items) == (stated.llms, stated.items)
    assert attempts.max() == stated.most_attempts
    rounding = 0.00005 if stated.missing == 0.0001 else 0.0005
    assert 1 - responses.num_observed / attempts.size == pytest.approx(stated.missing, abs=rounding)
    assert successes.sum(dtype=int) / responses.num_attempts == pytest.approx(stated.mean, abs=0.0005)
    assert (successes.sum(axis=0, dtype=int) == 0).sum() == stated.items_wrong
    assert (successes == attempts).all(axis=0).sum() == stated.items_right
    assert (successes.sum(axis=1, dtype=int) == 0).sum() == stated.llms_wrong
    if stated.llms_repeated is not None:
        assert repeated_rows(successes, attempts) == stated.llms_repeated
    if stated.items_repeated is not None:
        assert repeated_rows(successes.T, attempts.T) == stated.items_repeated


def test_real_companions_ride_along(data_dir):
    livecode = read_responses(data_dir / "livecodebench.parquet")
    assert livecode.item_metadata["scenario"].value_counts()["generation"] == 1055
    assert livecode.llm_metadata["llm_attempts"].isin([1, 10]).all()
    verbagg = read_responses(data_dir / "classic_verbagg.parquet", columns=COLUMNS["classic_verbagg"])
    assert verbagg.llm_metadata["anger"].iloc[0] == 20
    assert verbagg.llm_metadata["gender"].isin(["M", "F"]).all()
    assert sorted(verbagg.item_metadata["mode"].unique()) == ["do", "want"]
    crux = read_responses(data_dir / "cruxeval.parquet")
    assert crux.llm_metadata["cot"].dtype == bool
    assert crux.llm_metadata["temperature"].isin([0.2, 0.8]).all()


def test_companions_of_another_file_match_by_label(data_dir):
    math = read_responses(
        data_dir / "math500_paper.parquet",
        items_path=data_dir / "math_reasoning_items.parquet",
        llms_path=data_dir / "math_reasoning_models.parquet",
    )
    assert math.item_metadata["level"].value_counts().sort_index().tolist() == [43, 90, 105, 128, 134]
    assert math.llm_metadata["copied_prompt_run"].sum() == 26
    assert math.llm_metadata["in_paper"].all()


def test_the_two_math_files_agree_cell_by_cell(data_dir):
    paper = read_responses(data_dir / "math500_paper.parquet")
    whole = read_responses(data_dir / "math_reasoning.parquet")
    assert whole.subset(paper.llms, paper.items).digest == paper.digest
    assert "cot_length" not in whole.item_metadata.columns.union(whole.llm_metadata.columns)


def test_example_long_table(formats_dir):
    responses = read_responses(formats_dir / "synthetic" / "tables" / "long.csv")
    assert (responses.llms, responses.items) == (("a", "bb"), ("q0", "q1", "q2"))
    assert responses.attempts.tolist() == [[2, 2, 2], [2, 2, 2]]
    # score = (len(model) + item + attempt) % 3 > 0, attempts 1 and 2
    assert responses.successes.tolist() == [[1, 1, 2], [1, 2, 1]]
    assert responses.item_metadata["benchmark"].tolist() == ["b1"] * 3


def test_example_wide_tables(formats_dir):
    tables = formats_dir / "synthetic" / "tables"
    rows = read_responses(tables / "wide.csv")
    assert rows.successes.tolist() == [[1, 0, 0], [1, 1, 0]]
    assert rows.attempts.tolist() == [[1, 1, 0], [1, 1, 1]]
    turned = read_responses(tables / "wide_items_rows.csv")
    assert (turned.llms, turned.items) == (("a", "bb"), ("q0", "q1", "q2"))
    assert turned.successes.tolist() == [[1, 0, 0], [1, 1, 0]]
    assert turned.attempts.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_example_counts_and_irw_tables(formats_dir):
    tables = formats_dir / "synthetic" / "tables"
    counts = read_responses(tables / "counts.csv")
    assert counts.successes.tolist() == [[3, 0], [2, 0]]
    assert counts.attempts.tolist() == [[4, 4], [2, 0]]
    waves = read_responses(tables / "irw.csv")
    assert waves.successes.tolist() == [[1, 0], [1, 0]]
    assert waves.attempts.tolist() == [[2, 1], [1, 0]]


def test_a_header_that_looks_like_results_is_reported(formats_dir):
    with pytest.warns(UserWarning, match="looks like a row of results"):
        responses = read_responses(formats_dir / "synthetic" / "tables" / "wide_noheader_ids.csv")
    assert responses.items == ("1.0", "1.0.1", "0.0")


def read(tmp_path, text, name="t.csv", **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_responses(tmp_path / name, **options)


@pytest.mark.parametrize(
    "text",
    [
        "model,q1,q2\na,1,0\nb,0,1\n",
        "model,q1,q2\na,1,-1\nb,-1,1\n",
        "model,q1,q2\na,true,False\nb,FALSE,True\n",
        "model,q1,q2\na,1.0,0.0\nb, 0 ,1\n",
        ",q1,q2\na,1,0\nb,0,1\n",
        "Unnamed: 0,q1,q2\na,1,0\nb,0,1\n",
        "whatever,q1,q2\na,1,0\nb,0,1\n",
        "\ufeffmodel,q1,q2\r\na,1,0\r\nb,0,1\r\n",
        ",model,q1,q2\n0,a,1,0\n1,b,0,1\n",
        '"model","q1","q2"\n"a","1","0"\n\n"b","0","1"\n',
        "item,a,b\nq1,1,0\nq2,0,1\n",
        "LLM,Item,Score\na,q1,1\na,q2,0\nb,q1,0\nb,q2,1\n",
        "item_id,model_name,correct\nq1,a,true\nq2,a,false\nq1,b,false\nq2,b,true\n",
        ",model,task_id,score\n0,a,q1,1\n1,a,q2,-1\n2,b,q1,-1\n3,b,q2,1\n",
        "model,item,successes,attempts\na,q1,1,1\na,q2,0,1\nb,q1,0,1\nb,q2,1,1\n",
    ],
)
def test_layouts_and_codings_read_alike(tmp_path, text):
    responses = read(tmp_path, text)
    assert (responses.llms, responses.items) == (("a", "b"), ("q1", "q2"))
    assert responses.successes.tolist() == [[1, 0], [0, 1]]
    assert responses.num_attempts == 4


def test_separators_and_compression_read_alike(tmp_path):
    text = "model,q1,q2\na,1,0\nb,0,1\n"
    expected = read(tmp_path, text)
    assert read(tmp_path, text.replace(",", "\t"), "t.tsv") == expected
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_responses(tmp_path / "t.csv.gz") == expected


def test_parquet_with_a_pandas_index_reads_alike(tmp_path):
    frame = pd.DataFrame({"q1": [1, 0], "q2": [0, 1]}, index=["a", "b"])
    for name in (None, "model", "whatever"):
        frame.rename_axis(name).to_parquet(tmp_path / "t.parquet")
        responses = read_responses(tmp_path / "t.parquet")
        assert responses.llms == ("a", "b")
        assert responses.items == ("q1", "q2")


def test_a_wide_table_without_labels_gets_numbers(tmp_path):
    assert read(tmp_path, "q1,q2\n1,0\n0,1\n").llms == ("llm-001", "llm-002")


def test_ids_stay_as_written(tmp_path):
    responses = read(tmp_path, "model,item,score\n01,1.0,1\n01,1,0\n1,1.0,1\n1,1,1\n")
    assert responses.llms == ("01", "1")
    assert responses.items == ("1.0", "1")
    wide = read(tmp_path, "model,007,7\nNA,1,0\nnan,1,1\n")
    assert (wide.llms, wide.items) == (("NA", "nan"), ("007", "7"))


def test_integer_ids_of_parquet_become_text(tmp_path):
    pd.DataFrame({"person": [3, 12], "q1": [1, 0], "q2": [1, 1]}).to_parquet(tmp_path / "t.parquet")
    assert read_responses(tmp_path / "t.parquet").llms == ("3", "12")


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "nan", "null", "None", "n/a", " "])
def test_missing_marks(tmp_path, mark):
    assert read(tmp_path, f"model,q1,q2\na,1,{mark}\nb,0,1\n").attempts.tolist() == [[1, 0], [1, 1]]


def test_missing_values_of_parquet(tmp_path):
    frame = pd.DataFrame({"q1": pd.array([True, None], "boolean"), "q2": pd.array([1, 0], "Int8")})
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_responses(tmp_path / "t.parquet").attempts.tolist() == [[1, 1], [0, 1]]


def test_companions_beside_a_csv(tmp_path):
    (tmp_path / "t_items.csv").write_text("item,level,source,open\nq2,2,01,true\nq1,1.5,02,\nq9,7,03,false\n")
    pd.DataFrame({"model": ["b", "a"], "size": [9, 7]}).to_parquet(tmp_path / "t_llms.parquet")
    responses = read(tmp_path, "model,q1,q2\na,1,0\nb,0,1\n")
    assert responses.item_metadata["level"].tolist() == [1.5, 2.0]
    assert responses.item_metadata["source"].tolist() == ["02", "01"]
    assert responses.item_metadata["open"].iloc[1] is True
    assert responses.llm_metadata["size"].tolist() == [7, 9]
    (tmp_path / "t_models.csv").write_text("model,size\na,1\nb,2\n")
    with pytest.raises(InvalidResponsesError, match=r"Several files could describe the LLMs.*--llms"):
        read_responses(tmp_path / "t.csv")
    named = read_responses(tmp_path / "t.csv", llms_path=tmp_path / "t_models.csv")
    assert named.llm_metadata["size"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("companion", "message"),
    [
        ("item,level\nx,1\ny,2\n", "name none of the items"),
        ("item,level\nq1,1\nq1,2\n", "several rows for 'q1'"),
        ("what,level\nq1,1\nq2,2\n", "no column with item labels"),
        ("", "t_items.csv is empty"),
    ],
)
def test_bad_companions_are_refused(tmp_path, companion, message):
    (tmp_path / "t_items.csv").write_text(companion)
    with pytest.raises(InvalidResponsesError, match=message):
        read(tmp_path, "model,q1,q2\na,1,0\nb,0,1\n")


def test_further_columns_of_a_long_table(tmp_path):
    text = (
        "model,item,score,size,topic,seconds,note\n"
        "a,q1,1,7,s,1.5,x\na,q2,0,7,t,1.5,y\nb,q1,1,9,s,2.5,z\nb,q2,1,9,t,3.5,w\n"
    )
    responses = read(tmp_path, text)
    assert responses.llm_metadata["size"].tolist() == [7, 9]
    assert responses.item_metadata["topic"].tolist() == ["s", "t"]
    assert responses.llm_metadata.columns.tolist() == ["size"]
    assert responses.item_metadata.columns.tolist() == ["topic"]
    assert read(tmp_path, text, columns=TableColumns(ignore=("size",))).llm_metadata.empty
    with pytest.raises(InvalidResponsesError, match="'seconds' was named as describing the LLM"):
        read(tmp_path, text, columns=TableColumns(llm_columns=("seconds",)))


def test_wide_columns_that_describe_the_llm(tmp_path):
    text = "model,size,license,q1,q2\na,7,mit,1,0\nb,9,mit,0,1\n"
    with pytest.raises(InvalidResponsesError, match=r"'license'.*--llm-columns.*--ignore"):
        read(tmp_path, text)
    columns = TableColumns(llm_columns=("size",), ignore=("license",))
    responses = read(tmp_path, text, columns=columns)
    assert responses.llm_metadata["size"].tolist() == [7, 9]
    assert responses.items == ("q1", "q2")


def test_large_text_tables_take_seconds(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (300, 3000))
    lines = [",".join(["model", *(f"q{i}" for i in range(3000))])]
    lines += [",".join([f"m{i}", *map(str, row)]) for i, row in enumerate(scores)]
    started = time.monotonic()
    responses = read(tmp_path, "\n".join(lines))
    assert time.monotonic() - started < 10
    np.testing.assert_array_equal(responses.successes, scores)
