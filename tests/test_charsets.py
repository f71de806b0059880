"""Encodings are found: a file of any language comes out as it was written, also without a mark and in a few lines."""

import gzip

import numpy as np
import pytest

from corollary import data
from corollary.data.charsets import plausible
from corollary.data.texts import encoding_of

# Encoding: small files as people have them in it.
FILES = {
    "cp1250": (
        "miasto;cena\nŁódź;12,5\nKraków;3,1\nGdańsk;4,2\nWrocław;5\n",
        "město,počet obyvatel\nPlzeň,5\nČeské Budějovice,3\nÚstí nad Labem,4\n",
        "város;ár\nGyőr;1\nSzékesfehérvár;2\nBékéscsaba;3\nHódmezővásárhely;4\n",
        "oraş,judeţ\nBucureşti,B\nIaşi,IS\nTimişoara,TM\nBrăila,BR\nPiteşti,AG",
        "meno,mesto\nĽubomír,Košice\nŽofia,Žilina\nMáša,Nitra\n",
        "id,nazwa,opis\n1,Śrubokręt,mały\n2,Młotek,średni\n",
        "zákazník;částka\nNovák;1 200,50\nDvořák;300\nČerný;20\n",
        "név;születés\nKovács Ágnes;1990\nTóth Gábor;1985\n",
        "Priimek,Znesek\nKovačič,10\nŽagar,5\n",
    ),
    "cp1251": (
        "имя,возраст\nАнна,30\nИван,25\n",
        "місто;ціна\nКиїв;1\nЛьвів;2\nЧернівці;3\n",
        "ОТДЕЛ,СУММА\nПРОДАЖИ,10\nСКЛАД,20\n",
        "Дата;Сумма, руб.;Контрагент\n01.02.2023;1000,50;ООО «Ромашка»\n",
        "продукт,цена\nхляб,1.20\nсирене,8.50\n",
    ),
    "koi8_r": ("имя,возраст\nАнна,30\nИван,25\nГород Москва,2\n",),
    "cp866": ("имя,возраст\nАнна,30\nИван,25\nГород Москва,2\n",),
    "shift_jis": (
        "名前,都市\n田中,東京\n鈴木,大阪\n",
        "氏名,備考\nさとう,よろしくお願いします\n",
        "商品名,価格\nりんご,120\nバナナ,80\n",
        "都道府県,人口\n北海道,5\n青森県,1\n",
        "ID,メモ\n1,テスト\n",
    ),
    "euc_jp": ("氏名,備考\nさとう,よろしくお願いします\n",),
    "gb18030": (
        "姓名,城市,年龄\n张伟,北京,30\n王芳,上海,25\n李娜,广州,28\n",
        "城市\n北京\n",
        "产品,价格\n苹果,3.5\n香蕉,2.1\n",
        "日期,销售额,备注\n2023年1月,100,无\n",
    ),
    "big5": (
        "姓名,城市\n陳大文,台北\n林小姐,高雄\n",
        "產品,價格\n蘋果,3\n香蕉,2\n",
    ),
    "euc_kr": (
        "이름,도시,나이\n김철수,서울,30\n이영희,부산,25\n",
        "제품,가격\n사과,1000\n바나나,500\n",
        "날짜,매출\n1월,3\n",
    ),
    "cp1253": ("πόλη,τιμή\nΑθήνα,1\nΘεσσαλονίκη,2\n",),
    "cp1254": ("şehir,fiyat\nİstanbul,1\nDiyarbakır,2\nMuğla,3\n",),
    "cp1255": ("עיר,מחיר\nירושלים,1\nחיפה,2\n",),
    "cp1256": ("مدينة,سعر\nالقاهرة,1\nبغداد,2\n",),
    "cp1257": (
        "miestas,kaina\nŠiauliai,1\nPanevėžys,2\nMažeikiai,3\n",
        "pilsēta,cena\nRīga,1\nJūrmala,2\nLiepāja,3\n",
    ),
    "iso8859_2": (
        "miasto;cena\nŁódź;12,5\nKraków;3,1\nGdańsk;4,2\nWrocław;5\nŚwidnica;3\nPoznań;4\nBiałystok;6\nCzęstochowa;3\nZamość;4\n",
    ),
    "cp850": ("Stadt;Preis\nMünchen;1\nKöln;2\nDüsseldorf;3\n",),
    "cp1252": (
        "Straße;Größe\nMünchen;12,5\nKöln;3\n",
        "ville;prix €\nOrléans;1\nNîmes;2\nBesançon;3\nAngoulême;4\n",
        "ciudad,precio\nMálaga,1\nCádiz,2\nLogroño,3\n",
        "cidade,preço\nSão Paulo,1\nBrasília,2\nJoão Pessoa,3\n",
        "stad,pris\nMalmö,1\nGöteborg,2\nÖrebro,3\n",
        "by,pris\nTromsø,1\nÅlesund,2\nÆrø,3\n",
        "città,prezzo\nForlì,1\nMondovì,2\n",
        "m²,°C,µg\n1,2,3\n",
        "name,café\na,1\n",
        "für",
        "Kaffee – „gut“ … 5 €",
        "it’s,don’t\n1,2\n",
        "Åre\n",
        "1½ l\n",
        "Volume (m³)\n1\n",
        "Naïve Müller, Ærøskøbing, Zoë\n",
        "staður,verð\nReykjavík,1\nÞórshöfn,2\nAkureyri,3\nSeyðisfjörður,4\n",
        "Prénom;Âge\nZoé;3\nFrançois;45\nMaëlle;7\n",
        "Größe (cm);Gewicht\n180,5;70\n",
        "año,población\n2001,5\n",
        "Ação;Valor\nPETR4;10\n",
        "Temperature (°C),Price (£)\n1,2\n",
        "naam,prijs\nCoöperatie,2\nReünie,3\n",
        "Élève\n",
        "nimi,ikä\nPäivi,40\nJyrki,30\nSöderström,3",
        "déjà vu\n",
        "Señor\n",
        "résumé\n",
        "Übung\n",
        "ÜBERSICHT;MAßE;LÄNGE\n1;2;3\n",
        "PRÉNOM;ÂGE;ADRESSE À PARIS\n",
        "Beyoncé,Motörhead,Sigur Rós,Björk\n",
    ),
    "utf-16-le": (
        "имя,возраст\nАнна,30\n",
        "姓名,城市\n张伟,北京\n一,二\n",
        "a,b\n1,2\n",
        "城市\n北京\n",
        "Stadt\nKöln\n",
        "商品名,価格\nりんご,120\n",
        "πόλη;τιμή\n1;2\n",
    ),
    "utf-16-be": (
        "имя,возраст\nАнна,30\n",
        "姓名,城市\n张伟,北京\n",
        "a,b\n1,2\n",
        "이름,도시\n김,서울\n",
    ),
    "utf-32-le": ("имя,возраст\nАнна,30\n",),
}


