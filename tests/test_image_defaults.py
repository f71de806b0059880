"""What the data decide for models of images: how long to descend, which views to show; masks in and out as pictures."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from corollary import ImageClassifier, Segmenter, Training, data
from corollary.cli.app import app
from corollary.data import augment
from corollary.data.dataset import Dataset
from corollary.data.masks import write_masks
from corollary.engine.batches import Batch
from corollary.engine.budget import Budget
from corollary.engine.regularisers import Augment
from corollary.reporting import report
from corollary.vision.views import flips_of_labels, flips_of_masks

# --- how long --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 120, 400, 1797, 10_000, 1_000_000])
def test_a_budget_holds_its_bounds_and_is_spent(n):
    rule = Budget(600)
    size, epochs = rule.batch_size(n), rule.passes(n)
    assert 8 <= size <= 64 and 15 <= epochs <= 100
    updates = epochs * -(-n // size)
    assert updates >= 600 or epochs == 100
    assert updates < 600 + -(-n // size) or epochs == 15
    assert rule.passes(n, 10 * n) == 100  # one update an epoch


def pictures(n=60, side=12, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.uniform(0, 0.5, (n, side, side)).astype(np.float32)
    X[y == 1, 3:9, 3:9] += 0.4
    return X, y


def test_epochs_and_batches_follow_from_the_data_unless_given():
    X, y = pictures(60)
    make = lambda **plan: ImageClassifier("lenet", training=Training(**plan), random_state=0).fit(X, y)
    rule = ImageClassifier()._budget
    assert make(augment=0).n_iter_ == rule.passes(60)
    assert make(augment=0, batch_size=2).n_iter_ == rule.passes(60, 2) < rule.passes(60)
    assert make(augment=0, epochs=3).n_iter_ == 3
    model = ImageClassifier("lenet", training=Training(augment=0), random_state=0)
    assert model.partial_fit(X, y).partial_fit(X, y).n_iter_ == 2


# --- which views -----------------------------------------------------------------------------------------


def arrows(n=300, side=24, seed=0):
    """Wedges anywhere that point left or right."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(0.2, 0.1, (n, 1, side, side)), rng.integers(0, 2, n)
    wedge = 0.6 * (np.abs(np.arange(10) - 4.5)[:, None] <= 0.5 * np.arange(10))
    for image, right in zip(X, y):
        top, left = rng.integers(0, side - 10, 2)
        image[0, top : top + 10, left : left + 10] += wedge if right else wedge[:, ::-1]
    return X.clip(0, 1).astype(np.float32), y


def test_only_flips_that_keep_the_labels_are_shown():
    assert flips_of_labels(*arrows()) == {"vertical_flip": 0.5}
    X, y = arrows()
    assert flips_of_labels(X.swapaxes(2, 3), y) == {"flip": 0.5}
    digits = data.load("digits")
    assert flips_of_labels(digits.X[:, None].astype(float), digits.y) == {}
    rng = np.random.default_rng(0)  # labels that say nothing allow nothing
    assert flips_of_labels(rng.uniform(size=(200, 1, 12, 12)), rng.integers(0, 2, 200)) == {}
    assert flips_of_labels(X[:8], y[:8]) == {}


def test_masks_whose_classes_keep_to_a_side_are_not_mirrored():
    rng = np.random.default_rng(0)
    anywhere = np.zeros((60, 20, 20), int)
    for mask in anywhere:
        r, c = rng.integers(0, 14, 2)
        mask[r : r + 6, c : c + 6] = 1
    shown = lambda masks: (masks + rng.normal(0, 0.1, masks.shape))[:, None]
    assert flips_of_masks(shown(anywhere), anywhere, 2) == {"flip": 0.5, "vertical_flip": 0.5}
    sky = np.repeat(np.arange(20)[None, :, None] < 8, 60, 0) & np.ones((60, 20, 20), bool)
    sky, wall = sky.astype(int), sky.astype(int).swapaxes(1, 2)
    assert flips_of_masks(shown(sky), sky, 2) == {"flip": 0.5}
    assert flips_of_masks(shown(wall), wall, 2) == {"vertical_flip": 0.5}


