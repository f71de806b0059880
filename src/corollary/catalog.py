"""The catalog: one line per system, read by the package, the command line, the tests and the pages.

Nothing heavy is imported here; ``resolve`` imports the one module that a name needs.

Other people's estimators stand in it too. :func:`register` adds a class by hand; an installed package adds its own by
entry points of the group ``corollary.systems``, each of which names an estimator class, an :class:`Entry`, or a list of
those (entries in a small module of their own keep ``corollary list`` fast, because the classes are not imported)::

    [project.entry-points."corollary.systems"]
    my-net = "my_package.nets:MyNet"
"""

from __future__ import annotations

import warnings
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from corollary import errors

__all__ = ["ENTRY_POINTS", "Entry", "create", "entries", "find", "list", "register", "resolve"]

ENTRY_POINTS = "corollary.systems"


@dataclass(frozen=True)
class Entry:
    """What the catalog knows of a system without importing it."""

    id: str
    name: str  # public name, importable from `module`
    module: str
    title: str
    input: str = "table"  # table, image, sequence, set, graph, text, ratings; log-density for samplers
    roles: tuple[str, ...] = ()  # what it can do; empty for layers, optimisers and functions
    kind: str = "estimator"  # estimator, sampler, layer, optimiser, regulariser, function
    params: tuple[tuple[str, Any], ...] = ()  # what the id fixes, such as loss="softmax"
    also: tuple[str, ...] = ()  # further kinds of input that are taken as they are
    registered: Any = field(default=None, repr=False)  # the class itself, if :func:`register` was given one

    @property
    def chapter(self) -> str:
        """The package that holds it: a chapter of ours, or a third party's top package."""
        first, *rest = self.module.split(".")
        return rest[0] if first == "corollary" and rest else first

    def load(self) -> Any:
        """Import and return the object."""
        return self.registered or getattr(import_module(self.module), self.name)

    def create(self, **params: Any) -> Any:
        """Make the system, with what its id fixes; an optimiser that is given nothing to optimise becomes a factory."""
        thing, given = self.load(), {**dict(self.params), **params}
        return (
            partial(thing, **given)
            if self.kind == "optimiser" and isinstance(thing, type)
            else thing(**given)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as ``corollary list --json`` prints them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "registered"}
        return {**plain, "chapter": self.chapter, "roles": [*self.roles], "params": dict(self.params)}


def _entries() -> Iterator[Entry]:
    for line in TABLE.strip().splitlines():
        if line and not line.startswith("#"):
            id, name, module, input, roles, kind, title = (part.strip() for part in line.split("|"))
            name, *fixed = name.split()
            params = tuple((key, _literal(text)) for key, _, text in (pair.partition("=") for pair in fixed))
            input, *also = input.split()
            yield Entry(
                id,
                name,
                f"corollary.{module}",
                title,
                input,
                tuple(roles.split()),
                kind or "estimator",
                params,
                tuple(also),
            )


