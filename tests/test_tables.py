"""Tables as people have them: read without a flag to the types that a person would choose, and learned from in Python."""

import json

import numpy as np
import pandas as pd
import pytest
from results._messy_tables import TABLES

import corollary
from corollary import data
from corollary.data.columns import learn_columns
from corollary.data.convert import as_input
from corollary.data.delimited import dialect_of
from corollary.data.detect import typed
from corollary.errors import CorollaryWarning


def kinds_of(dataset):
    columns = learn_columns(dataset.X, dataset.feature_names, dataset.extra.get("columns"))
    return {column["name"]: column["kind"] for column in columns}


@pytest.mark.parametrize("name", TABLES)
def test_real_tables_are_read_to_the_types_that_a_person_would_choose(name, tmp_path):
    make, written, special = TABLES[name]
    frame = make()
    frame.to_csv(tmp_path / "t.csv", index=False, **written)
    found = data.load(tmp_path / "t.csv")
    expected = dict.fromkeys(map(str, frame.columns), "number")
    expected |= {column: kind for kind, columns in special.items() for column in columns.split()}
    assert kinds_of(found) == expected
    for column in frame.columns:  # and their numbers are those of the table
        if expected[column] == "number" and pd.api.types.is_float_dtype(frame[column]):
            values = (
                found.X[column] if hasattr(found.X, "iloc") else found.X[:, found.feature_names.index(column)]
            )
            np.testing.assert_allclose(np.asarray(values), frame[column].to_numpy(), rtol=1e-12)


def test_what_is_learned_from_a_table_is_all_numbers(tmp_path):
    for name in ("penguins", "auctions", "shares"):
        make, written, _ = TABLES[name]
        make().to_csv(tmp_path / "t.csv", index=False, **written)
        found = as_input(data.load(tmp_path / "t.csv"), "table", "PCA")
        assert np.isfinite(found.X).all() and found.X.shape[1] == len(found.feature_names)


# --- the cases of issue 11 -------------------------------------------------------------------------------