def test_masks_of_what_looks_otherwise_in_a_mirror_are_not_mirrored():
    """Two classes are each other's mirror image: corners that open to the left and to the right."""
    rng = np.random.default_rng(0)
    images, masks = np.zeros((60, 1, 24, 24)), np.zeros((60, 24, 24), int)
    for image, mask in zip(images, masks):
        for k, (r, c) in enumerate(
            ((rng.integers(0, 4), rng.integers(0, 16)), (rng.integers(12, 16), rng.integers(0, 16)))
        ):
            kind = (k + rng.integers(0, 2)) % 2
            image[0, r, c : c + 8] = image[0, r + 7, c : c + 8] = 1
            image[0, r : r + 8, c + 7 * kind] = 1
            mask[r : r + 8, c : c + 8] = 1 + kind
    images += rng.normal(0, 0.05, images.shape)
    assert flips_of_masks(images, masks, 3) == {"vertical_flip": 0.5}


def test_moves_against_numpy():
    x = np.random.default_rng(0).uniform(size=(4, 2, 5, 7))
    offsets = torch.tensor([[0, 0], [2, -1], [-3, 3], [4, 6]])
    turned = torch.tensor([False, True, True, False]), torch.tensor([True, False, True, False])
    found = augment.move(torch.from_numpy(x), mirrored=turned[0], upturned=turned[1], offsets=offsets)
    for i in range(4):
        picture = x[i, :, :: -1 if turned[1][i] else 1, :: -1 if turned[0][i] else 1]
        padded = np.pad(picture, ((0, 0), (4, 4), (6, 6)), mode="reflect")
        r, c = offsets[i].tolist()
        np.testing.assert_array_equal(found[i], padded[:, 4 + r : 9 + r, 6 + c : 13 + c])


def test_masks_and_weights_move_with_their_images_and_processes_agree():
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 5, (8, 9, 9)))
    batch = Batch((y[:, None].double() / 5,), y, y.double() + 1, 8)
    views = Augment({"flip": 0.5, "vertical_flip": 0.5, "shift": 2})
    seeded = lambda: torch.Generator().manual_seed(3)
    moved = views.on_batch(batch, None, seeded())
    assert not torch.equal(moved.target, y)
    torch.testing.assert_close(moved.inputs[0][:, 0] * 5, moved.target.double())
    torch.testing.assert_close(moved.weight, moved.target.double() + 1)
    rows = slice(4, 8)  # what the second of two processes has of the batch
    part = Batch((batch.inputs[0][rows],), y[rows], batch.weight[rows], 8, rows)
    torch.testing.assert_close(views.on_batch(part, None, seeded()).target, moved.target[rows])


def test_the_views_are_kept_and_can_be_left_out():
    X, y = pictures(80)
    model = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(X, y)
    assert model.augment_["shift"] == 1
    plain = ImageClassifier("lenet", training=Training(epochs=1, augment=0), random_state=0).fit(X, y)
    assert not hasattr(plain, "augment_")


@pytest.mark.parametrize(
    ("views", "match"),
    [
        ({"flip": 2}, "flip must be a probability; got 2"),
        ({"shift": 1.5}, "shift must be a number of pixels; got 1.5"),
        ({"rotate": 9}, "images with masks can be mirrored and shifted; got rotate. Use flip"),
    ],
)
def test_views_of_masks_that_make_no_sense(views, match):
    X, y = pictures(20)
    with pytest.raises(ValueError, match=match):
        Segmenter(width=2, training=Training(epochs=1, augment=views)).fit(X, X > 0.5)


# --- masks as pictures -----------------------------------------------------------------------------------


def scene_folder(root, n=12, side=16, suffix="_mask.png", colours=False):
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    masks = np.zeros((n, side, side), np.uint8)
    for i, mask in enumerate(masks):
        r, c = rng.integers(0, side - 6, 2)
        mask[r : r + 6, c : c + 6] = 1 + i % 2
        pixels = (rng.uniform(0, 60, (side, side, 3)) + 90 * mask[:, :, None]).astype(np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"scene{i}.jpg")
        picture = np.array([[0, 0, 0], [255, 0, 0], [0, 0, 255]], np.uint8)[mask] if colours else mask
        Image.fromarray(picture).save(root / "masks" / f"scene{i}{suffix}")
    return masks


