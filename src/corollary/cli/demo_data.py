"""Synthetic data of the demo: a messy table of customers, and ratings of dishes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["DISHES", "write_customers", "write_tastes"]

CITIES = ("Zürich", "Genève", "Köln", "Málaga", "Łódź", "Aarhus")
PLANS = ("basic", "plus", "family")

DISHES = {
    "Italian": (
        "Margherita",
        "Carbonara",
        "Lasagne",
        "Ossobuco",
        "Tiramisù",
        "Gnocchi al pesto",
        "Vitello tonnato",
    ),
    "Japanese": ("Ramen", "Nigiri", "Okonomiyaki", "Tempura", "Katsu curry", "Miso aubergine", "Mochi"),
    "Mexican": (
        "Tacos al pastor",
        "Enchiladas",
        "Mole poblano",
        "Ceviche",
        "Chilaquiles",
        "Tamales",
        "Churros",
    ),
    "Indian": (
        "Dal makhani",
        "Masala dosa",
        "Palak paneer",
        "Biryani",
        "Chana masala",
        "Vindaloo",
        "Gulab jamun",
    ),
    "French": (
        "Ratatouille",
        "Boeuf bourguignon",
        "Quiche lorraine",
        "Cassoulet",
        "Bouillabaisse",
        "Crème brûlée",
    ),
}
PEOPLE = (
    "Ada", "Ben", "Chloé", "Dilan", "Emre", "Fatima", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Lars", "Mei", "Nils",
    "Olga", "Priya", "Quentin", "Rosa", "Sven", "Tomás", "Uma", "Viktor", "Wanda", "Xenia", "Yusuf", "Zoë",
)  # fmt: skip


def write_customers(path: Path, n: int = 1500, seed: int = 0) -> Path:
    """Write a table with semicolons, decimal commas, dates, gaps, an id, a constant and a copy; one in eight leaves."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 1400, n)
    since = np.datetime64("2021-03-01") + days
    fee = np.round(rng.gamma(6, 6, n) + 9, 2)
    calls = rng.poisson(1.5 + 1.2 * (fee > 50))
    plan = rng.choice(PLANS, n, p=(0.5, 0.3, 0.2))
    city = rng.choice(CITIES, n)
    hours = np.round(rng.gamma(3, 4, n), 1)
    score = 0.75 * calls + 0.03 * fee - 0.0022 * days - 0.09 * hours + 0.9 * (plan == "basic")
    score += 0.8 * ((plan == "family") & (calls > 3)) + rng.logistic(0, 0.7, n)
    leaves = score > np.quantile(score, 0.875)
    lines = ["Kunden-Nr;seit;Ort;Tarif;Gebühr;Gebühr (Kopie);Anrufe;Stunden;Land;gekündigt"]
    for i in range(n):
        date = since[i].astype(object).strftime("%d.%m.%Y")
        price = f"{fee[i]:.2f}".replace(".", ",")
        hour = "?" if rng.random() < 0.03 else f"{hours[i]:.1f}".replace(".", ",")
        where = "" if rng.random() < 0.02 else city[i]
        answer = "ja" if leaves[i] else "nein"
        lines.append(
            f"K{10000 + 7 * i};{date};{where};{plan[i]};{price};{price};{calls[i]};{hour};CH;{answer}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_tastes(path: Path, seed: int = 0) -> Path:
    """Write who likes which dish how much: everyone has two favourite kitchens, and has tried a third of the dishes."""
    rng = np.random.default_rng(seed)
    kitchens, lines = list(DISHES), ["user,item,rating"]
    appeal = {dish: rng.normal(0, 0.4) for dishes in DISHES.values() for dish in dishes}
    people = [f"{name} {letter}." for letter in "ABCDEFGH" for name in PEOPLE]
    for person in people:
        loved = rng.choice(len(kitchens), 2, replace=False)
        for k, kitchen in enumerate(kitchens):
            for dish in DISHES[kitchen]:
                if rng.random() < 0.35:
                    stars = 2.6 + 1.7 * (k in loved) + appeal[dish] + rng.normal(0, 0.5)
                    lines.append(f"{person},{dish},{int(np.clip(np.round(stars), 1, 5))}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