def churn(n=2000, seed=0):
    """A table with an id, German dates, gaps written as ?, a constant, a category of many values and a text."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "customer_id": [f"C{i:06d}" for i in range(n)],
            "signup": pd.date_range("2020-01-01", periods=n, freq="7h").strftime("%d.%m.%Y"),
            "plan": rng.choice(["basic", "plus", "pro"], n),
            "city": rng.choice([f"city {i}" for i in range(n // 4)], n),
            "spend": rng.normal(size=n).round(3),
            "country": "DE",
        }
    )
    frame["review"] = [" ".join(rng.choice(["good", "bad", "slow", "fast"], 4)) + f" {i}" for i in range(n)]
    frame["churn"] = np.where((frame["plan"] == "basic") & (frame["spend"] > 0), "yes", "no")
    frame["spend"] = frame["spend"].astype(object)
    frame.loc[rng.random(n) < 0.03, "spend"] = "?"
    return frame


def test_iso_dates_odd_markers_and_decimal_commas(tmp_path):
    n = 100
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=n, freq="3D").strftime("%Y-%m-%d")
    value = [f"{v:.2f}".replace(".", ",") for v in rng.normal(size=n)]
    price = [
        f"{v:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".") for v in rng.uniform(1, 9999, n)
    ]
    odd = ["?" if i % 33 == 0 else str(i % 17) for i in range(n)]
    frame = pd.DataFrame({"day": day, "value": value, "price": price, "odd": odd})
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    found = data.load(tmp_path / "t.csv", target="price")
    assert kinds_of(found) == {"day": "date", "value": "number", "odd": "number"}
    assert found.y.dtype == float and found.y.max() > 1000 and found.X["odd"].isna().sum() == 4
    made = as_input(found, "table", "PCA")
    names = ["day", *(f"day {part} {wave}" for part in ("month", "day_of_week") for wave in ("sin", "cos"))]
    assert list(made.feature_names) == [*names, "value", "odd", "odd is missing"]
    december = pd.to_datetime(day).month == 12
    np.testing.assert_allclose(made.X[december, 1], 0, atol=1e-12)
    np.testing.assert_allclose(made.X[december, 2], 1)


def test_an_estimator_takes_a_mixed_frame_and_keeps_how_it_was_read(tmp_path):
    frame = churn()
    X, y = frame.drop(columns="churn"), frame["churn"]
    with pytest.warns(
        CorollaryWarning, match=r"left out 'customer_id' \(id: 2000 different.*'country' \(constant"
    ):
        model = corollary.LogisticRegression().fit(X, y)
    assert model.score(X, y) > 0.9
    kinds = {column["name"]: column["kind"] for column in model.columns_}
    assert kinds == {
        "customer_id": "id",
        "signup": "date",
        "plan": "category",
        "city": "category",
        "spend": "number",
        "country": "constant",
        "review": "text",
    }
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    shuffled = X[[*X.columns[::-1]]].assign(more=1)
    np.testing.assert_array_equal(again.predict_proba(shuffled), model.predict_proba(X))
    model.columns_[3]["means"] = model.columns_[3]["means"][1:]
    with pytest.raises(ValueError, match="columns_ of LogisticRegression must be means of shape"):
        model.save(tmp_path / "n.safetensors")
    model = again
    one = pd.DataFrame(
        {"signup": ["03.04.2020"], "plan": ["new"], "city": [None], "spend": ["n/a"], "review": ["good"]}
    )
    assert model.predict_proba(one).shape == (1, 2)
    with pytest.raises(
        ValueError, match="must have the columns of the fit; 'plan' is missing; got signup, city"
    ):
        model.predict(one.drop(columns="plan"))
    with pytest.raises(ValueError, match=r"column 'signup' must hold dates, as in the fit; got 'soon'"):
        model.predict(one.assign(signup="soon"))


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")
def test_an_estimator_takes_a_data_set():
    found = data.load(churn(300), target="churn")
    model = corollary.LogisticRegression().fit(found)
    assert np.mean(model.predict(found) == found.y) > 0.8
    np.testing.assert_array_equal(model.predict(found), model.predict(found.X))
    digits = data.load("digits")
    fitted = corollary.PCA(3).fit(digits)
    np.testing.assert_allclose(
        fitted.transform(digits), fitted.transform(digits.X.reshape(len(digits), -1) / 1.0)
    )
    with pytest.raises(ValueError, match="requires y"):
        corollary.LogisticRegression().fit(data.load(churn(300)))


def test_numbers_stay_where_they_are_and_fit_twice_is_fit_once():
    class Seen(corollary.PCA):
        def _check(self, X, reset):
            self.seen = X
            return super()._check(X, reset)

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 4)), columns=list("abcd"))
    model = Seen(2).fit(frame.assign(kind=["x", "y"] * 15))
    assert hasattr(model, "columns_")
    model.fit(frame)
    assert (
        model.seen is frame
        and not hasattr(model, "columns_")
        and model.feature_names_in_.tolist() == list("abcd")
    )
    with pytest.raises(
        ValueError, match="X must hold numbers, as in the fit; got column 'kind' of other values"
    ):
        model.transform(frame.assign(kind="x"))


def test_gaps_stay_where_a_model_takes_them_and_are_filled_and_marked_elsewhere():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    y = (frame["a"] > 0).astype(int)
    frame.loc[::7, "b"] = np.nan
    model = corollary.LogisticRegression().fit(frame, y)
    assert model.coef_.shape[1] == 4 and model.columns_[1]["missing"]
    assert corollary.ProbabilisticPCA(1).fit(frame).n_features_in_ == 3
    with pytest.raises(ValueError, match="NaN"):
        corollary.LogisticRegression().fit(frame.to_numpy(), y)


def test_mean_targets_do_not_leak():
    """A category of 500 random values says nothing about a random target, and must not seem to."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.integers(0, 500, 2000).astype(str), "x": rng.normal(size=2000)})
    frame["shop"] = "shop " + frame["shop"]
    y = rng.integers(0, 2, 2000)
    encoder = data.encoder()
    made = encoder.fit_transform(frame, y)
    (place,) = [i for i, name in enumerate(encoder.get_feature_names_out()) if name == "shop mean target"]
    fitted = abs(np.corrcoef(made[:, place], y)[0, 1])
    leaking = abs(np.corrcoef(encoder.transform(frame)[:, place], y)[0, 1])
    assert fitted < 0.1 < 0.3 < leaking  # about 2 / sqrt(2000) at chance


def test_mean_targets_are_those_of_scikit_learn():
    from sklearn.preprocessing import TargetEncoder

    rng = np.random.default_rng(1)
    shop = rng.integers(0, 40, 500)
    y = shop + rng.normal(size=500)
    frame = pd.DataFrame({"shop": [f"s{i}" for i in shop]})
    encoder = data.encoder().fit(frame, y)
    how = encoder.columns_[0]
    theirs = TargetEncoder(target_type="continuous").fit(frame, y).transform(frame)[:, 0]
    mine = encoder.transform(frame)[:, -1] * how["scale"][0] + how["mean"][0]
    np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    assert encoder.transform(pd.DataFrame({"shop": ["new"]}))[0, -1] == 0