def test_images_and_masks_are_paired_by_name(tmp_path):
    masks = scene_folder(tmp_path / "grey")
    found = data.load(tmp_path / "grey")
    assert found.X.shape == (12, 3, 16, 16) and found.extra["files"][1] == "scene1.jpg"
    order = [int(name[5:-4]) for name in found.extra["files"]]
    np.testing.assert_array_equal(found.y, masks[order])
    scene_folder(tmp_path / "colour", suffix=".png", colours=True)
    named = data.load(tmp_path / "colour").y
    np.testing.assert_array_equal(named == "#0000ff", masks[order] == 2)
    assert set(np.unique(named)) == {"#000000", "#ff0000", "#0000ff"}


def test_masks_of_other_sizes_keep_their_labels(tmp_path):
    scene_folder(tmp_path)
    large = Image.open(tmp_path / "masks" / "scene0_mask.png").resize((48, 48), Image.Resampling.NEAREST)
    large.save(tmp_path / "masks" / "scene0_mask.png")
    assert set(np.unique(data.load(tmp_path).y)) == {0, 1, 2}


def test_a_mask_that_is_missing_or_blurred_is_named(tmp_path):
    scene_folder(tmp_path)
    (tmp_path / "masks" / "scene3_mask.png").unlink()
    with pytest.raises(
        ValueError, match="every image of images/ must have a mask .* none for 1, such as scene3"
    ):
        data.load(tmp_path)
    noise = np.random.default_rng(0).integers(0, 2**16, (16, 16)).astype(np.uint16)
    Image.fromarray(noise).save(tmp_path / "masks" / "scene3.png")
    Image.fromarray(noise[::-1].copy()).save(tmp_path / "masks" / "scene4_mask.png")
    with pytest.raises(ValueError, match="masks must have at most 256 labels"):
        data.load(tmp_path)


@pytest.mark.parametrize("classes", [[0, 3, 255], ["#000000", "#00ff00", "#ff8000"]])
def test_pictures_of_masks_are_read_as_they_were(tmp_path, classes):
    classes = np.array(classes)
    masks = classes[np.random.default_rng(0).integers(0, 3, (4, 9, 8))]
    write_masks(tmp_path / "masks", [f"{i}.jpg" for i in range(4)], masks, classes)
    (tmp_path / "images").mkdir()
    for i in range(4):
        Image.fromarray(np.full((9, 8), 60 * i, np.uint8)).save(tmp_path / "images" / f"{i}.jpg")
    np.testing.assert_array_equal(data.load(tmp_path).y, masks)


def test_labels_that_are_words_are_numbered_and_listed(tmp_path):
    classes = np.array(["cat", "dog"])
    write_masks(tmp_path, ["a.png"], classes[np.eye(3, dtype=int)][None], classes)
    assert (tmp_path / "classes.txt").read_text() == "0 cat\n1 dog\n"
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), np.eye(3))


def test_from_folders_to_pictures_on_the_command_line(tmp_path):
    scene_folder(tmp_path / "scenes")
    call = lambda *words: CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    run = tmp_path / "run"
    settings = ["--set", "width=4", "--set", "training.epochs=2", "--seed", 0, "--run", run]
    assert call("fit", "unet", "--data", tmp_path / "scenes", *settings).exit_code == 0
    page = (run / "report.html").read_text()
    assert "Worst cases" in page and "precision" in page and "scene" in page
    said = call("predict", run, "--data", tmp_path / "scenes" / "images", "--out", tmp_path / "found")
    assert "12 masks" in said.output
    found = np.asarray(Image.open(tmp_path / "found" / "scene7.png"))
    assert found.shape == (16, 16) and set(np.unique(found)) <= {0, 1, 2}
    one = tmp_path / "one.png"
    call("predict", run, "--data", tmp_path / "scenes" / "images" / "scene7.jpg", "--out", one)
    np.testing.assert_array_equal(np.asarray(Image.open(one)), found)
    table = tmp_path / "found.json"
    call("predict", run, "--data", tmp_path / "scenes" / "images", "--out", table)
    assert {row["file"] for row in json.loads(table.read_text())} == {f"scene{i}.jpg" for i in range(12)}


def test_the_report_of_classes_names_the_worst_files(tmp_path):
    X, y = pictures(40)
    model = ImageClassifier("lenet", training=Training(epochs=1), random_state=0).fit(X, y)
    wrong = Dataset(X, 1 - model.predict(X), "image", extra={"files": [f"photo{i}.png" for i in range(40)]})
    page = report(model, wrong, tmp_path / "report.html").read_text()
    assert "Worst cases" in page and "photo" in page
