"""Columns, headers and series as people's programs write them: units, comments, nested Parquet, zones, logs in long form."""

import json

import numpy as np
import pandas as pd
import pytest

from corollary import data
from corollary.data import Dataset
from corollary.data.delimited import joined_names, rows_of_names

ROWS = [["P-1", "80,1", "60", "3", "2,10", "good"], ["P-2", "79,9", "61", "2", "2,00", "bad"]] * 4
DEEP = [["Sample", "Heat", "", "Pressure", "", "Result"], ["", "in", "out", "in", "out", ""]]
UNITS = ["No.", "°C", "°C", "bar", "bar", "good/bad"]


def test_names_in_three_rows_with_units_in_the_last(tmp_path):
    """The second and third were rows of values, and their words one more class."""
    names = [
        "Sample No.",
        "Heat in °C",
        "Heat out °C",
        "Pressure in bar",
        "Pressure out bar",
        "Result good/bad",
    ]
    assert joined_names(*DEEP, UNITS) == names
    assert rows_of_names([*DEEP, UNITS, *ROWS]) == 3
    lines = [";".join(row) for row in [*DEEP, UNITS, *ROWS]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    found = data.load(tmp_path / "t.csv", target=names[-1])
    assert found.feature_names == names[:-1] and set(found.y) == {"good", "bad"}
    assert found.X["Heat in °C"].tolist()[:2] == [80.1, 79.9]
    sheet = pd.DataFrame([*DEEP, UNITS, *ROWS]).replace("", None)
    sheet.to_excel(tmp_path / "t.xlsx", header=False, index=False)
    assert data.load(tmp_path / "t.xlsx", target=names[-1]).feature_names == names[:-1]


def test_units_below_the_names_where_there_are_some(tmp_path):
    (tmp_path / "t.csv").write_text("id;heat;force;kind\n;°C;kN;\na;1,5;2;x\nb;2,5;3;y\nc;3,5;4;x\n")
    found = data.load(tmp_path / "t.csv")
    assert found.feature_names == ["id", "heat °C", "force kN", "kind"] and len(found) == 3


@pytest.mark.parametrize(
    "rows",
    [
        [
            ["a", "b", "c"],
            ["x", "", "u"],
            ["1", "2", "v"],
            ["2", "3", "u"],
        ],  # one word above numbers is a slip
        [["a", "b"], ["1", "x"], ["2", "y"], ["3", "z"]],
        [["name", "size", "age"], ["ann", "", ""], ["bob", "1", "2"], ["eve", "2", "3"]],
    ],
)
def test_a_first_row_with_gaps_is_no_row_of_units(rows):
    assert rows_of_names(rows) == 1


@pytest.mark.parametrize("separator", [";", ",", "\t", " "])
def test_comments_between_the_rows_of_a_file_that_begins_with_some(tmp_path, separator):
    lines = ["# LabTool 3", "# by Jörg", "a b", "1 2", "3 4", "# calibrated, again; now", "5 6", "# end"]
    text = "\n".join(line if line.startswith("#") else line.replace(" ", separator) for line in lines)
    (tmp_path / "log.csv").write_text("\ufeff" + text, encoding="utf-8")
    found = data.load(tmp_path / "log.csv")
    assert found.X.tolist() == [[1, 2], [3, 4], [5, 6]] and found.feature_names == ["a", "b"]


def test_colours_in_a_file_without_comments_above_stay(tmp_path):
    (tmp_path / "t.csv").write_text("colour,n\n#ff0000,1\n#00ff00,2\n#ff0000,3\n")
    assert data.load(tmp_path / "t.csv").X["colour"].tolist() == ["#ff0000", "#00ff00", "#ff0000"]


def test_records_vectors_and_durations_of_parquet_are_columns(tmp_path):
    frame = pd.DataFrame(
        {
            "info": [{"w": 1.5, "k": {"z": "x"}}, None, {"w": 2.5, "k": {"z": "y"}}],
            "emb": [np.array([1.0, 2.0]), np.array([3.0, 4.0]), None],
            "tags": [["a"], ["a", "b"], []],
            "took": pd.to_timedelta([60, 90, 120], unit="s"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    found = data.load(tmp_path / "t.parquet")
    assert found.feature_names == ["info.w", "info.k.z", "emb.0", "emb.1", "tags", "took"]
    assert found.X["took"].tolist() == [60, 90, 120]
    assert np.array_equal(found.X[["emb.0", "emb.1"]], [[1, 2], [3, 4], [np.nan, np.nan]], equal_nan=True)
    lines = [{"emb": [1, 2], "a": {"b": 1}}, {"emb": [3, 4], "a": {"b": 2}}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert data.load(tmp_path / "t.jsonl").feature_names == ["emb.0", "emb.1", "a.b"]


def test_durations_of_a_frame_are_seconds_in_the_fit_and_after_it():
    took = pd.DataFrame({"took": pd.to_timedelta([1, 2, 3, 4], unit="min")})
    made = data.encoder().fit(took)
    assert made.transform(took[:1]).tolist() == [[60.0]]


@pytest.mark.parametrize(
    "text", ["2023/03/01 1:00:07 PM GMT+1", "2023-03-01 12:00:07 UTC", "2023-03-01 13:00:07 GMT+01:00"]
)
def test_dates_with_a_zone_by_name(text):
    """As Google's forms and BigQuery write them; they were texts."""
    found = data.load(pd.DataFrame({"when": [text] * 3, "n": [1, 2, 3]}))
    assert str(found.X["when"].iloc[0]) == "2023-03-01 12:00:07"


# --- series ----------------------------------------------------------------------------------------------


def log(copies):
    """Return a log of two sensors in long form; some rows come again."""
    times = pd.date_range("2024-01-01", periods=20, freq="min")
    rows = [(t, name, float(i)) for name in ("hall", "yard") for i, t in enumerate(times)]
    return pd.DataFrame([*rows, *copies], columns=["time", "sensor", "value"])


def test_rows_of_a_log_that_come_again_count_once():
    again = log([])[:2].itertuples(index=False)
    with pytest.warns(UserWarning, match="2 of 42 rows repeat another and are left out"):
        found = data.load(log(again), kind="sequence")
    assert [len(series) for series in found.X] == [20, 20]


def test_a_few_rows_of_the_same_time_are_averaged_and_many_refused():
    time = pd.Timestamp("2024-01-01")
    with pytest.warns(UserWarning, match="1 of 41 rows repeat a date of their series; means are taken"):
        found = data.load(log([(time, "hall", 5.0)]), kind="sequence")
    assert found.X[0][0, 0] == 2.5 and found.extra["names"] == ["hall", "yard"]
    many = [(time, "hall", 5.0 + i) for i in range(9)]
    with pytest.raises(ValueError, match="each series must have a date once; got 2024-01-01"):
        data.load(log(many), kind="sequence")


def labelled(kind):
    rows = [(f"p{i}", t, float(t % (2 + i % 2)), kind[i % 2]) for i in range(12) for t in range(5 + i)]
    return pd.DataFrame(rows, columns=["id", "t", "x", "label"])


@pytest.mark.parametrize("kind", [("fast", "slow"), (0, 1)])
def test_series_in_long_form_with_a_class_each(kind, tmp_path):
    labelled(kind).to_csv(tmp_path / "s.csv", index=False)
    found = data.load(tmp_path / "s.csv", kind="sequence", target="label")
    assert [x.shape for x in found.X] == [(5 + i, 1) for i in range(12)]
    assert found.y.tolist() == [kind[i % 2] for i in range(12)]
    assert found.extra["names"][3] == "p3" and "dates" not in found.extra


def test_classes_that_change_within_a_series_cannot_be_forecast():
    """It said: could not convert string to float."""
    frame = pd.DataFrame({"t": np.arange(20), "x": np.arange(20.0), "label": ["up", "down"] * 10})
    with pytest.raises(
        ValueError, match="load: what is forecast must be a number, or each series must be of one"
    ):
        data.load(frame, kind="sequence", target="label")


def test_whole_series_are_held_out_by_fit(tmp_path, monkeypatch):
    """Rows of every series were divided: those that were held out were pieces of what was learned from."""
    from typer.testing import CliRunner

    from corollary.cli import fitting
    from corollary.cli.app import app

    labelled(("fast", "slow")).to_csv(tmp_path / "s.csv", index=False)
    seen = []
    monkeypatch.setattr(fitting, "_measured", lambda model, held, *rest: seen.append(held) or {})
    monkeypatch.chdir(tmp_path)
    how = ["--target", "label", "--run", "r", "--set", "training.epochs=1"]
    done = CliRunner().invoke(app, ["fit", "gru", "--data", "s.csv", *how])
    assert done.exit_code == 0, done.output
    (held,) = seen
    assert isinstance(held, Dataset) and len(held) == 2
    assert all(len(x) == 5 + int(name[1:]) for x, name in zip(held.X, held.extra["names"]))
    assert CliRunner().invoke(app, ["predict", "r", "--data", "s.csv", "--out", "p.csv"]).exit_code == 0
    assert pd.read_csv("p.csv")["series"].tolist() == [f"p{i}" for i in range(12)]


def test_brackets_of_names_are_printed(tmp_path, capsys):
    """Names were read as markup: [mm] was left out, and [/mm] ended in an error."""
    from corollary.cli.console import table

    table(["column"], [["length [mm]"], ["per [/mm]"], ["a :cat: b"]])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:]] == [
        "length [mm]", "per [/mm]", "a :cat: b",
    ]  # fmt: skip


# --- ratings ---------------------------------------------------------------------------------------------


def test_pairs_of_users_and_items_count_how_often_they_occur(tmp_path):
    """Two columns were refused, and a third of times was taken for the rating."""
    pairs = pd.DataFrame({"user_id": ["a", "a", "b", "b"], "item_id": ["x", "y", "x", "x"]})
    pairs.to_csv(tmp_path / "clicks.tsv", sep="\t", index=False)
    found = data.load(tmp_path / "clicks.tsv", kind="ratings")
    assert found.X.toarray().tolist() == [[1, 1], [2, 0]] and "times" not in found.extra
    timed = data.load(pairs.assign(created_at=[4, 3, 2, 9]), kind="ratings")
    assert timed.X.toarray().tolist() == [[1, 1], [2, 0]]
    assert timed.extra["times"].tolist() == [4, 3, 9]
    with pytest.raises(ValueError, match="Call two of them user and item"):
        data.load(pairs.set_axis(["a", "b"], axis=1), kind="ratings")


@pytest.mark.parametrize("name", ["unixReviewTime", "timestamp", "created_at", "review_date", "date"])
def test_times_of_ratings_are_found_by_many_names(name):
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3.0, 4.0], name: [20, 10]})
    assert data.load(frame, kind="ratings").extra["times"].tolist() == [20, 10]
    assert "times" not in data.load(frame.rename(columns={name: "update"}), kind="ratings").extra