def _literal(text: str) -> Any:
    """Return a number, truth value or tuple as such; any other word is a string."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


# id | public name and what the id fixes | module | input, and others that are taken too | roles | kind (blank: estimator) | title
TABLE = """
# connectionism
threshold-unit   | ThresholdUnit   | connectionism.threshold | table | classifier | | Threshold unit of McCulloch and Pitts
nand-machine     | NandMachine     | connectionism.nand     | table | classifier | | Turing's unorganised machines of NAND units
linear-unit      | Adaline         | connectionism.adaline  | table | regressor | | Adaline: linear unit trained by the delta rule (least mean squares)
perceptron       | Perceptron      | connectionism.perceptron | table | classifier | | Perceptron, one class against the rest
willshaw         | WillshawMemory  | connectionism.willshaw | table | memory transformer | | Willshaw's associative memory of sparse binary patterns
rbm              | BernoulliRBM    | connectionism.rbm      | table | transformer generator | | Restricted Boltzmann machine
hopfield         | HopfieldNetwork | connectionism.hopfield | table | memory transformer | | Hopfield network: associative memory of binary patterns
# linear
linear-regression | LinearRegression | linear.regression     | table | regressor | | Linear regression by least squares
ridge            | Ridge           | linear.regression      | table | regressor | | Ridge regression: least squares with an L2 penalty
lasso            | Lasso           | linear.lasso           | table | regressor | | Lasso: least squares with an L1 penalty, which sets weights to zero
logistic         | LogisticRegression | linear.logistic     | table | classifier | | Logistic regression
softmax-regression | SoftmaxRegression | linear.logistic    | table | classifier | | Softmax regression by Newton's method
pca              | PCA             | linear.pca             | table | transformer density | | Principal component analysis
ppca             | ProbabilisticPCA | linear.ppca           | table | transformer density generator | | Probabilistic PCA: closed form, EM, missing values
factor-analysis  | FactorAnalysis  | linear.factor_analysis | table | transformer density generator | | Factor analysis
linear-autoencoder | LinearAutoencoder | linear.autoencoder | table | transformer | | Linear autoencoder by gradient descent
autoencoder      | Autoencoder     | linear.autoencoder     | table | transformer | | Autoencoder, also denoising
deep-linear      | DeepLinearNetwork | linear.deep_linear   | table | regressor | | Deep linear network and its modes of learning
# completion
baseline         | BiasBaseline    | completion.baseline    | ratings | completer | | Bias baseline: means of row and column
low-rank         | TruncatedSVD    | completion.truncated_svd | table | transformer | | Truncated SVD: best approximation of low rank
als              | ALS             | completion.als         | ratings | completer recommender | | Matrix factorisation by alternating least squares
svp              | SingularValueProjection   | completion.svp          | ratings | completer | | Singular value projection: projected gradient on matrices of fixed rank
svt              | SingularValueThresholding | completion.thresholding | ratings | completer | | Singular value thresholding and soft-impute
nmf              | NMF             | completion.nmf         | table | transformer | | Non-negative matrix factorisation
exact-recovery   | recovery_curve  | completion.recovery    | table | | function | When nuclear-norm minimisation recovers a matrix
scalar-factorisation | scalar_flow | completion.scalar      | table | | function | Gradient flow on the product of two numbers
# mixtures
em-mixture       | Mixture         | mixtures.mixture       | table | clusterer density generator | | Mixture of Gaussian, Bernoulli, Poisson, exponential or categorical features by EM
gaussian-mixture | GaussianMixture | mixtures.gaussian      | table | clusterer density generator | | Mixture of Gaussians by EM
plsa             | PLSA            | mixtures.plsa          | table | topic-model transformer | | Probabilistic latent semantic analysis
lda              | LatentDirichletAllocation | mixtures.lda | table | topic-model transformer | | Latent Dirichlet allocation, by four methods of inference
dirichlet-process | DirichletProcessMixture | mixtures.dirichlet_process | table | clusterer density generator | | Dirichlet process mixture: the number of components is learned
indian-buffet    | IndianBuffetProcess | mixtures.indian_buffet | table | transformer generator | | Indian buffet process: latent features whose number is learned
# embeddings
cooccurrence     | CooccurrenceEmbedding | embeddings.cooccurrence | text | transformer | | Word vectors from eigenvectors of co-occurrence
skipgram-negative | SkipGram loss=negative | embeddings.skipgram | text | transformer | | Skip-gram word vectors by negative sampling
skipgram-softmax | SkipGram loss=softmax | embeddings.skipgram | text | transformer | | Skip-gram word vectors by the full softmax
glove            | GloVe           | embeddings.glove       | text | transformer | | GloVe word vectors from logarithms of co-occurrence counts
# networks
mlp              | MLPClassifier   | networks.mlp           | table | classifier | | Multi-layer perceptron, for classes
mlp-regressor    | MLPRegressor    | networks.mlp           | table | regressor | | Multi-layer perceptron, for numbers
activations      | activation      | nn.activations         | table | | function | Activation functions by name
normalisation    | norm            | nn.normalisation       | table | | function | Batch, layer and weight normalisation by name
shortcuts        | Residual        | nn.shortcuts           | table | | layer | Residual and dense shortcut connections around a block
convolution      | convolve        | theory.convolution     | image | | function | Convolution in four forms, and its arithmetic
# sequences
gru              | SequenceClassifier cell=gru | sequences.classifier | sequence | classifier | | Gated recurrent units, for classes of sequences
rnn              | SequenceClassifier cell=rnn | sequences.classifier | sequence | classifier | | Recurrent network, for classes of sequences
lstm             | SequenceClassifier cell=lstm | sequences.classifier | sequence | classifier | | Long short-term memory, for classes of sequences
birnn            | SequenceClassifier cell=rnn bidirectional=True | sequences.classifier | sequence | classifier | | Bidirectional recurrent network, for classes of sequences
deep-rnn         | SequenceClassifier cell=rnn n_layers=3 | sequences.classifier | sequence | classifier | | Stacked recurrent network, for classes of sequences
sequence-tagger  | SequenceTagger  | sequences.tagger       | sequence | tagger | | Bidirectional recurrent network, for a label of every step
sequence-forecaster | SequenceForecaster | sequences.forecaster | sequence | forecaster | | Stacked recurrent network, for the next values of series
gradient-flow    | gradient_flow   | theory.recurrence      | sequence | | function | Vanishing and exploding gradients through time
lru              | LRU             | nn.lru                 | sequence | | layer | Linear recurrent unit
text-cnn         | TextCNN         | sequences.textcnn      | text | classifier | | TextCNN: convolutions over words, for classes of texts
wavenet          | WaveNet         | sequences.wavenet      | sequence | density generator | | WaveNet: gated dilated causal convolutions, for waveforms
seq2seq          | Seq2Seq         | sequences.seq2seq      | text | translator | | Sequence-to-sequence: encoder and decoder with attention, for texts from texts
memory-network   | MemoryNetwork   | sequences.memory       | text | classifier | | Memory network: several hops of attention over a memory of facts
temporal-conv    | TemporalConvNet | nn.temporal            | sequence | | layer | Temporal convolutional network: dilated causal convolutions
# language
transformer      | Transformer     | language.transformer   | text | translator | | Encoder-decoder transformer, for texts from texts
elmo             | ELMo            | language.elmo          | text | transformer | | ELMo: words in context, from characters and two language models
bert             | BERT            | language.bert          | text | transformer | | BERT: bidirectional transformer encoder, pre-trained on texts
bert-classifier  | BERTClassifier  | language.bert_classifier | text | classifier | | BERT, fine-tuned for classes of texts
bert-regressor   | BERTRegressor   | language.bert_classifier | text | regressor | | BERT, fine-tuned for numbers of texts
bert-tagger      | BERTTagger      | language.bert_tagger   | text | tagger | | BERT, fine-tuned for a label of every word
bert-answerer    | BERTAnswerer    | language.bert_answerer | text | answerer | | BERT, fine-tuned for question answering: answers found in a passage
gpt              | GPT             | language.gpt           | text | language-model density generator | | GPT: generative pre-trained transformer
# vision
lenet            | ImageClassifier net=lenet | vision.classifier | image | classifier | | LeNet-5, for images
alexnet          | ImageClassifier net=alexnet | vision.classifier | image | classifier | | AlexNet, for images
vgg              | ImageClassifier net=vgg | vision.classifier | image | classifier | | VGG: deep stacks of small kernels, for images
inception        | ImageClassifier net=inception | vision.classifier | image | classifier | | GoogLeNet: several scales at once, for images
resnet           | ImageClassifier net=resnet | vision.classifier | image | classifier | | Residual network, for images
densenet         | ImageClassifier net=densenet | vision.classifier | image | classifier | | Densely connected network, for images
vit              | ImageClassifier net=vit | vision.classifier | image | classifier | | Vision transformer, for images
unet             | Segmenter net=unet | vision.segmenter | image | segmenter | | U-Net: a class for every pixel
# sets
deep-sets        | DeepSetsClassifier | sets.deep_sets      | set | classifier | | Deep sets, for classes
deep-sets-regressor | DeepSetsRegressor | sets.deep_sets    | set | regressor | | Deep sets, for numbers
pointnet         | PointNet        | sets.pointnet          | set | classifier | | PointNet, for classes of point clouds
pointnet-parts   | PointNetSegmenter | sets.pointnet        | set | tagger | | PointNet, for the parts of point clouds
# graphs
gcn              | NodeClassifier layer=gcn | graphs.nodes    | graph | classifier | | Graph convolutional network, for nodes
chebnet          | NodeClassifier layer=cheb | graphs.nodes   | graph | classifier | | ChebNet: Chebyshev filters on a graph, for nodes
gat              | NodeClassifier layer=gat | graphs.nodes    | graph | classifier | | Graph attention network, for nodes
gin              | GraphClassifier layer=gin | graphs.whole   | graph | classifier | | Graph isomorphism network, for whole graphs
mpnn             | LinkPredictor layer=mpnn | graphs.links    | graph | link-predictor transformer | | Message-passing network, for links
spectral         | NodeClassifier layer=spectral | graphs.nodes | graph | classifier | | Spectral graph convolution: filters in the spectrum of a graph, for nodes
wl-test          | weisfeiler_lehman | graphs.wl            | graph | | function | Weisfeiler-Lehman test of graph isomorphism, by colour refinement
laplacian        | laplacian       | theory.graphs          | graph | | function | Graph Laplacians: matrices, spectra and smoothing of graphs
equivariance     | equivariance    | theory.symmetry        | table | | function | Groups, averaging, and a test of symmetry for any module
# generative
vae              | VAE             | generative.vae         | table image | transformer density generator | | Variational autoencoder
flows            | Flow            | generative.flow  | table image | transformer density generator | | Normalising flow: exact density by an invertible network
gan              | GAN             | generative.gan   | table image | generator | | Generative adversarial network: samples by a game of two networks
score            | ScoreModel      | generative.score | table image | density generator | | Score model: gradients of the log-density at every noise level
pixelcnn         | PixelCNN        | generative.pixelcnn | image | density generator | | PixelCNN: exact probabilities of images, pixel after pixel
ddpm             | DDPM            | generative.ddpm  | table image | density generator | | Denoising diffusion: samples by undoing noise step by step
# bayes
metropolis       | Metropolis      | bayes.metropolis       | log-density | | sampler | Random-walk Metropolis and Hastings, many chains at once
hmc              | HMC             | bayes.hmc              | log-density | | sampler | Hamiltonian Monte Carlo
nuts             | NUTS            | bayes.nuts             | log-density | | sampler | No-U-turn sampler: Hamiltonian Monte Carlo whose paths end where they turn
langevin         | MALA            | bayes.langevin         | log-density | | sampler | Metropolis-adjusted Langevin algorithm
ula              | ULA             | bayes.langevin         | log-density | | sampler | Unadjusted Langevin algorithm
sgld             | SGLD            | bayes.langevin         | log-density | | sampler | Stochastic gradient Langevin dynamics
bayesian-net     | BayesianClassifier | bayes.network       | table | classifier | | Bayesian neural network: posterior of the weights, for classes
bayesian-net-regressor | BayesianRegressor | bayes.network  | table | regressor | | Bayesian neural network: posterior of the weights, for numbers
sghmc            | SGHMC           | bayes.langevin         | log-density | | sampler | Stochastic gradient Hamiltonian Monte Carlo
# kernels
nngp             | NNGP            | kernels.regression | table image | regressor | | Gaussian process of an infinitely wide network (NNGP)
nngp-classifier  | NNGPClassifier  | kernels.classification | table image | classifier | | Gaussian process of an infinitely wide network, for classes
ntk              | NTKRegressor    | kernels.regression | table image | regressor | | Neural tangent kernel regression: an infinitely wide trained network
ntk-classifier   | NTKClassifier   | kernels.classification | table image | classifier | | Neural tangent kernel, for classes
empirical-ntk    | empirical_ntk     | theory.ntk | table | | function | Neural tangent kernel of any module, its drift and its linearised network
# theory
counting         | cover                  | theory.counting | table | | function | Dichotomies, linear regions and VC dimension, counted
approximation    | relu_spline            | theory.approximation | table | | function | Piecewise linear functions as ReLU networks; Barron's rate, universality
generalisation   | certificate            | theory.bounds | table | | function | Generalisation bounds: Hoeffding, VC, Rademacher, PAC-Bayes; double descent
learning-from-loss | exponential_family   | losses | table | | function | Losses: squared, zero-one, logistic, cross-entropy, exponential family
# optimisation
gd               | create name=gd         | optim | table | | optimiser | Gradient descent on all the data
sgd              | create name=sgd        | optim | table | | optimiser | Stochastic gradient descent
minibatch        | create name=minibatch  | optim | table | | optimiser | Stochastic gradient descent on batches
heavy-ball       | create name=heavy-ball | optim | table | | optimiser | Gradient descent with momentum
nesterov         | create name=nesterov   | optim | table | | optimiser | Nesterov's accelerated descent
adagrad          | create name=adagrad    | optim | table | | optimiser | Adagrad: step sizes from summed squared gradients
rmsprop          | create name=rmsprop    | optim | table | | optimiser | RMSprop: step sizes from averaged squared gradients
adam             | create name=adam       | optim | table | | optimiser | Adam: step sizes from averaged gradients and squared gradients
amsgrad          | create name=amsgrad    | optim | table | | optimiser | AMSGrad: Adam with step sizes that never grow
muon             | create name=muon       | optim | table | | optimiser | Muon: orthogonalised momentum for matrices, AdamW for the rest
polyak-average   | average                | optim.averaging | table | | optimiser | Averages of the weights: Polyak's mean, and exponential ones
signsgd          | SignSGD                | optim.first_order | table | | optimiser | SignSGD: descent by the signs of gradients
subgradient      | Subgradient            | optim.first_order | table | | optimiser | Subgradient descent with averaging and Polyak's step size
svrg             | SVRG                   | optim.looking | table | | optimiser | SVRG: stochastic gradients with reduced variance
newton           | Newton                 | optim.looking | table | | optimiser | Damped Newton's method by conjugate gradients
extragradient    | ExtraGradient          | optim.looking | table | | optimiser | Extragradient: gradients one step ahead, for saddle points and games
projected        | Projected              | optim.projection | table | | optimiser | Projected gradient: any optimiser on a ball, simplex, box or set of matrices
race             | race                   | theory.race | table | | function | Optimisers side by side on one's own model
rates            | constants              | theory.convergence | table | | function | Smoothness, convexity and condition of any model, and what theorems promise
schedules        | schedule               | optim | table | | function | Step-size schedules
clipping         | ClipNorm               | engine.regularisers | table | | regulariser | Gradient clipping: the largest norm of a gradient
# regularisation
weight-decay     | WeightDecay     | engine.regularisers | table | | regulariser | L2 penalty on the weights
l1               | L1              | engine.regularisers | table | | regulariser | L1 penalty on the weights, with exact zeros
norm-ball        | NormBall        | engine.regularisers | table | | regulariser | Norm constraint: the largest norm of the weights, by projection
early-stopping   | EarlyStopping   | engine.loop         | table | | regulariser | Early stopping on held-out data
dropout          | monte_carlo_dropout     | engine.dropout      | table | | regulariser | Dropout: weight rescaling and Monte-Carlo dropout
noise            | InputNoise      | engine.noise        | table | | regulariser | Noise on inputs, targets, weights and gradients
label-smoothing  | LabelSmoothing  | engine.regularisers | table | | regulariser | Label smoothing: a share of every target is spread over all classes
curriculum       | Curriculum      | engine.curriculum   | table | | regulariser | Curriculum learning: easy samples first
bagging          | BaggingClassifier | regularisation.bagging | table | classifier | | Bagging: bootstrap samples and averaged probabilities
bagging-regressor | BaggingRegressor | regularisation.bagging | table | regressor | | Bagging: bootstrap samples and averaged predictions
distillation     | Distiller       | regularisation.distillation | table | classifier | | Distillation: learn from the probabilities of another classifier
transfer         | Tunable         | tuning              | table | | regulariser | Pre-training and fine-tuning: new heads, frozen layers, rates by layer
self-supervised  | ContrastivePredictiveCoding | regularisation.contrastive | sequence image | transformer | | Contrastive predictive coding: features that tell futures apart
rotation         | RotationPretrainer | regularisation.tasks | image | transformer | | Rotation prediction: features of images from telling how they are turned
patches          | PatchPretrainer | regularisation.tasks | image | transformer | | Jigsaw patches: features of images from telling how their patches were shuffled
multi-task       | MultiTaskNet    | regularisation.multitask | table | multi-task | | One network for several tasks: a shared trunk, and a head for each
self-training    | SelfTraining    | regularisation.semisupervised | table | classifier | | Self-training: pseudo-labels where a classifier is sure, and consistency
# robustness
fgsm             | fgsm            | attack.pgd          | table | | function | Fast gradient sign method, an attack of one step
pgd              | pgd             | attack.pgd          | table | | function | Projected gradient attack in l1, l2 and l-infinity balls
deepfool         | deepfool        | attack.deepfool     | table | | function | DeepFool: smallest change of an input that changes its class
adversarial-training | PGD         | attack.pgd          | table | | regulariser | Adversarial training: the worst inputs near each sample
spectral-penalty | Spectral        | engine.spectral     | table | | regulariser | Penalties on operator norms of layers and Jacobians
lipschitz        | product_bound   | theory.lipschitz    | table | | function | Lipschitz bounds, slopes at inputs, certified radii
randomised-smoothing | smooth      | attack.smoothing    | table | | function | Randomised smoothing: certified radii from answers to noisy inputs
# data
augmentation     | augment                | data.augment | image | | function | Crop, resize, flip, rotate and recolour images
# metrics
metrics          | fid                    | metrics | table | | function | Distances between real and drawn samples: FID, precision and recall, Wasserstein, MMD
"""

_OURS: tuple[Entry, ...] = tuple(_entries())
_REGISTERED: dict[str, Entry] = {}


# --- other people's systems ------------------------------------------------------------------------------


def register(
    cls: Any = None, *, id: str | None = None, title: str | None = None, params: dict[str, Any] | None = None
) -> Any:
    """Put an estimator class of your own into the catalog; also a class decorator.

    ``corollary list``, the command line, :func:`corollary.compare`, :func:`corollary.load` and
    ``from corollary import ...`` then know it, in this process. A package that is installed does it once and for all by
    an entry point of the group ``corollary.systems``.

    Parameters
    ----------
    cls : estimator class
        What is registered, under its own name.
    id : str, optional
        The name on the command line; by default the class's name in lower case.
    title : str, optional
        What it is; by default the first line of its documentation.
    params : dict, optional
        What the id fixes, where one class stands in the catalog under several ids.

    Returns
    -------
    class
        The class, unchanged.

    Examples
    --------
    >>> import corollary
    >>> @corollary.register(id="wide-mlp")
    ... class WideMLP(corollary.MLPClassifier):
    ...     "Multi-layer perceptron with one wide layer."
    >>> corollary.find("wide-mlp").title, "WideMLP" in corollary.list(role="classifier")
    ('Multi-layer perceptron with one wide layer', True)
    >>> _ = corollary.catalog.forget("wide-mlp")
    """
    if cls is None:
        return lambda later: register(later, id=id, title=title, params=params)
    _add(_described(cls, id, title, params), _REGISTERED)
    return cls


def forget(id: str) -> Entry:
    """Take out a system that was registered, and return its entry."""
    if id not in _REGISTERED:
        raise errors.unknown("forget", "registered system", id, _REGISTERED)
    return _REGISTERED.pop(id)


def _described(cls: Any, id: str | None, title: str | None, params: dict[str, Any] | None) -> Entry:
    """Return the entry of a class, from its input kind, roles and docstring."""
    if not isinstance(cls, type) or not callable(getattr(cls, "_learner", None)):
        must = "a system must be a class that inherits from corollary.base.Estimator"
        raise errors.kind("register", must, repr(cls))
    doc = (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")
    played = (base.__dict__["role"] for base in cls.__mro__ if "role" in base.__dict__)
    return Entry(
        id or cls.__name__.lower(),
        cls.__name__,
        cls.__module__,
        title or doc,
        cls.input,  # type: ignore[attr-defined]
        tuple(dict.fromkeys(played)),
        params=tuple((params or {}).items()),
        also=tuple(getattr(cls, "also", ())),
        registered=cls,
    )


def _add(entry: Entry, known: dict[str, Entry]) -> None:
    """Add an entry, unless its id or name means something else already."""
    taken = [other for other in (*_OURS, *known.values()) if {other.id, other.name} & {entry.id, entry.name}]
    for other in taken:
        ours = other.module.split(".")[0] == "corollary" != entry.module.split(".")[0]
        if ours or (other.name, other.module) != (entry.name, entry.module):
            got = f"{entry.module}.{entry.name} as {entry.id!r}, which is {other.module}.{other.name}"
            raise errors.value(
                "register", "id and name must be new", got, "Give it another id= or class name."
            )
    known[entry.id] = entry


@cache
def _installed() -> tuple[Entry, ...]:
    """Return what installed packages add; one that cannot be read is reported and left out."""
    from importlib.metadata import entry_points

    known: dict[str, Entry] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found = point.load()
            for each in [found] if isinstance(found, type | Entry) else found:
                _add(each if isinstance(each, Entry) else _described(each, point.name, None, None), known)
        except Exception as error:  # whatever a strange package does when it is imported
            text = f"catalog: the entry point {point.name} = {point.value!r} cannot be used ({error}). It is left out."
            warnings.warn(text, errors.CorollaryWarning, stacklevel=3)
    return tuple(known.values())


# --- looking things up -----------------------------------------------------------------------------------


def _others() -> tuple[Entry, ...]:
    return (*_REGISTERED.values(), *(entry for entry in _installed() if entry.id not in _REGISTERED))


def _where(test: Callable[[Entry], bool]) -> tuple[Entry, ...]:
    """Return our entries that pass, or else those of others: installed packages are read only for what we do not have."""
    return tuple(filter(test, _OURS)) or tuple(filter(test, _others()))


def entries(
    *, input: str | None = None, role: str | None = None, chapter: str | None = None, kind: str | None = None
) -> tuple[Entry, ...]:
    """Return the entries that take this input, play this role, stand in this chapter, are of this kind."""

    def wanted(entry: Entry) -> bool:
        return (
            (input is None or input in (entry.input, *entry.also))
            and (role is None or role in entry.roles)
            and (chapter is None or entry.chapter == chapter)
            and (kind is None or entry.kind == kind)
        )

    return tuple(filter(wanted, (*_OURS, *_others())))


def list(**conditions: str | None) -> tuple[str, ...]:
    """Return the public names of the entries that satisfy the conditions of :func:`entries`."""
    return tuple(dict.fromkeys(entry.name for entry in entries(**conditions)))


def find(name: str) -> Entry:
    """Return the entry with this id or public name; the error names the closest ones.

    A public name stands for the class with its own defaults, where ids fix parameters of it.
    """
    wanted = name.lower()
    for entry in _where(lambda entry: wanted == entry.id.lower()):
        return entry
    named = _where(lambda entry: wanted == entry.name.lower())
    if not named:
        raise errors.unknown("catalog", "system", name, known_names(), "See `corollary list`.")
    if len(named) == 1 and not named[0].params:
        return named[0]
    title = f"As {', '.join(entry.id for entry in named)}"
    return replace(named[0], id=named[0].name, params=(), title=title)


def known_names() -> Iterable[str]:
    """Return every public name and id."""
    return dict.fromkeys(name for entry in entries() for name in (entry.name, entry.id))


def has(name: str, kind: str | None = None) -> bool:
    """Whether there is an object with this public name."""
    return bool(_where(lambda entry: entry.name == name and kind in (None, entry.kind)))


def resolve(name: str) -> Any:
    """Return the object with this public name, importing its module."""
    return _where(lambda entry: entry.name == name)[0].load()


def create(name: str, **params: Any) -> Any:
    """Make the system with this id or public name; a public name gives the class's own defaults.

    >>> import corollary
    >>> corollary.create("hopfield", max_sweeps=10)
    HopfieldNetwork(max_sweeps=10)
    >>> corollary.create("mpnn"), corollary.create("LinkPredictor")
    (LinkPredictor(layer='mpnn'), LinkPredictor())
    """
    return find(name).create(**params)
