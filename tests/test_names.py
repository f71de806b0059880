"""Names of users, items and nodes go through the whole API; graphs from tables; measures of links and lists."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import corollary
from corollary import (
    ALS,
    BiasBaseline,
    LinkPredictor,
    NodeClassifier,
    SingularValueThresholding,
    Training,
    compare,
    data,
)
from corollary.comparison.links import CommonNeighbours, linked
from corollary.comparison.ranking import top_lists
from corollary.data.dataset import Dataset
from corollary.data.labels import as_names, names_to_keep, places, places_of_pairs
from corollary.errors import CorollaryWarning
from corollary.graphs.links import split_links

QUICK = {"hidden_layer_sizes": (8, 4), "training": Training(epochs=20), "random_state": 0}


def ratings(seed=0):
    """A table of stars: each user likes one half of the items."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"u{u}", f"film {i}", float(5 - 3 * ((u + i) % 2) + rng.integers(0, 2) * 0.5), 1000 * i + u)
        for u in range(12)
        for i in range(10)
        if rng.random() < 0.8
    ]
    return pd.DataFrame(rows, columns=["user", "item", "rating", "timestamp"])


# --- names -----------------------------------------------------------------------------------------------


def test_names_and_numbers():
    assert (
        names_to_keep(range(3)) is None and names_to_keep(["a", "a"]) is None and names_to_keep([1.5]) is None
    )
    assert names_to_keep([3, 1]).tolist() == [3, 1]
    ids = np.array([10, 20])
    assert places([20, "10"], ids, 2, "user", "ALS").tolist() == [1, 0]
    assert places("20", ids, 2, "user", "ALS").tolist() == [1]
    with pytest.raises(ValueError, match="ALS: no user named '5'. Closest"):
        places([5], ids, 2, "user", "ALS")
    with pytest.raises(
        TypeError, match="users of this model are numbers from 0 to 1; got 'ann'. Fit it to a table"
    ):
        places(["ann"], None, 2, "user", "ALS")
    assert as_names(np.array([[1, -1]]), ids).tolist() == [[20, -1]]
    pairs = places_of_pairs([("a", "b")], (np.array(["a", "b"]),) * 2, (2, 2), ("node", "node"), "X")
    assert [part.tolist() for part in pairs] == [[0], [1]]