def test_ratings_that_are_all_equal_are_ranked_by_lists():
    """The mean alone had no error at all."""
    from corollary import ALS, compare

    rng = np.random.default_rng(0)
    taste = np.kron(np.eye(2), np.ones((10, 10))) * (rng.random((20, 20)) < 0.6)
    users, items = np.nonzero(taste)
    board = compare(pd.DataFrame({"user": users, "item": items}), kind="ratings", systems=["als"], splits=2)
    assert board.metric == "NDCG@10" and board.rows[0]["system"] == "als"
    assert ALS._compare_params(data.load(taste, kind="ratings")) == {}


# --- the command line ------------------------------------------------------------------------------------


def test_thousands_of_columns_that_are_read_alike_are_one_line():
    from corollary.cli.describe import describe_columns, shortened

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 100)), columns=[f"g{i}" for i in range(100)])
    rows = describe_columns(data.load(frame.assign(tissue=["skin", "lung"] * 15)))
    assert len(rows) == 101
    assert [row["column"] for row in shortened(rows)] == ["g0 … g99 (100 columns)", "tissue"]
    assert shortened(rows[-10:]) == rows[-10:]


def test_a_setting_of_the_training_is_told_its_prefix():
    from corollary.cli.fitting import parse_settings

    with pytest.raises(ValueError, match=r"no parameter named 'epochs'.*--set training.epochs=VALUE"):
        parse_settings(["epochs=5"], {"latent": 2, "training": None}, "VAE")