def test_texts_become_topics_as_scikit_learn_makes_them():
    from sklearn.feature_extraction.text import TfidfVectorizer

    rng = np.random.default_rng(0)
    words = np.array("good bad slow fast cheap dear small large old new".split())
    texts = [" ".join(rng.choice(words, 6)) for _ in range(150)]
    encoder = data.encoder(columns={"review": "text"}).fit(pd.DataFrame({"review": texts}))
    how = encoder.columns_[0]
    weights = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts).toarray()
    np.testing.assert_allclose(
        encoder.transform(pd.DataFrame({"review": texts})), weights @ how["components"].T, atol=1e-5
    )


def test_a_column_can_be_told(tmp_path):
    (tmp_path / "t.csv").write_text(
        "zip,size,when\n" + "".join(f"{i % 3},{i},{2000 + i}\n" for i in range(30))
    )
    assert kinds_of(data.load(tmp_path / "t.csv"))["zip"] == "category"
    told = {"zip": "number", "size": "category", "when": "date"}
    assert kinds_of(data.load(tmp_path / "t.csv", columns=told)) == told
    assert kinds_of(data.load(tmp_path / "t.csv", columns={"size": "ignore"}))["size"] == "ignore"
    with pytest.raises(ValueError, match="load: no column named 'zap'. Closest: 'zip'"):
        data.load(tmp_path / "t.csv", columns={"zap": "number"})
    with pytest.raises(
        ValueError, match="no kind of column named 'numbr'. Closest: 'number'.* one of number, category"
    ):
        data.load(tmp_path / "t.csv", columns={"zip": "numbr"})


def test_every_form_of_number_and_date():
    forms = {
        "dollars": (["$1,200.50", "$3,000", "-", "$12"], "number", 1200.5),
        "comma": (["1,5", "2,25", "3", "n/a"], "number", 1.5),
        "points": (["1.234,50", "2,5", "3.000", "4"], "number", 1234.5),
        "thousands": (["1,234", "5,678", "12", "3"], "number", 1234),
        "percent": (["10%", "20 %", "5%", "1%"], "number", 10),
        "spaced": (["1 234", "5 678", "12", "3"], "number", 1234),
        "iso": (["2020-01-02", "2020-02-03", None, "2021-01-01"], "date", "2020-01-02"),
        "german": (["31.12.2020", "01.02.2021", "2.3.2021", "?"], "date", "2020-12-31"),
        "american": (["12/31/2020", "01/02/2021", "2/3/2021", "1/1/2021"], "date", "2020-12-31"),
        "british": (["31/12/2020", "01/02/2021", "2/3/2021", "1/1/2021"], "date", "2020-12-31"),
        "zoned": (["2020-01-01T10:00:00Z", "2020-01-01 12:00:00+02:00"] * 2, "date", "2020-01-01T10:00"),
        "clock": (["31.12.2020 10:30", "01.02.2021 11:00"] * 2, "date", "2020-12-31T10:30"),
        "quarter": (["1959Q1", "1960Q2"] * 2, "date", "1959-01-01"),
        "month": (["Jan 2020", "Feb 2020"] * 2, "date", "2020-01-01"),
        "version": (["1.2.3", "1.2.4"] * 2, None, "1.2.3"),
        "code": (["01234", "99999"] * 2, None, "01234"),
        "grade": (["1", "2", "3", "A"], None, "1"),
    }
    frame, read = typed(pd.DataFrame({name: values * 10 for name, (values, _, _) in forms.items()}))
    for name, (_, kind, first) in forms.items():
        assert read.get(name, {}).get("kind") == kind, name
        assert frame[name].iloc[0] == (pd.Timestamp(first) if kind == "date" else first), name