@pytest.mark.parametrize(
    "model",
    [ALS(2, random_state=0), BiasBaseline(), SingularValueThresholding(random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_a_table_of_ratings_is_answered_by_its_names(model, tmp_path):
    frame = ratings()
    model.fit(frame)
    given = data.load(frame, kind="ratings")
    user, item = "u3", "film 7"
    place = given.extra["users"].tolist().index(user), given.extra["items"].tolist().index(item)
    by_number = type(model)(**model.get_params()).fit(given.X).predict([place])
    np.testing.assert_allclose(model.predict([(user, item)]), by_number, rtol=1e-6)
    np.testing.assert_allclose(
        model.predict(frame[["user", "item"]].head(1)), model.predict([("u0", frame.item[0])])
    )
    with pytest.warns(
        CorollaryWarning, match="the fit has not seen user 'nobody'; answered as the average user"
    ):
        assert np.isfinite(model.predict([("nobody", item)])).all()
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict([(user, item)]), model.predict([(user, item)]))
    assert model.score(frame) == pytest.approx(
        type(model)(**model.get_params()).fit(given.X).score(given.X), rel=1e-5
    )
    some = frame[frame.user == "u3"]
    known = model.complete(some)
    assert known.shape == model.shape_
    np.testing.assert_allclose(known[place[0]][given.X[place[0]].indices], some.sort_values("item").rating)


def test_recommendations_by_name():
    frame = ratings()
    model = ALS(2, random_state=0).fit(data.load(frame, kind="ratings"))
    items, scores = model.recommend(["u5", "u2"], 3)
    rated = set(frame[frame.user == "u5"].item)
    assert items.dtype.kind == "U" and not rated & set(items[0]) - {""} and scores.shape == (2, 3)
    only, _ = model.recommend("u5", 2, items=["film 1", "film 2"], seen=None)
    assert set(only[0]) == {"film 1", "film 2"}
    with pytest.warns(CorollaryWarning, match="has not seen user 'new'"):
        popular, said = model.recommend(["new"], 4)
    order = np.argsort(-model.item_bias_)[:4]
    assert popular[0].tolist() == model.items_[order].tolist() and (np.diff(said[0]) <= 0).all()
    assert (
        model.similar(["film 3"], 2)[0][0, 0] == "film 3" and model.similar_users(["u1"], 1)[0][0, 0] == "u1"
    )
    why = model.explain("u5", "film 1")
    assert set(why.items) <= rated
    with pytest.raises(ValueError, match="ALS: no item named 'film 99'"):
        model.similar(["film 99"])


def test_new_users_and_items_with_names():
    frame = ratings()
    model = ALS(2, random_state=0).fit(frame)
    fresh = pd.DataFrame(
        {"user": ["zoe"] * 3, "item": ["film 1", "film 3", "film 5"], "rating": [5.0, 5.0, 5.0]}
    )
    assert model.add_users(fresh).tolist() == ["zoe"] and model.users_[-1] == "zoe"
    assert model.recommend(["zoe"], 3)[0][0, 0] not in fresh.item.tolist()
    with pytest.raises(ValueError, match="names of new users must be new; got 'zoe'"):
        model.add_users(fresh)
    with pytest.raises(ValueError, match="new items of a model with names must have names; got none"):
        model.add_items(np.full((13, 1), 3.0))
    assert model.add_items(np.full((13, 1), 3.0), names=["film x"]).tolist() == ["film x"]


def test_integer_ids_are_ids_and_not_rows():
    frame = ratings().assign(user=lambda f: f.user.str[1:].astype(int) + 100)
    model = ALS(2, random_state=0).fit(frame)
    assert model.recommend([103], 1)[0].shape == (1, 1)
    with pytest.warns(CorollaryWarning, match="has not seen user 3"):
        model.recommend([3], 1)


def test_new_users_of_counts_get_what_most_like():
    frame = ratings().assign(rating=1.0)
    model = ALS(3, feedback="implicit", random_state=0).fit(frame)
    with pytest.warns(CorollaryWarning, match="average user"):
        items, scores = model.recommend(["new"], 10)
    mean = model.user_factors_.mean(0) @ model.item_factors_.T
    np.testing.assert_allclose(scores[0], np.sort(mean)[::-1], rtol=1e-4)


# --- ratings in time, and lists --------------------------------------------------------------------------


def test_ratings_are_divided_by_time():
    found = data.load(ratings(), kind="ratings")
    kept, held = data.split(found, 0.25, by="time")
    assert kept.extra["times"].max() <= held.extra["times"].min() and kept.X.nnz + held.X.nnz == found.X.nnz
    assert kept.X.nnz == len(kept.extra["times"])
    parts = list(data.splits(found, 3, 0.2, by="time"))
    ends = [held.extra["times"].max() for _, held in parts]
    assert ends == sorted(ends, reverse=True) and all(
        k.extra["times"].max() <= h.extra["times"].min() for k, h in parts
    )
    dated = ratings().assign(timestamp=lambda f: pd.to_datetime(f.timestamp, unit="s").astype(str))
    np.testing.assert_allclose(data.load(dated, kind="ratings").extra["times"], found.extra["times"])
    with pytest.raises(
        ValueError, match="dividing by time needs ratings with times; got 'data' of kind ratings without"
    ):
        data.split(data.load(found.X), 0.2, by="time")
    with pytest.raises(ValueError, match="split: no way to divide named 'date'"):
        data.split(found, 0.2, by="date")
    board = compare(found, systems=["baseline"], splits=2, progress=False)
    assert any("follow in time" in note for note in board.notes) and "recall@10" in board.rows[0]["scores"]


def test_precision_recall_and_gain_by_hand():
    from scipy.sparse import csr_matrix

    held = csr_matrix(np.array([[5.0, 0, 5, 0, 0], [0, 5.0, 0, 0, 0]]))

    class Fixed:
        def predict(self, pairs):
            return -np.asarray(pairs)[:, 1].astype(float)  # item 0 first, then 1, ...

    found = top_lists(Fixed(), held, k=2)
    # user 0: list 0, 1 has one of two; user 1: list 0, 1 has its one, second
    gains = (1 / (1 + 1 / np.log2(3)), 1 / np.log2(3))
    assert found == pytest.approx({"precision@2": 0.5, "recall@2": (0.5 + 1) / 2, "NDCG@2": np.mean(gains)})


# --- graphs ----------------------------------------------------------------------------------------------


def test_nodes_by_name(tmp_path):
    G = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"person {i}")
    model = LinkPredictor(**QUICK).fit(G)
    numbers = LinkPredictor(**QUICK).fit(nx.karate_club_graph())
    pair = [("person 0", "person 33"), ("person 2", "person 8")]
    np.testing.assert_allclose(model.link_probability(pair), numbers.link_probability([[0, 33], [2, 8]]))
    assert corollary.load(model.save(tmp_path / "m.safetensors")).nodes_.tolist() == list(G.nodes)
    with pytest.raises(ValueError, match="LinkPredictor: no node named 'nobody'"):
        model.link_probability([("person 0", "nobody")])
    pairs, chances = model.missing_links(5)
    assert (
        pairs.shape == (5, 2)
        and not any(G.has_edge(a, b) for a, b in pairs)
        and (np.diff(chances) <= 0).all()
    )
    every = [(a, b) for a in G for b in G if a < b and not G.has_edge(a, b)]
    assert chances[0] == pytest.approx(model.link_probability(every).max(), rel=1e-5)


def test_nodes_without_features_are_found_by_name():
    G = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"n{i}")
    nx.set_node_attributes(G, nx.get_node_attributes(G, "club"), "y")
    model = NodeClassifier(training=Training(epochs=30), random_state=0).fit(G)
    turned = nx.Graph()
    turned.add_nodes_from(reversed(list(G.nodes(data=True))))
    turned.add_edges_from(G.edges(data=True))
    np.testing.assert_allclose(model.predict_proba(turned)[::-1], model.predict_proba(G), atol=1e-5)