# --- in memory -------------------------------------------------------------------------------------------


def test_a_target_in_a_frame_of_one_column_is_one_target():
    """It was taken for a set of labels, which few systems take."""
    y = pd.DataFrame({"kind": ["a", "b"] * 10})
    assert data.load(np.zeros((20, 2)), y=y).y.tolist() == ["a", "b"] * 10


def test_true_false_and_gaps_as_parquet_gives_them_are_numbers_in_the_fit_and_after_it():
    """A fit of such a frame failed: what it had read as numbers were words to it then."""
    frame = pd.DataFrame({"flag": [True, False, None] * 4, "kind": ["x", "y"] * 6})
    made = data.encoder().fit(frame)
    filled = made.transform(frame)[:, made.get_feature_names_out().tolist().index("flag is missing")]
    assert filled.tolist() == [0, 0, 1] * 4


# --- graphs ----------------------------------------------------------------------------------------------


def test_gml_is_read_as_graphml_is(tmp_path):
    import networkx as nx

    G = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"Person {i}")
    nx.write_gml(G, tmp_path / "k.gml")
    nx.write_graphml(G, tmp_path / "k.graphml")
    one, two = (data.load(tmp_path / f"k.{end}", target="club") for end in ("gml", "graphml"))
    assert np.array_equal(one.y, two.y) and one.extra["nodes"].tolist() == two.extra["nodes"].tolist()
    assert np.array_equal(one.X.edge_index, two.X.edge_index)
    (tmp_path / "bad.gml").write_text("graph [ node [ id")
    with pytest.raises(ValueError, match="load: bad.gml must be a GML file; got"):
        data.load(tmp_path / "bad.gml")