def test_an_ambiguous_date_is_read_in_new_data_as_in_the_fit():
    days = pd.date_range("2020-01-01", periods=60)
    frame = pd.DataFrame({"day": days.strftime("%d/%m/%Y"), "x": np.arange(60.0) ** 2})
    encoder = data.encoder().fit(frame)
    new = pd.DataFrame({"day": ["01/02/2020"], "x": [1.0]})  # the first of February
    np.testing.assert_allclose(encoder.transform(new)[0, 0], encoder.transform(frame)[31, 0])


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a;b\n1,5;2\n", (";", ",", ["a", "b"], True, 0)),
        ("a\tb\n1,5\t2\n", ("\t", ",", ["a", "b"], True, 0)),
        ("a|b\n1.5|2\n", ("|", ".", ["a", "b"], True, 0)),
        ("a;b\n1,234;2.5\n", (";", ".", ["a", "b"], True, 0)),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", (",", ".", ["x0", "x1", "x2"], False, 0)),
        ("land,2019,2020\nA,1,2\nB,3,4\n", (",", ".", ["land", "2019", "2020"], True, 0)),
        ("Report of 2020\n\na,b,c\n1,2,3\n4,5,6\n", (",", ".", ["a", "b", "c"], True, 1)),
        ("a,b\n1,2,\n3,4,\n", (",", ".", ["a", "b", ""], True, 0)),
        ("a,a,b\n1,2,3\n", (",", ".", ["a", "a.1", "b"], True, 0)),
        ("a b\n1 2\n3 4\n", (" ", ".", ["a", "b"], True, 0)),
        ("words\nall is well\n", (",", ".", ["words"], True, 0)),
    ],
)
def test_the_dialect_of_a_file(text, expected):
    found = dialect_of(text.encode(), "t.csv")
    assert (found.separator, found.decimal, found.names, found.header, found.skip) == expected


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"]
)
def test_encodings(tmp_path, encoding):
    lines = ["straße;größe\n", *(f"Änd{i};{i},5\n" for i in range(40))]
    (tmp_path / "t.csv").write_bytes("".join(lines).encode(encoding))
    found = data.load(tmp_path / "t.csv", target="größe")
    assert found.feature_names == ["straße"] and found.y[3] == 3.5 and found.X["straße"].iloc[2] == "Änd2"
    late = "a,b\n" + "x,1\n" * 100_000 + "é,2\n"  # beyond what is looked at
    (tmp_path / "u.csv").write_bytes(late.encode("latin-1"))
    assert data.load(tmp_path / "u.csv").X["a"].iloc[-1] == "é"


# --- other files -----------------------------------------------------------------------------------------


def test_excel_json_lines_and_databases_hold_the_same_table(tmp_path):
    import sqlalchemy

    frame = churn(40).replace({"?": None}).infer_objects()
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "t.json", orient="records")
    frame.to_json(tmp_path / "u.json", orient="columns")
    frame.to_parquet(tmp_path / "t.parquet")
    engine = sqlalchemy.create_engine(url := f"sqlite:///{tmp_path / 'shop.db'}")
    frame.to_sql("customers", engine, index=False)
    engine.dispose()
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = data.load(tmp_path / "t.csv", target="churn")
    for source in ("t.xlsx", "t.jsonl", "t.json", "u.json", "t.parquet", url, f"{url}#customers"):
        found = data.load(source if "://" in source else tmp_path / source, target="churn")
        pd.testing.assert_frame_equal(found.X.reset_index(drop=True), expected.X, check_dtype=False)
        assert found.y.tolist() == expected.y.tolist()
    few = data.load(f"{url}#select plan, spend from customers where plan = 'pro'")
    assert set(few.X["plan"]) == {"pro"}


def test_wrong_workbooks_records_and_databases(tmp_path):
    def refuse(source, message):
        with pytest.raises(ValueError, match=message):
            data.load(source)

    (tmp_path / "t.xlsx").write_text("no workbook")
    refuse(tmp_path / "t.xlsx", "t.xlsx must be an Excel workbook")
    (tmp_path / "t.xls").write_text("old")
    refuse(tmp_path / "t.xls", "must be an .xlsx file; got '.xls'. Save it as .xlsx or .csv")
    (tmp_path / "t.jsonl").write_text('{"a": 1}\nno\n')
    refuse(tmp_path / "t.jsonl", "t.jsonl must be JSON: one object per line")
    (tmp_path / "t.json").write_text("3")
    refuse(tmp_path / "t.json", "t.json must hold records; got int")
    refuse("nowhere://x", "the address must open a database")
    pd.DataFrame({"a": [1]}).to_sql("y", f"sqlite:///{tmp_path / 'a.db'}", index=False)
    refuse(f"sqlite:///{tmp_path / 'a.db'}#x", "no table named 'x'. Closest: 'y'")


# --- the command line ------------------------------------------------------------------------------------