def test_a_node_attribute_is_the_target():
    G = nx.karate_club_graph()
    found = data.load(G, target="club")
    assert found.kind == "graph" and set(found.y) == {"Mr. Hi", "Officer"} and found.X.x is None
    assert NodeClassifier(training=Training(epochs=60), random_state=0).fit(found).score(found) > 0.9
    nx.set_node_attributes(G, {n: float(d) for n, d in G.degree()}, "degree")
    assert data.load(G, target="club").X.x.tolist() == [[float(d)] for _, d in G.degree()]
    assert "y" not in G.nodes[0]
    with pytest.raises(ValueError, match="no node attribute named 'clb'. Closest: 'club'"):
        data.load(G, target="clb")


NODES = "id,age,town,party\nann,30,Ulm,left\nbob,41,Bonn,\ncid,25,Ulm,right\ndee,60,Bonn,left\n"
EDGES = "source,target,weight\nann,bob,2\nbob,cid,1\n"


def test_a_table_of_nodes_and_one_of_edges(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    found = data.load(tmp_path, target="party")
    graph = found.X
    assert (
        graph.num_nodes == 4 and graph.num_edges == 4 and graph.nodes.tolist() == ["ann", "bob", "cid", "dee"]
    )
    assert found.y.tolist() == ["left", None, "right", "left"] and graph.edge_weight.tolist() == [2, 2, 1, 1]
    assert graph.x.shape[0] == 4 and graph.x.shape[1] >= 2
    model = NodeClassifier(training=Training(epochs=3), random_state=0).fit(found)
    assert model.predict(found).shape == (4,)
    new = data.load(tmp_path, reading=found.extra["reading"])
    np.testing.assert_allclose(new.X.x[:, : graph.x.shape[1]], graph.x, atol=1e-6)
    pair = (tmp_path / "nodes.csv", tmp_path / "edges.csv")
    frames = tuple(pd.read_csv(path) for path in pair)
    for other in (pair, frames):
        same = data.load(other, target="party")
        np.testing.assert_allclose(same.X.x, graph.x)
        np.testing.assert_array_equal(same.X.edge_index, graph.edge_index)
    one_way = data.load(frames, target="party", directed=True).X
    assert one_way.edge_index.tolist() == [[0, 1], [1, 2]]
    with pytest.raises(ValueError, match="must join nodes of its table; got 'eve'. Give every node a row"):
        data.load((frames[0], pd.DataFrame({"source": ["ann"], "target": ["eve"]})))
    with pytest.raises(ValueError, match="no column named 'partei'. Closest: 'party'"):
        data.load(tmp_path, target="partei")
    with pytest.raises(
        ValueError, match="every node must have an id of its own in column 'id'; got 0 missing, 1 again"
    ):
        data.load((pd.concat([frames[0], frames[0].head(1)]), frames[1]))


@pytest.mark.parametrize(
    "text, edges, weight",
    [
        ("a b {'weight': 2.5}\nb c {}\n", [[0, 1, 1, 2], [1, 0, 2, 1]], [2.5, 2.5, 1, 1]),
        (
            "a b {'weight': 2, 'kind': 'x'}\nlonely\nb c {'weight': 3}\n",
            [[0, 1, 1, 2], [1, 0, 2, 1]],
            [2, 2, 3, 3],
        ),
        ("# Directed graph: pairs once\na b\nb c\n", [[0, 1], [1, 2]], None),
        ("Source,Target,Type,Weight\na,b,Directed,2\nb,c,Undirected,1\n", [[0, 1, 2], [1, 2, 1]], [2, 1, 1]),
        ("weight,to,from\n2,b,a\n1,c,b\n", None, None),
    ],
)
def test_edge_lists_as_others_write_them(tmp_path, text, edges, weight):
    path = tmp_path / "g.edgelist"
    path.write_text(text)
    if edges is None:
        with pytest.raises(ValueError, match="weights of g.edgelist must be numbers"):
            data.load(path)
        return
    found = data.load(path).X
    assert found.edge_index.tolist() == edges
    assert found.edge_weight is None if weight is None else found.edge_weight.tolist() == weight
    assert found.num_nodes == 3 + ("lonely" in text)


def test_what_networkx_writes_is_read(tmp_path):
    G = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"n{i:02d}")
    nx.write_edgelist(G, tmp_path / "g.edgelist")
    nx.write_weighted_edgelist(G, tmp_path / "w.edgelist")
    for name in ("g", "w"):
        found = data.load(tmp_path / f"{name}.edgelist").X
        assert found.num_nodes == 34 and found.num_edges == 2 * G.number_of_edges()
        assert found.edge_weight.sum() == 2 * sum(w for *_, w in G.edges(data="weight"))