def test_a_graph_without_classes_is_told_how_to_name_them():
    """The command line was told to pass y."""
    from corollary import catalog
    from corollary.cli.fitting import _check_target

    edges = data.load(data.Graph(None, np.array([[0, 1], [1, 2]])))
    with pytest.raises(
        ValueError, match="fit needs classes of nodes to learn from; got e.csv without any. Add --target"
    ):
        _check_target(catalog.find("gcn"), edges, "e.csv")
    assert _check_target(catalog.find("mpnn"), edges, "e.csv") is None


def test_words_of_the_shell_for_true_and_false():
    from corollary.cli.fitting import parse_settings

    said = parse_settings(["a=true", "b=false", "c=null", "d=True"], dict.fromkeys("abcd"), "GAN")
    assert said == {"a": True, "b": False, "c": None, "d": True}


def test_samples_of_a_label_from_the_command_line(tmp_path):
    import numpy as np
    import pytest

    from corollary import Flow, Training
    from corollary.cli.using import sample_from

    X, y = (
        np.r_[np.zeros((60, 1)) - 9, np.zeros((60, 1)) + 9] + np.random.default_rng(0).normal(size=(120, 1)),
        [7] * 60 + [8] * 60,
    )
    for conditional in (True, False):
        model = Flow(
            "linear",
            conditional=conditional,
            training=Training(epochs=60, learning_rate=0.05),
            random_state=0,
        )
        model.fit(X, y).save(tmp_path / f"{conditional}.safetensors")
    out = tmp_path / "x.npy"
    means = []
    for label in "78":
        sample_from(tmp_path / "True.safetensors", 50, out, None, label)
        means.append(np.load(out).mean())
    assert means[0] < -3 < 3 < means[1]
    with pytest.raises(ValueError, match="Flow: no label named '9'. Closest: '7', '8'"):
        sample_from(tmp_path / "True.safetensors", 5, out, None, "9")
    with pytest.raises(ValueError, match="only a conditional model takes a label"):
        sample_from(tmp_path / "False.safetensors", 5, out, None, "7")


@pytest.mark.parametrize("names, others", [(["age", "pay", "pay"], "pay.1"), (["age", "pay", "payment"], "")])
def test_an_input_called_as_the_target_is_told(tmp_path, recwarn, names, others):
    """It stayed among the inputs without a word, and gave the target away."""
    rows = np.random.default_rng(0).normal(size=(20, 3)).round(3).astype(str).tolist()
    path = tmp_path / "pay.csv"
    path.write_text("\n".join(",".join(row) for row in [names, *rows]))
    X = data.load(path, target="pay").X
    said = [str(w.message) for w in recwarn if "several columns are called 'pay'" in str(w.message)]
    assert X.shape == (20, 2)
    assert len(said) == bool(others)
    assert all(f"--column {others}=ignore" in text for text in said)
