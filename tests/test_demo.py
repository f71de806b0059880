"""The demo's own data and what it says about them; the whole of it is `make demo`."""

import pandas as pd

from corollary import data
from corollary.cli import demo
from corollary.cli.demo_data import DISHES, write_customers, write_tastes
from corollary.cli.describe import describe_columns


def test_the_messy_table_is_read_as_a_person_would(tmp_path):
    path = write_customers(tmp_path / "customers.csv", n=400)
    kinds = {row["column"]: row["read as"] for row in describe_columns(data.load(path), None)}
    assert kinds == {
        "Kunden-Nr": "id",
        "seit": "date",
        "Ort": "category",
        "Tarif": "category",
        "Gebühr": "number",
        "Gebühr (Kopie)": "duplicate",
        "Anrufe": "number",
        "Stunden": "number",
        "Land": "constant",
        "gekündigt": "category",
    }
    title, body = demo._read(path)
    assert "Kunden-Nr" in body and "read and explained" in title


def test_recommendations_have_names(tmp_path):
    path = write_tastes(tmp_path / "tastes.csv")
    assert set(pd.read_csv(path)["item"]) == {dish for dishes in DISHES.values() for dish in dishes}
    _, body = demo._dishes(path)
    assert any(dish in body for dish in DISHES["Japanese"]) and "als leads" in body