def test_data_explains_a_table_and_fit_and_predict_read_alike(tmp_path, run):
    frame = churn(600)
    frame.to_csv(tmp_path / "churn.csv", index=False, sep=";", encoding="latin-1")
    told = json.loads(run("data", "churn.csv", "--json")[1])["columns"]
    rows = {row["column"]: row for row in told}
    assert rows["spend"]["read as"] == "number" and rows["spend"]["gaps"] == (frame["spend"] == "?").sum()
    assert rows["customer_id"]["what is done"] == "left out (600 different values)"
    assert rows["signup"]["what is done"].startswith("%d.%m.%Y; time, month, weekday")
    assert "probably the target: --target churn" in rows["churn"]["what is done"]
    shown = run("data", "churn.csv", "--column", "city=ignore")[1]
    assert "left out (as told)" in shown and "--column NAME=" in shown
    code, _, wrong = run("fit", "logistic", "--data", "churn.csv")
    assert code == 2 and "fit needs a target to learn from; got churn.csv without one." in wrong
    assert "Add --target churn. Columns: customer_id, signup" in wrong
    code, out, err = run("fit", "logistic", "--data", "churn.csv", "--target", "churn", "--run", "runs/a")
    assert code == 0 and "left out 'customer_id'" in err, out
    new = frame.drop(columns=["churn", "country"]).iloc[[7]].assign(signup="03.04.2020")
    new.to_csv(tmp_path / "new.csv", index=False)
    code, _, err = run("predict", "runs/a", "--data", "new.csv", "--out", "p.csv")
    assert code == 0, err
    made = pd.read_csv(tmp_path / "p.csv")
    assert made.columns.tolist() == ["customer_id", "prediction", "p(no)", "p(yes)"]
    model = corollary.load(tmp_path / "runs" / "a" / "model.safetensors")
    assert made["customer_id"].tolist() == ["C000007"]
    np.testing.assert_allclose(made[["p(no)", "p(yes)"]], model.predict_proba(new), rtol=1e-6)


def _mixed_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 120).astype(float),
            "price": rng.normal(1000, 300, 120).round(2),
            "city": rng.choice(["Rome", "Oslo", "Lima"], 120),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 120), "D"),
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "city"] = None
    return frame


def test_numbers_become_the_table_again():
    frame = _mixed_table()
    made = data.encoder().fit(frame)
    back = data.table_of(made.transform(frame), made.columns_)
    assert [*back.columns] == [*frame.columns]
    np.testing.assert_array_equal(back["age"], frame["age"])
    np.testing.assert_allclose(back["price"], frame["price"], rtol=1e-11)
    assert (back["seen"] == frame["seen"]).all()
    assert (back["city"].isna() == frame["city"].isna()).all()
    assert (back["city"].dropna() == frame["city"].dropna()).all()
    codes = data.encoder().fit(frame[["city", "price"]])
    with pytest.raises(ValueError, match=r"shape \(n, 5\); got shape \(3, 2\)"):
        data.table_of(np.zeros((3, 2)), codes.columns_)
    rare = pd.DataFrame(
        {"word": [f"w{i % 60}" for i in range(400)] + ["often"] * 600, "x": np.arange(1000) % 7}
    )
    made = data.encoder().fit(rare)
    assert set(data.table_of(made.transform(rare), made.columns_)["word"]) >= {"often", "other"}


def test_what_is_drawn_of_a_table_is_written_as_one(tmp_path, run):
    _mixed_table().to_csv(tmp_path / "own.csv", index=False)
    how = ("--set", "training.epochs=2", "--run", str(tmp_path / "r"))
    run("fit", "flows", "--data", str(tmp_path / "own.csv"), *how)
    run("sample", str(tmp_path / "r"), "-n", "40", "--out", str(tmp_path / "drawn.csv"))
    drawn = pd.read_csv(tmp_path / "drawn.csv", parse_dates=["seen"])
    assert [*drawn.columns] == ["age", "price", "city", "seen"]
    assert set(drawn["city"].dropna()) <= {"Rome", "Oslo", "Lima"}
    assert (drawn["age"].dropna() % 0.5 == 0).all()  # the grid of whole years and of the median that gaps got
    assert drawn["seen"].dt.year.between(2022, 2026).all()
    run("sample", str(tmp_path / "r"), "-n", "40", "--out", str(tmp_path / "drawn.npy"))
    assert np.load(tmp_path / "drawn.npy").shape == (40, 2 + 1 + 4 + 5)