def test_links_are_measured_on_held_out_edges(tmp_path):
    G = nx.connected_caveman_graph(8, 8)
    kept, held = split_links(G, 0.2)
    near = CommonNeighbours().fit(kept)
    found = linked(near, Dataset(held, kind="graph", extra={"seen": kept.edge_index}))
    assert (
        found["ROC AUC"] > 0.95 and found["hits@50"] >= found["hits@10"] and found["average precision"] > 0.8
    )
    adamic = {
        frozenset(e[:2]): e[2]
        for e in nx.adamic_adar_index(nx.Graph(kept.edge_index.T.tolist()), [(0, 7), (3, 5)])
    }
    ours = near._probability(np.array([0, 3]), np.array([7, 5]))
    np.testing.assert_allclose(ours, [adamic[frozenset((0, 7))], adamic[frozenset((3, 5))]])
    board = compare(data.load(G), systems=[LinkPredictor(**QUICK)], splits=2, progress=False)
    assert board.task == "links" and {row["system"] for row in board.rows} == {
        "LinkPredictor",
        "neighbours",
        "degrees",
    }
    assert all(row["score"] is not None for row in board.rows)


def test_everything_by_star():
    space = {}
    exec("from corollary import *", space)
    assert {"ALS", "TextCNN", "Training", "compare"} <= space.keys() and space.get("list", list) is list
