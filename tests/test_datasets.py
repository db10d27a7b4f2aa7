"""Suites by name: right, wrong, broken off, out of reach, cached, and found in a folder."""

import hashlib
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pooch
import pytest

from bayes_irt.datasets import Dataset, describe, load, names
from bayes_irt.errors import BayesIRTError, DatasetError, InvalidConfigurationError
from bayes_irt.readers import read_responses

# As the authors write theirs: no name over the LLMs, numbered items, lines that end as on Windows.
TABLE = b",0,1,2\r\nopus_one_shot,1,0,1\r\nflash_one_shot,1,1,0\r\n"
OTHER = TABLE.replace(b"0\r\n", b"1\r\n")


class Handler(BaseHTTPRequestHandler):
    """Answer as the server says; every answer ends the connection."""

    def do_GET(self):
        self.server.hits.append(self.path)
        status, promised, body = self.server.answer
        self.send_response(status)
        if promised is not None:
            self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if self.server.hangs:
            self.server.goes_on.wait(60)

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hits = []
        self.hangs = False
        self.goes_on = threading.Event()
        self.serve(TABLE)

    def serve(self, body, *, promised=-1, status=200):
        self.answer = (status, len(body) if promised == -1 else promised, body)


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.goes_on.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_folders(monkeypatch):
    """Leave only the places that a test names."""
    for variable in ("BAYES_IRT_DATA", "BAYES_IRT_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def toy(port, **changes):
    pinned = {
        "name": "toy",
        "title": "Toy",
        "address": f"http://127.0.0.1:{port}/data/TOY.csv",
        "sha256": hashlib.sha256(TABLE).hexdigest(),
        "num_llms": 2,
        "num_items": 3,
    }
    return Dataset(**pinned | changes)


def served(server, **changes):
    return toy(server.server_address[1], **changes)


def files_in(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def assert_is_toy(responses):
    assert responses.llms == ("opus_one_shot", "flash_one_shot")
    assert responses.items == ("toy_0", "toy_1", "toy_2")
    assert responses.successes.tolist() == [[1, 0, 1], [1, 1, 0]]


def test_the_right_file_is_downloaded_once(server, tmp_path):
    suite = served(server)
    assert_is_toy(load(suite, cache=tmp_path))
    assert_is_toy(load(suite, cache=tmp_path))
    assert server.hits == ["/data/TOY.csv"]
    assert files_in(tmp_path) == ["TOY.csv"]


def test_a_cached_file_needs_no_server(server, tmp_path):
    suite = served(server)
    load(suite, cache=tmp_path)
    server.serve(b"", status=500)
    assert_is_toy(load(suite, cache=tmp_path))


def test_the_cache_is_named_by_argument_then_variable_then_system(server, tmp_path, monkeypatch):
    suite = served(server)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "system" / project)
    load(suite)
    monkeypatch.setenv("BAYES_IRT_CACHE", str(tmp_path / "variable"))
    load(suite)
    load(suite, cache=tmp_path / "argument")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("TOY.csv")}
    assert found == {"system/bayes_irt/toy/TOY.csv", "variable/toy/TOY.csv", "argument/toy/TOY.csv"}


def test_another_file_is_refused_and_not_kept(server, tmp_path):
    server.serve(OTHER)
    with pytest.raises(DatasetError, match="is not the file of 'toy'") as caught:
        load(served(server), cache=tmp_path)
    assert hashlib.sha256(TABLE).hexdigest() in str(caught.value)
    assert "BAYES_IRT_DATA" in str(caught.value)
    assert files_in(tmp_path) == []
    server.serve(TABLE)
    assert_is_toy(load(served(server), cache=tmp_path))


@pytest.mark.parametrize(
    ("promised", "message"),
    [
        pytest.param(len(TABLE), "broke off before the file was whole", id="length promised"),
        pytest.param(None, "is not the file of 'toy'", id="no length promised"),
    ],
)
@pytest.mark.parametrize("sent", [0, 20, TABLE.index(b"flash"), len(TABLE) - 1])
def test_a_download_that_breaks_off_is_an_error_and_leaves_nothing(server, tmp_path, promised, message, sent):
    server.serve(TABLE[:sent], promised=promised)
    with pytest.raises(DatasetError, match=message):
        load(served(server), cache=tmp_path)
    assert files_in(tmp_path) == []
    server.serve(TABLE)
    assert_is_toy(load(served(server), cache=tmp_path))


KILLED = """
import sys
from bayes_irt.datasets import Dataset, load
address, sha256, cache = sys.argv[1:]
load(Dataset(name="toy", title="Toy", address=address, sha256=sha256, num_llms=2, num_items=3), cache=cache)
"""


