"""The causes: what is measured, when each fires and why there, what to do, and the formula behind it.

A row of :data:`RULES` is a cause. Its measurement is made by a check of this package (``examine`` lists them); the threshold
stands in its file beside the measurement and is said in words here. Families come upstream first: a fault of the data
explains one of the start, and that one of the outcome.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CAUSES", "FAMILIES", "RULES", "Rule"]

FAMILIES = ("data", "objective", "graph", "start", "architecture", "descent", "outcome")


class Rule(NamedTuple):
    """One cause of the vocabulary."""

    family: str
    looks: str  # what one sees
    measured: str  # the number that decides
    fires: str  # when, and why there
    advice: str
    code: str  # the repair, to be pasted
    formula: str  # an id of corollary.formulas
    severity: str  # "error" where nothing can be learned, "warning" where less is


RULES: dict[str, Rule] = {
    # --- data --------------------------------------------------------------------------------------------
    "not-finite-data": Rule(
        "data",
        "The loss is NaN from the first step, or some batches are skipped.",
        "share of entries that are NaN or infinite",
        "at one: a single NaN makes every weight NaN after one step",
        "Impute or drop what is missing before training.",
        "from sklearn.impute import SimpleImputer\n\n"
        "X = SimpleImputer().fit_transform(numpy.where(numpy.isfinite(X), X, numpy.nan))",
        "loss-functions",
        "error",
    ),
    "overflow": Rule(
        "data",
        "The loss or some outputs become NaN or infinite although the data are fine.",
        "share of finite rows whose output, loss, gradient or a number on the way to them is not finite",
        "at one row, with finite weights: then the arithmetic overflows, not the descent",
        "Keep exponents and squares in range: scale the inputs, use logits with a loss that takes them, or float32.",
        "model = model.float()\nX = (X - X.mean(0)) / X.std(0)",
        "analysis-log-trick",
        "error",
    ),
    "unscaled-inputs": Rule(
        "data",
        "The loss jumps about or hardly falls; a small change of the rate changes everything.",
        "typical size of the values that enter the first weights, per feature",
        "far from 1 or far apart: the condition number of the first layer grows with the square of their ratio",
        "Standardise the inputs with the mean and deviation of the training data.",
        "mean, std = X.mean(0), X.std(0)\nX = (X - mean) / std",
        "condition-number",
        "warning",
    ),
    "unscaled-targets": Rule(
        "data",
        "The loss is huge and falls slowly; predictions stay near zero or near the mean.",
        "typical size of the targets",
        "far from the outputs' size at the start (about 1): the way there takes most of the steps",
        "Standardise the targets, and undo it for predictions.",
        "y = (y - y.mean()) / y.std()",
        "opt-step-size",
        "warning",
    ),
    "constant-features": Rule(
        "data",
        "Training works, but worse than expected, as if columns were missing.",
        "number of columns that never change",
        "at one in dense data: such a column carries nothing and hides a broken source",
        "Drop the columns, or repair where they come from.",
        "X = X[:, X.std(0) > 0]",
        "prob-covariance",
        "warning",
    ),
    "duplicate-features": Rule(
        "data",
        "Training works; weights of some columns are large, opposite and unstable from run to run.",
        "number of columns that repeat another one",
        "at one, up to scale and sign: the normal equations become singular",
        "Keep one of each group.",
        "X = X[:, numpy.sort(numpy.unique(X, axis=1, return_index=True)[1])]",
        "linreg-normal-equations",
        "warning",
    ),
    "train-test-overlap": Rule(
        "data",
        "Validation is as good as training, and better than on new data.",
        "share of validation rows that are training rows",
        "above the share of rows that repeat inside the training data, which is what chance would give",
        "Split again, by groups if rows belong together; remove repeated rows first.",
        "rows = numpy.unique(X, axis=0, return_index=True)[1]  # before the split\nX, y = X[rows], y[rows]",
        "slt-generalisation-gap",
        "warning",
    ),
    "distribution-shift": Rule(
        "data",
        "Training is good and validation far worse, from the first epoch on.",
        "how well training and validation inputs can be told apart (AUC), or their features' largest KS distance",
        "where a classifier tells them apart better than chance by far: the risk is then that of other data",
        "Validate on data like those of use; reweight, augment or collect training data that cover them.",
        "from sklearn.model_selection import train_test_split\n\n"
        "X, X_valid, y, y_valid = train_test_split(X, y, stratify=y)  # of numbers without stratify",
        "it-kl",
        "warning",
    ),
    "target-leak": Rule(
        "data",
        "The score is too good to be true, and falls in use.",
        "score of one column alone on held-out rows, against the score of all others",
        "where one column says nearly all and the others little, or the model takes it for a short cut",
        "Remove the column: it will not be known when predictions are made.",
        "X = numpy.delete(X, column, axis=1)",
        "it-data-processing",
        "error",
    ),
    "misaligned-labels": Rule(
        "data",
        "The loss stays near that of guessing, or training is learned by heart and validation is at chance.",
        "score of a simple model with targets as given, and with targets moved",
        "where moved targets, or those of validation, can be learned and the given ones cannot",
        "Join rows and labels by key, not by position; check what was shuffled or sorted.",
        'frame = X.join(y, on="id")',
        "prob-independence",
        "error",
    ),
    "no-signal": Rule(
        "data",
        "Validation stays at chance whatever is tried, while training may be learned by heart.",
        "held-out score of trees, neighbours, a line and the model, above chance",
        "where none is above chance by more than its standard error",
        "No model can learn this: look for other features, or for what broke the relation.",
        "",
        "slt-random-labels",
        "error",
    ),
    "label-noise": Rule(
        "data",
        "Training accuracy stalls below validation, or validation worsens as wrong labels are learned.",
        "share of labels that confident held-out predictions contradict, beside that of classes that merely overlap",
        "where errors stay among the most confident rows; an overlap errs near the border only",
        "Review the rows named in the evidence; until then use label smoothing or a robust loss.",
        "loss = nn.CrossEntropyLoss(label_smoothing=0.1)",
        "slt-random-labels",
        "warning",
    ),
    "class-imbalance": Rule(
        "data",
        "Accuracy is high, but rare classes are never predicted.",
        "recall of the rarest classes",
        "where classes that are rarer than chance makes them are missed although a weighted simple model finds them",
        "Weight the loss by class, or sample classes evenly.",
        "counts = torch.bincount(y)\nloss = nn.CrossEntropyLoss(weight=len(y) / (len(counts) * counts))",
        "prob-bayes-rule",
        "warning",
    ),
    # --- objective ---------------------------------------------------------------------------------------
    "double-softmax": Rule(
        "objective",
        "The loss stops at a value that looks like a floor; predictions are never confident.",
        "sum of the outputs per row, for a loss that takes logits",
        "at one: the loss applies a second softmax, whose gradient nearly vanishes",
        "Return logits, and apply softmax only to predict.",
        "return logits  # not logits.softmax(1)",
        "act-softmax-jacobian",
        "error",
    ),
    "wrong-loss": Rule(
        "objective",
        "The loss falls but the answers do not get better, or all answers are the mean.",
        "loss of a perfect output, of a wrong one, and how loss and target fit",
        "where a perfect output is not the best one, guesses cost next to nothing, or classes are treated as numbers",
        "Use the loss that belongs to the target.",
        "loss = nn.CrossEntropyLoss()  # classes; nn.MSELoss() for numbers, nn.BCEWithLogitsLoss() for yes or no",
        "loss-functions",
        "error",
    ),
    "output-range": Rule(
        "objective",
        "Predictions pile up at one value, such as 0 or 1, and some targets are never reached.",
        "share of targets that no weights of the last layer can reach",
        "above a per cent: the last activation cuts them off",
        "Remove the last activation, or scale the targets into its range.",
        "head = nn.Linear(width, n_outputs)  # no activation after it",
        "act-relu",
        "error",
    ),
    "stochastic-evaluation": Rule(
        "objective",
        "The same rows get other predictions on every call, or with other rows beside them.",
        "change of the output from one call to the next, on the same rows",
        "above rounding: predictions are random, or depend on what else is in the batch",
        "Call model.eval() before predicting; give functional dropout training=self.training.",
        "model.eval()",
        "reg-dropout",
        "warning",
    ),
    # --- graph and loop ----------------------------------------------------------------------------------
    "detached-parameters": Rule(
        "graph",
        "The loss falls a little and stops; some layers stay exactly as they were drawn.",
        "parameters that change the output but get no gradient",
        "at one: they stay at their start for ever",
        "Remove detach(), no_grad(), .data, rounding or NumPy from the forward pass; keep layers in a ModuleList.",
        "self.layers = nn.ModuleList(layers)",
        "bp-error-recursion",
        "error",
    ),
    "frozen-parameters": Rule(
        "graph",
        "The loss falls a little and stops; the optimiser does not move some layers.",
        "share of parameters that are not trained and still random",
        "where random layers are held fixed; a trained body that is held fixed is meant so",
        "Set requires_grad, and hand all parameters to the optimiser.",
        "for p in model.parameters():\n    p.requires_grad_(True)",
        "bp-weight-gradient",
        "error",
    ),
    "gradients-not-cleared": Rule(
        "graph",
        "The loss swings ever more, or grows, whatever the rate.",
        "share of an old gradient that is left after the next step",
        "above zero in every step: updates then follow the sum of all gradients so far",
        "Clear the gradients before each backward pass.",
        "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        "opt-gradient-descent",
        "error",
    ),
    # --- start -------------------------------------------------------------------------------------------
    "symmetric-initialisation": Rule(
        "start",
        "The loss stays near that of guessing; a wide layer acts like one unit.",
        "share of units of a layer that equal another one",
        "where most do: equal units get equal gradients and stay equal",
        "Draw the initial weights at random.",
        "for m in model.modules():\n    if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d):\n"
        "        nn.init.kaiming_normal_(m.weight)",
        "bp-weight-gradient",
        "error",
    ),
    "saturated-units": Rule(
        "start",
        "The loss falls very slowly from the start; gradients of early layers are tiny.",
        "share of sigmoid or tanh activations at their ends",
        "above a half: their slope, and with it the gradient, is near zero",
        "Start with smaller weights (Xavier), standardise the inputs, or normalise between layers.",
        "for m in model.modules():\n    if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d):\n"
        "        nn.init.xavier_normal_(m.weight)",
        "act-vanishing",
        "warning",
    ),
    "dead-units": Rule(
        "start",
        "The loss stops early; many activations are zero for every row.",
        "share of rectified units that are zero on all rows, beside that of the same net with new weights",
        "where a layer has lost most of its units: they get no gradient any more",
        "Start biases at zero, lower the learning rate, or use a leaky rectifier.",
        "for m in model.modules():\n    if isinstance(m, nn.Linear | nn.Conv2d) and m.bias is not None:\n"
        "        nn.init.zeros_(m.bias)\n"
        "activation = nn.LeakyReLU()  # in the place of nn.ReLU()",
        "bp-relu-derivatives",
        "warning",
    ),
    "exploding-gradient": Rule(
        "start",
        "The loss jumps to large values or NaN within the first steps, in deep or recurrent nets.",
        "growth of the gradient from the last layer (or step) to the first",
        "above a thousandfold: one step size cannot fit both ends",
        "Use Kaiming's start, normalisation or residual connections; clip the gradient.",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "opt-gradient-clipping",
        "error",
    ),
    "vanishing-gradient": Rule(
        "start",
        "The loss stays near that of guessing for many epochs, in deep or recurrent nets.",
        "decay of the gradient from the last layer (or step) to the first",
        "below a thousandth: the first layers do not learn",
        "Use rectifiers, Kaiming's start, normalisation or residual connections; gated cells for sequences.",
        "class Residual(nn.Module):\n    def __init__(self, body):\n        super().__init__()\n        self.body = body\n\n"
        "    def forward(self, x):\n        return x + self.body(x)",
        "rnn-vanishing-bound",
        "error",
    ),
    # --- architecture ------------------------------------------------------------------------------------
    "oversmoothing": Rule(
        "architecture",
        "A deeper graph net is worse than a shallow one; all nodes get nearly the same answer.",
        "part of the nodes' states outside of what averages converge to, relative to their size",
        "where nodes have become alike, or began so, and fewer layers would do better",
        "Use fewer propagation layers, residual connections or jumping knowledge.",
        "n_layers = 2",
        "gcn-oversmoothing",
        "warning",
    ),
    "receptive-field-too-small": Rule(
        "architecture",
        "The loss stops well above what other models reach, though training is stable.",
        "score with inputs inside the receptive field, against all inputs; or with wider windows, trained anew",
        "where what decides lies outside",
        "Use more layers, larger kernels, dilation or stride.",
        "nn.Conv1d(width, width, 3, dilation=2, padding=2)",
        "conv-receptive-field",
        "warning",
    ),
    "bottleneck": Rule(
        "architecture",
        "The loss stops well above what other models reach; one layer is very narrow.",
        "width of the narrowest layer, and what is lost in it",
        "where a layer is far narrower than its neighbours and the answer is lost in it",
        "Widen the layer.",
        "nn.Linear(width, 4 * narrow)",
        "la-eckart-young",
        "warning",
    ),
    "batch-too-small": Rule(
        "architecture",
        "The loss is noisy and stops above what larger batches reach; eval() is far worse than train().",
        "gain of larger batches; rows of a batch as the running means of batch normalisation tell them",
        "where a larger batch helps more than a smaller rate",
        "Use larger batches, or accumulate gradients; use group or layer normalisation for tiny ones.",
        "loader = DataLoader(data, batch_size=64, shuffle=True)",
        "sgd-constant-step",
        "warning",
    ),
    # --- descent -----------------------------------------------------------------------------------------
    "learning-rate-too-large": Rule(
        "descent",
        "The loss jumps about, grows, or hovers far above what is possible.",
        "loss after some steps with a tenth of the rate, against the same with the rate as it is",
        "where less rate gives far less loss, or the loss has grown: the step exceeds 2/L",
        "Divide the learning rate by ten, or warm it up.",
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "opt-descent-lemma",
        "warning",
    ),
    "learning-rate-too-small": Rule(
        "descent",
        "The loss falls steadily but very slowly, and is far from done when training ends.",
        "loss after some steps with a larger rate, against the same with the rate as it is",
        "where the weights have hardly moved and a larger rate gives far less loss",
        "Multiply the learning rate by ten until the loss falls fast.",
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "gd-linear-rate",
        "warning",
    ),
    "weight-decay-too-large": Rule(
        "descent",
        "The loss stops high, weights shrink towards zero, and all answers are alike.",
        "loss after some steps without decay, against the same with it",
        "where the loss falls as soon as the decay is gone, and weights are shorter than at the start",
        "Divide the weight decay by a hundred.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)",
        "reg-weight-decay",
        "warning",
    ),
    "dropout-too-large": Rule(
        "descent",
        "The training loss stays high and noisy; evaluation is better than training.",
        "loss after some steps with less dropout, against the same with it",
        "where most units are dropped and the loss falls with less",
        "Use a rate of 0.1 to 0.5.",
        "nn.Dropout(0.2)",
        "reg-dropout",
        "warning",
    ),
    # --- outcome -----------------------------------------------------------------------------------------
    "capacity-too-small": Rule(
        "outcome",
        "Training and validation loss agree, and both stop well above what other models reach.",
        "training score of the same model trained afresh with good settings, against a larger one",
        "where good settings do not help but a larger model does, on held-out rows too",
        "Use wider or more layers.",
        "nn.Linear(n_inputs, 4 * width)",
        "apx-barron",
        "warning",
    ),
    "overfit": Rule(
        "outcome",
        "The training loss goes to zero while the validation loss turns and rises.",
        "validation loss against training loss, and against its own best",
        "where the gap is far above its standard error and a simpler or earlier model does better",
        "Stop earlier, use weight decay, dropout or augmentation, or more data.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)\n"
        "training = corollary.Training(early_stopping=True)  # of an estimator of the library",
        "slt-generalisation-gap",
        "warning",
    ),
    "posterior-collapse": Rule(
        "outcome",
        "Every reconstruction is the mean picture; samples look alike.",
        "Kullback-Leibler divergence per latent dimension, and the number of dimensions in use",
        "where none or nearly none is used: the code says nothing about the input",
        "Warm up the weight of the KL term (beta), use free bits, or a weaker decoder.",
        "loss = reconstruction + min(1, step / 1000) * kl",
        "vae-gaussian-kl",
        "warning",
    ),
    "mode-collapse": Rule(
        "outcome",
        "Samples repeat a few patterns and leave out the rest of the data.",
        "share of the data that has a generated sample near it",
        "far below what a second half of the data covers of the first",
        "Use a Wasserstein loss, minibatch discrimination or unrolled steps; lower the generator's rate.",
        "",
        "gan-mode-collapse",
        "warning",
    ),
    "miscalibrated": Rule(
        "outcome",
        "The model is nearly certain of answers that are often wrong, or unsure of right ones.",
        "expected calibration error on held-out rows",
        "above a tenth, beyond its sampling error, or less if a temperature fitted to the training rows mends new ones",
        "Divide the logits by a temperature fitted on validation data.",
        "logits = logits / temperature",
        "it-cross-entropy",
        "warning",
    ),
    "adversarially-fragile": Rule(
        "outcome",
        "Tiny changes of the input change the answer.",
        "change of the input that changes the answer, relative to how far apart classes lie",
        "where next to nothing is enough, inputs of a class hardly vary that way, or the same net can be taught to withstand it",
        "Train on adversarial examples, or penalise the gradient by the input.",
        "near = X.clone().requires_grad_(True)\n"
        "(slope,) = torch.autograd.grad(loss(model(near), y), near)\n"
        "value = loss(model(X + 0.05 * slope.sign()), y)  # descend this; corollary.Training(adversary=0.05) does",
        "adv-definition",
        "warning",
    ),
}

CAUSES = tuple(RULES)
