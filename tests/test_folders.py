"""Folders as people have them: mixed sizes, rates, channels, depths and encodings, and files that are broken."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.io import wavfile

import corollary
from corollary import data
from corollary.errors import CorollaryWarning

RNG = np.random.default_rng(0)


def picture(path, height, width, mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path, **options)
    return path


# --- images ----------------------------------------------------------------------------------------------


def test_images_of_different_sizes_get_the_commonest_one(tmp_path):
    for i in range(3):
        picture(tmp_path / f"{i}.png", 20, 30)
    picture(tmp_path / "large.png", 80, 60)
    with pytest.warns(CorollaryWarning, match="1 of 4 images of .* are scaled and cropped to 20 x 30"):
        found = data.load(tmp_path)
    assert found.X.shape == (4, 3, 20, 30) and found.extra["files"] == [
        "0.png",
        "1.png",
        "2.png",
        "large.png",
    ]
    assert found.extra["reading"] == {"size": [20, 30], "channels": 3}
    untouched = np.asarray(Image.open(tmp_path / "0.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(found.X[0], untouched)


def test_without_a_common_size_images_get_the_median_one_and_no_side_above_256(tmp_path):
    for i, side in enumerate((400, 600, 1000)):
        picture(tmp_path / f"{i}.png", side, side // 2)
    with pytest.warns(CorollaryWarning, match="3 of 3 images .* 256 x 128"):
        assert data.load(tmp_path).X.shape == (3, 3, 256, 128)


def test_an_image_is_cropped_around_its_centre(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255  # the middle third is white
    Image.fromarray(wide).save(tmp_path / "wide.png")
    found = data.load(tmp_path / "wide.png", reading={"size": [10, 10], "channels": 1})
    assert found.X.shape == (1, 10, 10) and (found.X == 255).all()


def test_a_broken_picture_is_left_out_and_named(tmp_path):
    for label in ("cat", "dog"):
        for i in range(3):
            picture(tmp_path / label / f"{i}.png", 8, 8)
    whole = (tmp_path / "dog" / "1.png").read_bytes()
    (tmp_path / "dog" / "1.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cat" / "0.png").write_text("no picture")
    with pytest.warns(
        CorollaryWarning, match=r"left out 2 of 6 images of .*: 0.png, 1.png. 0.png must be an image"
    ):
        found = data.load(tmp_path)
    assert found.y.tolist() == ["cat", "cat", "dog", "dog"] and len(found.X) == 4
    assert found.extra["skipped"] == ["cat/0.png", "dog/1.png"] and found.extra["files"][0] == "cat/1.png"
    for i in (1, 2):
        (tmp_path / "cat" / f"{i}.png").write_text("no picture")
    with pytest.raises(
        ValueError, match="most of the 6 images of .* must be readable; got 4 that are not; 0.png"
    ):
        data.load(tmp_path)


def test_cameras_palettes_and_transparency(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # turn it by 90 degrees to look at it
    picture(tmp_path / "a.jpg", 20, 40, exif=turned)
    assert data.load(tmp_path / "a.jpg").X.shape == (1, 3, 40, 20)
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[0, 0] = (255, 0, 0, 255)
    Image.fromarray(clear).save(tmp_path / "b.png")
    found = data.load(tmp_path / "b.png").X[0]
    assert found[:, 0, 0].tolist() == [255, 0, 0] and (found[:, 1:] == 255).all()  # what is clear is white
    Image.fromarray(clear).convert("LA").save(tmp_path / "c.png")
    assert data.load(tmp_path / "c.png").X[0].max() == 255
    palette = picture(tmp_path / "d.png", 6, 6, "P")
    expected = np.asarray(Image.open(palette).convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(data.load(palette).X[0], expected)


def deep(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, np.uint16)).save(path)


def test_16_bits_have_one_scale_for_all_images(tmp_path):
    """Grey values 250, 260 and 4095 stay in that order and in that proportion, in one image and across several."""
    deep(tmp_path / "a.png", np.full((8, 8), 250))
    deep(tmp_path / "b.png", np.full((8, 8), 260))
    deep(tmp_path / "c.png", np.full((8, 8), 4095))
    found = data.load(tmp_path)
    assert found.X.dtype == np.uint16 and found.X[:, 0, 0].tolist() == [250, 260, 4095]
    rows = data.load(found, kind="table").X
    np.testing.assert_allclose(rows[:, 0], np.array([250, 260, 4095]) / 4095, rtol=1e-6)
    picture(tmp_path / "d.png", 8, 8, "L")  # 8 bits beside them are spread over all 16
    mixed = data.load(tmp_path).X
    np.testing.assert_array_equal(
        mixed[3], np.asarray(Image.open(tmp_path / "d.png")).astype(np.uint16) * 257
    )


def test_the_scale_of_16_bits_is_kept_with_the_model(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.integers(0, 1500, (10, 8, 8)), rng.integers(2500, 4096, (10, 8, 8))]).astype(
        np.uint16
    )
    X[-1, 0, 0] = 4095
    y = np.repeat(["dark", "light"], 10)
    training = corollary.Training(epochs=2)
    model = corollary.ImageClassifier(training=training, random_state=0).fit(X, y)
    again = corollary.load(model.save(tmp_path / "m.safetensors"))
    assert again.pixel_levels_ == 4095
    dark = X[:4]  # alone, their range would be that of 11 bits
    np.testing.assert_allclose(again.predict_proba(dark), model.predict_proba(X)[:4], atol=1e-6)
    np.testing.assert_allclose(
        again.predict_proba(dark), model.predict_proba(dark / np.float32(4095)), atol=1e-6
    )
    listed = [Image.fromarray(image) for image in dark]
    np.testing.assert_array_equal(again.predict_proba(listed), again.predict_proba(dark))
    fitted = corollary.PCA(2).fit(data.load(X))
    np.testing.assert_allclose(
        fitted.transform(data.load(dark)), fitted.transform(data.load(X))[:4], rtol=1e-5
    )


# --- sounds ----------------------------------------------------------------------------------------------


def test_sounds_of_two_rates_and_mono_beside_stereo(tmp_path):
    time = {rate: np.arange(rate) / rate for rate in (8000, 16000)}
    tone = {rate: (np.sin(2 * np.pi * 440 * t) * 2**14).astype(np.int16) for rate, t in time.items()}
    wavfile.write(tmp_path / "a.wav", 8000, tone[8000])
    wavfile.write(tmp_path / "b.wav", 8000, np.column_stack([tone[8000], tone[8000]]))
    wavfile.write(tmp_path / "c.wav", 16000, tone[16000])
    (tmp_path / "d.wav").write_text("no sound")
    with pytest.warns(CorollaryWarning) as caught:
        found = data.load(tmp_path)
    said = " ".join(str(w.message) for w in caught)
    assert "of 3 sounds of" in said and "1 resampled to 8000 Hz and 1 mixed to 1 channel." in said
    assert "left out 1 of 4 sounds" in said and "d.wav must be a WAV file" in said
    assert [x.shape for x in found.X] == [(8000, 1)] * 3 and found.extra["rate"] == 8000
    middle = slice(1000, 7000)  # the filter of the resampling has edges
    np.testing.assert_allclose(found.X[2][middle], found.X[0][middle], atol=2e-3)
    np.testing.assert_allclose(found.X[1], found.X[0], atol=1e-6)
    with pytest.warns(CorollaryWarning, match="1 resampled to 8000 Hz"):
        again = data.load(tmp_path / "c.wav", reading=found.extra["reading"])
    assert again.X[0].shape == (8000, 1)


# --- texts and edges -------------------------------------------------------------------------------------


def test_texts_in_any_encoding(tmp_path):
    for i, encoding in enumerate(("utf-8", "utf-8-sig", "utf-16", "latin-1")):
        (tmp_path / f"{i}.txt").write_bytes("Füße und Bäume\nsind schön".encode(encoding))
    found = data.load(tmp_path)
    assert found.X == ["Füße und Bäume\nsind schön"] * 4 and found.extra["files"] == [
        f"{i}.txt" for i in range(4)
    ]
    (tmp_path / "4.txt").write_bytes(b"\x00\x01\xff\x02")
    with pytest.warns(CorollaryWarning, match="left out 1 of 5 texts .* 4.txt must be text"):
        assert len(data.load(tmp_path).X) == 4


def test_a_single_file_is_read_as_those_of_the_fit(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("one\ntwo")
    reading = data.load(tmp_path / "docs").extra["reading"]
    found = data.load(tmp_path / "docs" / "a.txt", reading=reading)
    assert found.X == ["one\ntwo"] and found.extra["files"] == ["a.txt"]
    assert data.load(tmp_path / "docs" / "a.txt").X == ["one", "two"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_names_with_blanks_are_nodes(tmp_path, separator):
    lines = ["source,target", "Ann Li,Bob", "Bob,Cy Mo", '"Dee, Jr",Ann Li']
    text = "\n".join(line if separator == "," else line.replace(",", separator) for line in lines)
    if separator != ",":
        text = text.replace(f'"Dee{separator} Jr"', '"Dee, Jr"')
    (tmp_path / "g.csv").write_text(text)
    found = data.load(tmp_path / "g.csv", kind="graph")
    assert found.extra["nodes"].tolist() == ["Ann Li", "Bob", "Cy Mo", "Dee, Jr"]
    assert found.X.edge_index.shape == (2, 6)


# --- the command line ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default::corollary.errors.CorollaryWarning")
def test_predictions_of_a_folder_carry_file_names_and_its_reading(tmp_path, run):
    for label, size in (("cat", 12), ("dog", 14)):
        for i in range(6):
            picture(tmp_path / "pets" / label / f"{i}.png", 12, size if i == 5 else 12)
    (tmp_path / "pets" / "cat" / "6.png").write_text("no picture")
    fit = ["fit", "lenet", "--data", "pets", "--set", "training.epochs=1", "--run", "runs/p"]
    code, out, err = run(*fit)
    assert code == 0 and "left out 1 of 13 images" in err and "1 of 12 images of pets are scaled" in err, out
    picture(tmp_path / "new" / "x.png", 40, 20, "L")
    picture(tmp_path / "new" / "y.png", 30, 30)
    code, _, err = run("predict", "runs/p", "--data", "new", "--out", "p.csv")
    assert (
        code == 0 and "2 of 2 images of new are scaled and cropped to 12 x 12" in err and "Warning" not in err
    )
    assert pd.read_csv("p.csv")["file"].tolist() == ["x.png", "y.png"]


def test_a_model_of_documents_reads_a_single_text_as_one(tmp_path, run):
    for label, words in (("pos", "good fine nice"), ("neg", "bad poor sad")):
        (tmp_path / "docs" / label).mkdir(parents=True)
        for i in range(8):
            (tmp_path / "docs" / label / f"{i}.txt").write_text("\n".join(words.split() * (i + 1)))
    options = ["--set", "training.epochs=1", "--run", "runs/t"]
    code, _, err = run("fit", "textcnn", "--data", "docs", *options)
    assert code == 0, err
    (tmp_path / "one.txt").write_text("good\nfine\nnice\n")
    code, _, err = run("predict", "runs/t", "--data", "one.txt", "--out", "p.csv")
    assert code == 0, err
    assert pd.read_csv("p.csv")["file"].tolist() == ["one.txt"]