def test_a_process_that_dies_while_it_downloads_leaves_no_half_file(server, tmp_path):
    server.serve(TABLE[:30], promised=len(TABLE))
    server.hangs = True
    suite = served(server)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, suite.address, suite.sha256, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    while not server.hits:
        assert process.poll() is None
        threading.Event().wait(0.02)
    process.kill()
    assert process.wait(timeout=60) != 0
    assert not (tmp_path / "toy" / "TOY.csv").exists()
    server.hangs = False
    server.serve(TABLE)
    assert_is_toy(load(suite, cache=tmp_path))


@pytest.mark.parametrize("content", [b"", TABLE[:20], OTHER])
def test_a_damaged_file_in_the_cache_is_replaced(server, tmp_path, content):
    damaged = tmp_path / "toy" / "TOY.csv"
    damaged.parent.mkdir()
    damaged.write_bytes(content)
    assert_is_toy(load(served(server), cache=tmp_path))
    assert damaged.read_bytes() == TABLE


def test_without_a_network_the_message_says_what_to_do(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        with pytest.raises(DatasetError, match="cannot be reached") as caught:
            load(toy(unused.getsockname()[1]), cache=tmp_path)
    message = str(caught.value)
    assert "Check the network" in message
    assert "put TOY.csv into a folder" in message
    assert isinstance(caught.value, BayesIRTError)
    assert isinstance(caught.value, RuntimeError)
    assert files_in(tmp_path) == []


def test_a_server_that_falls_silent_is_an_error(server, tmp_path, monkeypatch):
    monkeypatch.setattr("bayes_irt.datasets.TIMEOUT", 0.2)
    server.serve(TABLE[:30], promised=len(TABLE))
    server.hangs = True
    with pytest.raises(DatasetError, match="does not answer"):
        load(served(server), cache=tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal_names_its_status(server, tmp_path, status):
    server.serve(b"no", status=status)
    with pytest.raises(DatasetError, match=rf"TOY\.csv answered {status} .*BAYES_IRT_DATA"):
        load(served(server), cache=tmp_path)


def test_a_cache_that_cannot_be_made_is_named(server, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(DatasetError, match=r"cannot be kept in .*BAYES_IRT_CACHE"):
        load(served(server), cache=blocked)


def test_the_folder_comes_before_cache_and_server(server, tmp_path, monkeypatch):
    (tmp_path / "TOY.csv").write_bytes(TABLE)
    monkeypatch.setenv("BAYES_IRT_DATA", str(tmp_path))
    cache = tmp_path / "cache"
    assert_is_toy(load(served(server), cache=cache))
    assert server.hits == []
    assert not cache.exists()


def test_a_variable_that_names_no_folder_is_an_error(server, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYES_IRT_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(DatasetError, match=r"BAYES_IRT_DATA names .*mistyped.* no folder"):
        load(served(server), cache=tmp_path / "cache")
    assert server.hits == []


def test_a_folder_without_the_file_is_passed_over(server, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("BAYES_IRT_DATA", str(tmp_path / "empty"))
    assert_is_toy(load(served(server), cache=tmp_path / "cache"))
    assert server.hits == ["/data/TOY.csv"]


def test_another_file_in_the_folder_is_refused(server, tmp_path, monkeypatch):
    (tmp_path / "TOY.csv").write_bytes(OTHER)
    monkeypatch.setenv("BAYES_IRT_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=r"TOY\.csv is not the file of 'toy'.*move it out"):
        load(served(server), cache=tmp_path / "cache")
    assert server.hits == []


def test_a_file_of_another_shape_is_refused(server, tmp_path):
    with pytest.raises(DatasetError, match=r"read as 2 LLMs x 3 items, but 'toy' must have 2 x 4"):
        load(served(server, num_items=4), cache=tmp_path)


def test_items_with_names_keep_them(server, tmp_path):
    table = TABLE.replace(b",0,1,2", b",0,1,hard_2")
    server.serve(table)
    responses = load(served(server, sha256=hashlib.sha256(table).hexdigest()), cache=tmp_path)
    assert responses.items == ("0", "1", "hard_2")


def test_labels_of_numbered_items_have_one_length(server, tmp_path):
    table = "\n".join([",".join(["", *map(str, range(12))]), "a" + ",1" * 12, "b" + ",0" * 12, ""]).encode()
    server.serve(table)
    pinned = hashlib.sha256(table).hexdigest()
    responses = load(served(server, sha256=pinned, num_items=12), cache=tmp_path)
    assert responses.items[:2] == ("toy_00", "toy_01")
    assert responses.items[-1] == "toy_11"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("MATH-500", "'math500'"), ("math_500", "'math500'"), ("MMLU-Pro", "'mmlu_pro'"), ("gpqaa", "'gpqa'")],
)
def test_an_unknown_name_brings_close_ones(name, meant):
    with pytest.raises(InvalidConfigurationError, match=f"Did you mean {meant}"):
        load(name)


def test_what_is_no_name_is_refused():
    with pytest.raises(InvalidConfigurationError, match="named by a string"):
        load(5)


def test_a_name_close_to_none_brings_the_list():
    with pytest.raises(InvalidConfigurationError, match=r"'swebench'.* Known are math500, ifeval") as caught:
        load("swebench")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "My Suite"}, "name is 'My Suite'"),
        ({"name": "../up"}, "name is"),
        ({"address": "ftp://host/t.csv"}, "address is"),
        ({"address": "http://host/data/"}, "address is"),
        ({"sha256": "abc"}, "64 hexadecimal digits"),
        ({"sha256": 5}, "64 hexadecimal digits"),
        ({"num_llms": 0}, "num_llms is 0"),
        ({"num_items": 2.5}, "num_items"),
    ],
)
def test_a_data_set_that_cannot_be_one_is_refused(change, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        toy(1, **change)


def test_every_suite_is_pinned():
    suites = [describe(name) for name in names()]
    assert [suite.file_name for suite in suites] == [
        "MATH_500.csv",
        "IFEval.csv",
        "MuSR.csv",
        "GPQA.csv",
        "MATH.csv",
        "BBH.csv",
        "MMLU_PRO.csv",
    ]
    commit = "b6cb036d80b34f036822383e8514be4ee4ed648f"
    assert {suite.address.removesuffix(suite.file_name) for suite in suites} == {
        f"https://media.githubusercontent.com/media/JackQuu/cBMM/{commit}/data/"
    }
    assert len({suite.sha256 for suite in suites}) == 7
    for suite in suites:
        # Two bytes a cell, and the rest is names: a wrong number of LLMs or items would show.
        per_cell = suite.num_bytes / (suite.num_llms * suite.num_items)
        assert 2 < per_cell < 2.2
        assert "MIT" in suite.licence
        assert "2605.07046" in str(suite)


def test_math500_comes_from_the_folder(data_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("BAYES_IRT_DATA", str(data_dir))
    responses = load("math500", cache=tmp_path)
    assert responses == read_responses(data_dir / "math500_paper.parquet")
    assert (responses.num_llms, responses.num_items) == (140, 500)
    assert responses.items[7] == "math500_007"
    assert files_in(tmp_path) == []


def test_other_responses_in_a_conversion_are_refused(data_dir, monkeypatch, tmp_path):
    import pandas as pd

    table = pd.read_parquet(data_dir / "math500_paper.parquet")
    table.iloc[3, 4] = 1 - table.iloc[3, 4]
    table.to_parquet(tmp_path / "math500_paper.parquet")
    monkeypatch.setenv("BAYES_IRT_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match="does not hold what it should"):
        load("math500")


def test_the_authors_layout_gives_the_labels_of_the_conversion(data_dir, monkeypatch, tmp_path, server):
    """A table as long as the authors' file to the byte, which their order of rows may differ from."""
    stored = read_responses(data_dir / "math500_paper.parquet")
    lines = [",".join(["", *map(str, range(500))])]
    lines += [
        ",".join([llm, *map(str, row)])
        for llm, row in zip(stored.llms, stored.successes.tolist(), strict=True)
    ]
    table = "".join(f"{line}\r\n" for line in lines).encode()
    suite = describe("math500")
    assert len(table) == suite.num_bytes
    server.serve(table)
    same = replace(suite, address=served(server).address, sha256=hashlib.sha256(table).hexdigest())
    responses = load(same, cache=tmp_path)
    assert responses.items == stored.items
    np.testing.assert_array_equal(responses.successes, stored.successes)
    assert responses.digest == suite.conversion.digest


def test_mmlu_pro_of_another_source_is_not_taken_for_the_papers(data_dir, monkeypatch, tmp_path, server):
    """The folder's mmlu_pro.parquet has 29 other LLMs."""
    assert (data_dir / "mmlu_pro.parquet").is_file()
    monkeypatch.setenv("BAYES_IRT_DATA", str(data_dir))
    server.serve(b"gone", status=404)
    address = served(server).address.replace("TOY", "MMLU_PRO")
    with pytest.raises(DatasetError, match="answered 404"):
        load(replace(describe("mmlu_pro"), address=address), cache=tmp_path)