@pytest.mark.parametrize("encoding", FILES)
def test_the_text_comes_out_as_it_was_written(encoding):
    for text in FILES[encoding]:
        raw = text.encode(encoding)
        assert raw.decode(encoding_of(raw, "t.csv", whole=True)) == text
        cut = (text * 3).encode(encoding)[:-1]  # the head of a file may end inside a character
        assert cut.decode(encoding_of(cut, "t.csv"), errors="ignore")[: len(text)] == text


@pytest.mark.parametrize("text", ["a\0b\n1,2\n", "a,b\0\n\0\n1,2", "имя\n", "für\n"])
def test_text_that_is_utf_8_stays_so(text):
    assert encoding_of(text.encode(), "t.csv", whole=True) == "utf-8"


def test_random_bytes_are_no_text():
    rng = np.random.default_rng(0)
    for _ in range(100):
        with pytest.raises(ValueError, match="must be text; got byte 0x"):
            encoding_of(rng.bytes(500), "t.csv")


@pytest.mark.parametrize("encoding", ["cp1250", "cp1251", "cp932", "gb18030", "utf-16-le"])
def test_tables_and_texts_are_read_in_it(encoding, tmp_path):
    words = {"cp1250": "Wrocław", "cp1251": "Москва", "cp932": "東京タワー", "gb18030": "上海市"}
    word = words.get(encoding, "Київ")
    table = f"{word},n\n" + "".join(f"{word},{i}\n" for i in range(5))
    (tmp_path / "t.csv").write_bytes(table.encode(encoding))
    found = data.load(tmp_path / "t.csv")
    assert found.feature_names == [word, "n"] and set(found.X[word]) == {word}
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table.encode(encoding)))
    assert data.load(tmp_path / "t.csv.gz").feature_names == [word, "n"]
    (tmp_path / "t.txt").write_bytes(table.encode(encoding))
    assert data.load(tmp_path / "t.txt").X[1] == f"{word},0"


def test_letters_that_come_late_are_read_as_well(tmp_path):
    late = "n,w\n" + "1,plain\n" * 9000 + "2,Łódź\n3,Gdańsk\n"
    (tmp_path / "t.csv").write_bytes(late.encode("cp1250"))
    assert data.load(tmp_path / "t.csv").X["w"].iloc[-2:].tolist() == ["Łódź", "Gdańsk"]


def test_bytes_that_no_encoding_explains_are_latin_1():
    assert plausible(b"a\x81\x8d b", whole=True) in ("latin-1", "cp850")
