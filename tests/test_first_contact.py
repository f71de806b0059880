"""A stranger's files at the command line and in Python: what is told, what is missing, and what is said about it."""

import json

import numpy as np
import pandas as pd
import pytest

import corollary
from corollary import compare, data
from corollary.embeddings import read_word2vec
from corollary.errors import CorollaryWarning


def sales(n=80, seed=0):
    """Mixed columns, numbers that are codes, and a target with gaps written in two ways."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"shop": rng.integers(1, 5, n), "kind": rng.choice(["a", "b"], n)})
    frame["size"] = rng.normal(size=n).round(3)
    frame["sold"] = np.where(frame["size"] + (frame["kind"] == "a") > 0.5, "yes", "no")
    frame.loc[[3, 11], "sold"] = ["?", ""]
    return frame


# --- rows without a target -------------------------------------------------------------------------------


def test_rows_without_a_target_are_left_out_with_a_word(tmp_path):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    with pytest.warns(
        CorollaryWarning, match="left out 2 of 80 rows of sales without a value of 'sold': 4, 12"
    ):
        found = data.load(tmp_path / "sales.csv", target="sold")
    assert len(found) == len(found.y) == 78 and set(found.y) == {"yes", "no"}
    np.testing.assert_array_equal(found.extra["rows"], np.setdiff1d(np.arange(80), [3, 11]))
    texts = pd.DataFrame({"text": list("abcd"), "y": [1.0, np.nan, 2.5, 3.0]})
    with pytest.warns(CorollaryWarning, match="left out 1 of 4 rows"):
        found = data.load(texts, "text", "y")
    assert found.X == ["a", "c", "d"] and found.y.tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize("y", [[1.5, None, 2.0, 3.0], np.array([1.5, np.nan, 2.0, 3.0]), [1.5, pd.NA, 2, 3]])
def test_a_target_in_memory_may_have_gaps(y):
    with pytest.warns(CorollaryWarning, match="left out 1 of 4 rows of the data without a target: 2"):
        found = data.load([[1.0], [2.0], [3.0], [4.0]], y=y)
    assert found.X.ravel().tolist() == [1.0, 3.0, 4.0] and found.y.dtype == float
    with pytest.raises(ValueError, match="some row of the data must have a target; got none"):
        data.load([[1.0]], y=[None])


@pytest.mark.filterwarnings("always::corollary.errors.CorollaryWarning")
def test_fit_compare_and_predict_of_a_table_with_gaps_in_its_target(tmp_path, run):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    code, _, err = run("fit", "logistic", "--data", "sales.csv", "--target", "sold", "--run", "a")
    assert code == 0 and "left out 2 of 80 rows" in err
    code, _, err = run("predict", "a", "--data", "sales.csv", "--target", "sold", "--out", "p.csv")
    assert code == 0 and len(pd.read_csv(tmp_path / "p.csv")) == 80, err
    words = ("--systems", "logistic", "--splits", "1", "--json", "--column", "shop=category")
    code, out, err = run("compare", "--data", "sales.csv", "--target", "sold", *words)
    assert code == 0 and "left out 2 of 80 rows" in err and json.loads(out)["task"] == "classification"


# --- what is told about columns --------------------------------------------------------------------------


def test_what_is_told_about_a_column_reaches_compare(tmp_path):
    frame = sales().dropna()
    frame = frame[frame["sold"].isin(["yes", "no"])]
    options = {"target": "sold", "systems": ["logistic"], "splits": 1, "rivals": "none"}
    board = compare(frame, columns={"shop": "category", "size": "ignore"}, **options)
    kinds = {c["name"]: c["kind"] for c in board.best.reader.reading["columns"]}
    assert kinds == {"shop": "category", "kind": "category", "size": "ignore"}
    with pytest.raises(ValueError, match="no column named 'shopp'. Closest: 'shop'"):
        compare(frame, columns={"shopp": "category"}, **options)
    with pytest.raises(ValueError, match=r"columns= \(--column\) is for tables; got data of kind image"):
        compare("digits", columns={"x": "number"})
    iris = data.load("iris")
    found = data.load(iris, columns={iris.feature_names[0]: "ignore"})
    model = corollary.LogisticRegression().fit(found)
    assert model.columns_[0]["kind"] == "ignore" and model.coef_.shape[1] == 3


def test_predict_reads_columns_as_the_fit_did_and_says_so(tmp_path, run):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    told = ("--column", "shop=category")
    code, _, err = run("fit", "logistic", "--data", "sales.csv", "--target", "sold", "--run", "a", *told)
    assert code == 0, err
    new = ("predict", "a", "--data", "sales.csv", "--out", "p.csv")
    assert run(*new, *told)[2] == ""
    code, _, err = run(*new, "--column", "shop=number")
    assert (
        code == 0 and "'shop' is read as category, as in the fit; --column shop=number has no effect" in err
    )
    code, _, err = run(*new, "--column", "shopp=number")
    assert code == 2 and "no column of the fit named 'shopp'. Closest: 'shop'" in err


def test_a_classifier_refuses_measurements(tmp_path, run):
    sales().to_csv(tmp_path / "sales.csv", index=False)
    code, _, err = run("fit", "logistic", "--data", "sales.csv", "--target", "size")
    assert code == 2 and "a classifier needs a target of classes; got 79 different numbers in 80 rows" in err
    assert "corollary list --role regressor" in err


# --- score and partial_fit -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
@pytest.mark.parametrize("name", ["logistic", "perceptron", "mlp", "softmax-regression"])
def test_score_takes_a_data_set(name):
    found = data.load(sales(), target="sold")
    model = corollary.create(name).fit(found)
    assert model.score(found) == model.score(found.X, found.y) == np.mean(model.predict(found.X) == found.y)
    with pytest.raises(ValueError, match="score needs targets; got none"):
        model.score(found.X)


def test_score_of_numbers_takes_a_data_set():
    found = data.load(sales().drop(columns="sold"), target="size")
    model = corollary.Ridge().fit(found)
    assert model.score(found) == model.score(found.X, found.y)


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
@pytest.mark.parametrize("make", [corollary.Perceptron, corollary.MLPClassifier])
def test_partial_fit_reads_later_frames_as_the_first(make):
    found = data.load(sales(), target="sold")
    frame, y = found.X, found.y
    model = make(random_state=0).partial_fit(frame.iloc[:40], y[:40], classes=["no", "yes"])
    columns = model.columns_
    later = frame.iloc[40:][[*frame.columns[::-1]]]  # another order, and a category that is new
    model.partial_fit(later.assign(kind=["c", *later["kind"][1:]]), y[40:])
    assert model.columns_ is columns and model.predict(frame).shape == y.shape
    plain = make(random_state=0).partial_fit(
        _numbers(frame.iloc[:40], columns), y[:40], classes=["no", "yes"]
    )
    plain.partial_fit(_numbers(later.assign(kind=["c", *later["kind"][1:]]), columns), y[40:])
    says = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    expected = getattr(plain, says)(_numbers(frame, columns))
    np.testing.assert_allclose(getattr(model, says)(frame), expected)


def _numbers(frame, columns):
    from corollary.data.columns import numbers_of

    return numbers_of(frame, columns)


@pytest.mark.parametrize("model", [corollary.PCA(1), corollary.GaussianMixture(1), corollary.BernoulliRBM(2)])
def test_partial_fit_of_what_has_no_target(model):
    frame = sales().drop(columns="sold")
    model.partial_fit(frame[:40])
    columns = model.columns_
    model.partial_fit(frame[40:])
    assert model.columns_ is columns and {c["kind"] for c in columns} == {"number", "category"}


# --- folders larger than memory --------------------------------------------------------------------------


def test_a_folder_larger_than_memory_is_decoded_as_batches_need_it(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(24):
        folder = tmp_path / "pets" / ("dark" if i % 2 else "light")
        folder.mkdir(parents=True, exist_ok=True)
        side = (12, 10) if i == 3 else (10, 10)
        values = rng.integers(0, 100, (*side, 3)) + (0 if i % 2 else 150)
        Image.fromarray(values.astype(np.uint8)).save(folder / f"{i:02d}.png")
    (tmp_path / "pets" / "dark" / "broken.png").write_bytes(b"no image")
    with pytest.warns(CorollaryWarning, match="left out 1 of 25|scaled and cropped"):
        whole = data.load(tmp_path / "pets")
    said = r"the 24 images of pets would take 0.0 GB; they are decoded as batches need them"
    with pytest.warns(CorollaryWarning, match=said), pytest.warns(CorollaryWarning, match="left out 1 of 25"):
        lazy = data.load(tmp_path / "pets", limits=data.Limits(memory=1000))
    assert lazy.extra["files"] == whole.extra["files"] and lazy.extra["skipped"] == whole.extra["skipped"]
    np.testing.assert_array_equal(lazy.X[:], whole.X)
    np.testing.assert_array_equal(lazy.y, whole.y)
    kept, held = data.split(lazy, 0.25, 0)
    np.testing.assert_array_equal(held.X[:], data.split(whole, 0.25, 0)[1].X)
    with pytest.raises(TypeError, match="takes data that fit into memory"):
        corollary.LogisticRegression().fit(kept)
    net = corollary.create("resnet", random_state=0, training=corollary.Training(epochs=2))
    assert net.fit(kept).predict(held).shape == held.y.shape


# --- what comes out is finite, and sizes are those of the file -------------------------------------------


def test_samples_and_recommendations_are_finite():
    rng = np.random.default_rng(0)
    ppca = corollary.ProbabilisticPCA(1).fit(rng.normal(size=(30, 3)))
    ppca.mean_ = ppca.mean_ * np.nan
    mixture = corollary.GaussianMixture(1).fit(rng.normal(size=(30, 3)))
    mixture.means_ = mixture.means_ * np.nan
    for model in (ppca, mixture):
        with pytest.raises(ValueError, match="what the model returns must be finite; got"):
            model.sample(4)
    als = corollary.ALS(2, random_state=0).fit(np.kron(np.eye(4), np.ones((3, 2))) * 3)
    _, scores = als.recommend([0], n=8)
    assert np.isneginf(scores).any()  # nothing is left to recommend: that is no accident
    als.item_factors_ = als.item_factors_ * np.nan
    with pytest.raises(ValueError, match="what the model returns must be finite"):
        als.recommend([0], n=2)


@pytest.mark.parametrize("binary", [False, True])
def test_a_small_file_of_vectors_asks_for_no_memory(tmp_path, binary):
    (tmp_path / "v.txt").write_bytes(b"2000000000 1000000\nword 1 2\n")
    with pytest.raises(ValueError, match="as many numbers as its first line says; got 2000000000 words"):
        read_word2vec(tmp_path / "v.txt", binary=binary)
    import bz2

    (tmp_path / "v.bz2").write_bytes(bz2.compress(b"0" * (2**29 + 2**20)))
    with pytest.raises(ValueError, match=r"the data of v.bz2 must fit into 536870912 bytes"):
        read_word2vec(tmp_path / "v.bz2", binary=binary)


@pytest.mark.parametrize("bomb", [{"n_embd": 2**24}, {"n_layer": 300_000}, {"n_positions": 2**36}])
def test_a_configuration_asks_for_no_more_than_its_weights(tmp_path, bomb):
    from transformers import GPT2Config, GPT2LMHeadModel

    small = GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(small).save_pretrained(tmp_path)
    corollary.GPT.from_transformers(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **bomb}))
    with pytest.raises(ValueError, match="the weights must be those of the configuration"):
        corollary.GPT.from_transformers(tmp_path)


def test_reports_show_the_coefficients_of_linear_models():
    from corollary.reporting.predictions import coefficients

    found = data.load("iris")
    model = corollary.SoftmaxRegression().fit(found.X, found.y)
    ((heading, table, _),) = coefficients(model, found)
    assert heading == "Coefficients" and table.headings == ("column", *map(str, model.classes_))
    assert table.rows[0][0] == found.feature_names[int(np.abs(model.coef_).max(0).argmax())]
    assert not list(coefficients(corollary.MLPClassifier(), found))


# --- files and frames as people have them ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_units_brackets_and_months_of_other_languages():
    frame = pd.DataFrame(
        {
            "weight": [f"{v} kg" for v in range(60, 84)],
            "profit": [f"(${v}.50)" if v % 2 else f"${v}.50" for v in range(24)],
            "booked": [f"{v},50-" if v % 2 else f"{v},50" for v in range(24)],
            "le": [
                f"{v % 27 + 1} {m} 2024" for v, m in enumerate(["janvier", "février", "août", "déc."] * 6)
            ],
            "am": [
                f"{v % 27 + 1}. {m} 2024" for v, m in enumerate(["März", "Mai", "Oktober", "Dezember"] * 6)
            ],
            "dia": [f"{v % 27 + 1} de {m} de 2024" for v, m in enumerate(["enero", "agosto"] * 12)],
            "when": [20240101 + v for v in range(24)],
            "room": [f"{v}{'AB'[v % 2]}" for v in range(24)],
        }
    )
    found = data.load(frame)
    assert found.X["weight"].tolist() == list(range(60, 84))
    assert found.extra["columns"]["weight"] == {"kind": "number", "unit": "kg"}
    assert found.X["profit"].tolist()[:4] == [0.5, -1.5, 2.5, -3.5]
    assert found.X["booked"].tolist()[:4] == [0.5, -1.5, 2.5, -3.5]
    assert found.X["le"].dt.month.tolist()[:4] == [1, 2, 8, 12] and found.X["le"].notna().all()
    assert found.X["am"].dt.month.tolist()[:4] == [3, 5, 10, 12] and found.X["dia"].dt.month.tolist()[:2] == [
        1,
        8,
    ]
    assert found.X["when"].dt.day.tolist() == list(range(1, 25))
    assert found.X["room"].tolist() == frame["room"].tolist()  # no one unit: a category
    made = corollary.PCA(2).fit(found)
    np.testing.assert_array_equal(made.transform(frame), made.transform(found))


def test_comments_above_a_table(tmp_path):
    (tmp_path / "log.dat").write_text("# made by a logger\n# t temp\n 0.5 20.1\n 1.0 20.3\n")
    found = data.load(tmp_path / "log.dat")
    assert found.feature_names == ["t", "temp"] and found.X.tolist() == [[0.5, 20.1], [1.0, 20.3]]
    (tmp_path / "a.csv").write_text("#id,kind\n1,a\n2,b\n")
    assert data.load(tmp_path / "a.csv").feature_names == ["id", "kind"]
    (tmp_path / "b.csv").write_text("# of 2024, by hand\nx,y,z\n1,2,3\n4,5,6\n")
    assert data.load(tmp_path / "b.csv").X.shape == (2, 3)


def test_a_cover_before_the_table_of_a_workbook_is_passed_over(tmp_path):
    """The two lines of a cover sheet were all the data."""
    cover, table = (
        pd.DataFrame({"report": ["by Bob", "2024"]}),
        pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}),
    )
    with pd.ExcelWriter(tmp_path / "report.xlsx") as book:
        pd.DataFrame().to_excel(book, sheet_name="blank", index=False)
        for name, sheet in {"cover": cover, "data": table, "more": table + 1}.items():
            sheet.to_excel(book, sheet_name=name, index=False)
    with pytest.warns(
        CorollaryWarning, match="read sheet 'data' of report.xlsx; not read: 'blank', 'cover', 'more'"
    ):
        found = data.load(tmp_path / "report.xlsx")
    np.testing.assert_array_equal(np.asarray(found.X), table)
    with pd.ExcelWriter(tmp_path / "column.xlsx") as book:
        cover.to_excel(book, sheet_name="only", index=False)
    assert data.load(tmp_path / "column.xlsx").X.shape == (2, 1)


def test_sheets_with_titles_and_two_rows_of_names(tmp_path):
    numbers = np.arange(20.0).reshape(5, 4)
    rows = [
        ["Lab 2024", *[None] * 4],
        [None] * 5,
        ["blood", None, "urine", None, "of"],
        ["Na", "K", "pH", "Na", "group"],
    ]
    rows += [[*row, "ab"[i % 2]] for i, row in enumerate(numbers)]
    with pd.ExcelWriter(tmp_path / "lab.xlsx") as book:
        pd.DataFrame([[None, *row] for row in rows]).to_excel(
            book, sheet_name="data", header=False, index=False
        )
        pd.DataFrame([[1]]).to_excel(book, sheet_name="notes", header=False, index=False)
    with pytest.warns(CorollaryWarning, match="read sheet 'data' of lab.xlsx; not read: 'notes'"):
        found = data.load(tmp_path / "lab.xlsx")
    assert found.feature_names == ["blood Na", "blood K", "urine pH", "urine Na", "of group"]
    np.testing.assert_array_equal(found.X.iloc[:, :4].to_numpy(float), numbers)
    pd.DataFrame([["a", "b"], ["x", "y"], ["z", "x"], ["y", "z"]]).to_excel(
        tmp_path / "words.xlsx", header=False, index=False
    )
    assert data.load(tmp_path / "words.xlsx").X.shape == (3, 2)  # words below words: one row of names


def test_columns_by_name_records_and_rows_in_memory():
    columns = {"size": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]}
    records = [{"size": s, "colour": c} for s, c in zip(*columns.values())]
    for given in (columns, records):
        found = data.load(given, target="colour")
        assert found.X.tolist() == [[1.0], [2.0], [3.0]] and found.y.tolist() == columns["colour"]
    rows = [[1.0, "red"], [2.0, "blue"]]
    for given in (rows, np.array(rows, dtype=object)):
        found = data.load(given)
        assert found.feature_names == ["x0", "x1"] and found.X["x0"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="columns must have one length"):
        data.load({"a": [1, 2], "b": [1]})


def test_frames_with_columns_of_one_name_and_with_levels():
    frame = pd.DataFrame([[1, 2, "a"], [3, 4, "b"]], columns=["x", "x", "y"])
    assert list(data.load(frame).feature_names) == ["x", "x.1", "y"]
    frame.columns = pd.MultiIndex.from_tuples([("blood", "Na"), ("blood", "K"), ("who", "")])
    assert list(data.load(frame).feature_names)[:2] == ["blood Na", "blood K"]


def test_what_is_infinite_is_a_gap(tmp_path):
    (tmp_path / "t.csv").write_text(
        "a,b,y\n" + "".join(f"{i},k{i % 2},{i * i % 17}\n" for i in range(30)) + "inf,k1,inf\n"
    )
    with pytest.warns(CorollaryWarning, match="left out 1 of 31 rows of t without a value of 'y': 31"):
        data.load(tmp_path / "t.csv", target="y")
    found = data.load(tmp_path / "t.csv")
    model = corollary.PCA(1).fit(found)
    assert model.columns_[0]["name"] == "a" and np.isfinite(model.transform(found)).all()


@pytest.mark.parametrize("last", ["7, 8", "?, 8", " -,8", "7,n/a", ",8", "7,eight"])
def test_numbers_only_at_the_head_of_a_file(tmp_path, last):
    """A file that begins like one of numbers is read quickly, and as any other if it goes on otherwise."""
    (tmp_path / "t.csv").write_text("a,b\n" + "1.5,2\n" * 3000 + last + "\n")
    found = data.load(tmp_path / "t.csv")
    end = found.X.iloc[-1] if hasattr(found.X, "iloc") else pd.Series(found.X[-1])
    wanted = [field.strip() for field in last.split(",")]
    for value, text in zip(end, wanted):
        assert pd.isna(value) if text in ("?", "-", "n/a", "") else str(value).removesuffix(".0") == text
