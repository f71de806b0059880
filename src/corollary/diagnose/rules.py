"""The causes: what is measured, when each fires and why there, what to do, and the formula behind it.

A row of :data:`RULES` is a cause. Its measurement is made by a file of this package, named by its family; the threshold
stands in that file beside the measurement and is said in words here. Families come upstream first: a fault of the data
explains one of the start, and that one of the outcome.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CAUSES", "FAMILIES", "RULES", "Rule"]

FAMILIES = ("data", "objective", "graph", "start", "architecture", "descent", "outcome")


class Rule(NamedTuple):
    """One cause of the vocabulary."""

    family: str
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
        "share of entries that are NaN or infinite",
        "at one: a single NaN makes every weight NaN after one step",
        "Impute or drop what is missing before training.",
        "X = SimpleImputer().fit_transform(X)",
        "loss-functions",
        "error",
    ),
    "overflow": Rule(
        "data",
        "share of finite rows whose output, loss or gradient is not finite",
        "at one row, with finite weights: then the arithmetic overflows, not the descent",
        "Keep exponents and squares in range: scale the inputs, use logits with a loss that takes them, or float32.",
        "model = model.float(); X = (X - X.mean(0)) / X.std(0)",
        "analysis-log-trick",
        "error",
    ),
    "unscaled-inputs": Rule(
        "data",
        "typical size of the values that enter the first weights, per feature",
        "far from 1 or far apart: the condition number of the first layer grows with the square of their ratio",
        "Standardise the inputs with the mean and deviation of the training data.",
        "mean, std = X.mean(0), X.std(0); X = (X - mean) / std",
        "condition-number",
        "warning",
    ),
    "unscaled-targets": Rule(
        "data",
        "typical size of the targets",
        "far from the outputs' size at the start (about 1): the way there takes most of the steps",
        "Standardise the targets, and undo it for predictions.",
        "y = (y - y.mean()) / y.std()",
        "opt-step-size",
        "warning",
    ),
    "constant-features": Rule(
        "data",
        "number of columns that never change",
        "at one in dense data: such a column carries nothing and hides a broken source",
        "Drop the columns, or repair where they come from.",
        "X = X[:, X.std(0) > 0]",
        "prob-covariance",
        "warning",
    ),
    "duplicate-features": Rule(
        "data",
        "number of columns that repeat another one",
        "at one, up to scale and sign: the normal equations become singular",
        "Keep one of each group.",
        "X = X[:, numpy.unique(X, axis=1, return_index=True)[1]]",
        "linreg-normal-equations",
        "warning",
    ),
    "train-test-overlap": Rule(
        "data",
        "share of validation rows that are training rows",
        "above the share of rows that repeat inside the training data, which is what chance would give",
        "Split again, by groups if rows belong together; remove repeated rows first.",
        "X = numpy.unique(X, axis=0)  # before the split",
        "slt-generalisation-gap",
        "warning",
    ),
    "distribution-shift": Rule(
        "data",
        "how well training and validation inputs can be told apart (AUC), or their features' largest KS distance",
        "where a classifier tells them apart better than chance by far: the risk is then that of other data",
        "Validate on data like those of use; reweight, augment or collect training data that cover them.",
        "train_test_split(X, y, shuffle=True, stratify=y)",
        "it-kl",
        "warning",
    ),
    "target-leak": Rule(
        "data",
        "score of one column alone on held-out rows, against the score of all others",
        "where one column says nearly all and the others little",
        "Remove the column: it will not be known when predictions are made.",
        "X = numpy.delete(X, column, axis=1)",
        "it-data-processing",
        "error",
    ),
    "misaligned-labels": Rule(
        "data",
        "score of a simple model with targets as given, and with targets moved",
        "where moved targets, or those of validation, can be learned and the given ones cannot",
        "Join rows and labels by key, not by position; check what was shuffled or sorted.",
        "frame = X.join(y, on='id')",
        "prob-independence",
        "error",
    ),
    "no-signal": Rule(
        "data",
        "held-out score of trees, neighbours, a line and the model, above chance",
        "where none is above chance by more than its standard error",
        "No model can learn this: look for other features, or for what broke the relation.",
        "",
        "slt-random-labels",
        "error",
    ),
    "label-noise": Rule(
        "data",
        "share of labels that confident held-out predictions contradict",
        "where errors stay among the most confident rows; classes that merely overlap err near the border only",
        "Review the rows named in the evidence; until then use label smoothing or a robust loss.",
        "loss = nn.CrossEntropyLoss(label_smoothing=0.1)",
        "slt-random-labels",
        "warning",
    ),
    "class-imbalance": Rule(
        "data",
        "recall of the rarest classes",
        "where rare classes are missed although a weighted simple model finds them",
        "Weight the loss by class, or sample classes evenly.",
        "loss = nn.CrossEntropyLoss(weight=len(y) / (n_classes * torch.bincount(y)))",
        "prob-bayes-rule",
        "warning",
    ),
    # --- objective ---------------------------------------------------------------------------------------
    "double-softmax": Rule(
        "objective",
        "sum of the outputs per row, for a loss that takes logits",
        "at one: the loss applies a second softmax, whose gradient nearly vanishes",
        "Return logits, and apply softmax only to predict.",
        "return logits  # not logits.softmax(1)",
        "act-softmax-jacobian",
        "error",
    ),
    "wrong-loss": Rule(
        "objective",
        "loss of a perfect output, of a wrong one, and how loss and target fit",
        "where a perfect output is not the best one, or classes are treated as numbers",
        "Use the loss that belongs to the target.",
        "loss = 'cross_entropy'  # classes; 'mse' for numbers, 'bce_with_logits' for yes or no",
        "loss-functions",
        "error",
    ),
    "output-range": Rule(
        "objective",
        "share of targets that no weights of the last layer can reach",
        "above a per cent: the last activation cuts them off",
        "Remove the last activation, or scale the targets into its range.",
        "head = nn.Linear(width, n_outputs)  # no activation after it",
        "act-relu",
        "error",
    ),
    "stochastic-evaluation": Rule(
        "objective",
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
        "parameters that change the output but get no gradient",
        "at one: they stay at their start for ever",
        "Remove detach(), no_grad(), .data, rounding or NumPy from the forward pass; keep layers in a ModuleList.",
        "self.layers = nn.ModuleList(layers)",
        "bp-error-recursion",
        "error",
    ),
    "frozen-parameters": Rule(
        "graph",
        "share of parameters that are not trained and still random",
        "where random layers are held fixed; a trained body that is held fixed is meant so",
        "Set requires_grad, and hand all parameters to the optimiser.",
        "for p in model.parameters(): p.requires_grad_(True)",
        "bp-weight-gradient",
        "error",
    ),
    "gradients-not-cleared": Rule(
        "graph",
        "share of an old gradient that is left after the next step",
        "above zero in every step: updates then follow the sum of all gradients so far",
        "Clear the gradients before each backward pass.",
        "optimizer.zero_grad(); loss.backward(); optimizer.step()",
        "opt-gradient-descent",
        "error",
    ),
    # --- start -------------------------------------------------------------------------------------------
    "symmetric-initialisation": Rule(
        "start",
        "share of units of a layer that equal another one",
        "where most do: equal units get equal gradients and stay equal",
        "Draw the initial weights at random.",
        "nn.init.kaiming_normal_(layer.weight)",
        "bp-weight-gradient",
        "error",
    ),
    "saturated-units": Rule(
        "start",
        "share of sigmoid or tanh activations at their ends",
        "above a half: their slope, and with it the gradient, is near zero",
        "Start with smaller weights (Xavier), standardise the inputs, or normalise between layers.",
        "nn.init.xavier_normal_(layer.weight)",
        "act-vanishing",
        "warning",
    ),
    "dead-units": Rule(
        "start",
        "share of rectified units that are zero on all rows",
        "where a layer has lost most of its units: they get no gradient any more",
        "Start biases at zero, lower the learning rate, or use a leaky rectifier.",
        "nn.init.zeros_(layer.bias); activation = nn.LeakyReLU()",
        "bp-relu-derivatives",
        "warning",
    ),
    "exploding-gradient": Rule(
        "start",
        "growth of the gradient from the last layer (or step) to the first",
        "above a thousandfold: one step size cannot fit both ends",
        "Use Kaiming's start, normalisation or residual connections; clip the gradient.",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "opt-gradient-clipping",
        "error",
    ),
    "vanishing-gradient": Rule(
        "start",
        "decay of the gradient from the last layer (or step) to the first",
        "below a thousandth: the first layers do not learn",
        "Use rectifiers, Kaiming's start, normalisation or residual connections; gated cells for sequences.",
        "block = lambda x: x + layer(x)",
        "rnn-vanishing-bound",
        "error",
    ),
    # --- architecture ------------------------------------------------------------------------------------
    "oversmoothing": Rule(
        "architecture",
        "variation of the nodes' states in the last layer, relative to their size",
        "where nodes have become alike and fewer layers would do better",
        "Use fewer propagation layers, residual connections or jumping knowledge.",
        "n_layers = 2",
        "gcn-oversmoothing",
        "warning",
    ),
    "receptive-field-too-small": Rule(
        "architecture",
        "score with inputs inside the receptive field, against all inputs",
        "where what decides lies outside",
        "Use more layers, larger kernels, dilation or stride.",
        "nn.Conv1d(width, width, 3, dilation=2, padding=2)",
        "conv-receptive-field",
        "warning",
    ),
    "bottleneck": Rule(
        "architecture",
        "width of the narrowest layer, and what is lost in it",
        "where a layer is far narrower than its neighbours and the answer is lost in it",
        "Widen the layer.",
        "nn.Linear(width, 4 * narrow)",
        "la-eckart-young",
        "warning",
    ),
    "batch-too-small": Rule(
        "architecture",
        "noise of a batch's gradient or statistics, relative to their size",
        "where a larger batch helps more than a smaller rate",
        "Use larger batches, or accumulate gradients; use group or layer normalisation for tiny ones.",
        "DataLoader(data, batch_size=64, shuffle=True)",
        "sgd-constant-step",
        "warning",
    ),
    # --- descent -----------------------------------------------------------------------------------------
    "learning-rate-too-large": Rule(
        "descent",
        "loss after some steps with a tenth of the rate, against the same with the rate as it is",
        "where less rate gives far less loss, or the loss has grown: the step exceeds 2/L",
        "Divide the learning rate by ten, or warm it up.",
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "opt-descent-lemma",
        "warning",
    ),
    "learning-rate-too-small": Rule(
        "descent",
        "loss after some steps with a larger rate, against the same with the rate as it is",
        "where the weights have hardly moved and a larger rate gives far less loss",
        "Multiply the learning rate by ten until the loss falls fast.",
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "gd-linear-rate",
        "warning",
    ),
    "weight-decay-too-large": Rule(
        "descent",
        "loss after some steps without decay, against the same with it",
        "where the loss falls as soon as the decay is gone, and weights are shorter than at the start",
        "Divide the weight decay by a hundred.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)",
        "reg-weight-decay",
        "warning",
    ),
    "dropout-too-large": Rule(
        "descent",
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
        "training score of the same model trained afresh with good settings, against a larger one",
        "where good settings do not help but a larger model does, on held-out rows too",
        "Use wider or more layers.",
        "nn.Linear(n_inputs, 4 * width)",
        "apx-barron",
        "warning",
    ),
    "overfit": Rule(
        "outcome",
        "validation loss against training loss, and against its own best",
        "where the gap is far above its standard error and a simpler or earlier model does better",
        "Stop earlier, use weight decay, dropout or augmentation, or more data.",
        "Training(early_stopping=True, weight_decay=1e-4)",
        "slt-generalisation-gap",
        "warning",
    ),
    "posterior-collapse": Rule(
        "outcome",
        "Kullback-Leibler divergence per latent dimension, and the number of dimensions in use",
        "where none or nearly none is used: the code says nothing about the input",
        "Warm up the weight of the KL term (beta), use free bits, or a weaker decoder.",
        "loss = reconstruction + min(1, step / 1000) * kl",
        "vae-gaussian-kl",
        "warning",
    ),
    "mode-collapse": Rule(
        "outcome",
        "share of the data that has a generated sample near it",
        "far below what a second half of the data covers of the first",
        "Use a Wasserstein loss, minibatch discrimination or unrolled steps; lower the generator's rate.",
        "",
        "gan-mode-collapse",
        "warning",
    ),
    "miscalibrated": Rule(
        "outcome",
        "expected calibration error on held-out rows",
        "above a tenth, beyond its sampling error: stated probabilities are not frequencies",
        "Divide the logits by a temperature fitted on validation data.",
        "logits = logits / temperature",
        "it-cross-entropy",
        "warning",
    ),
    "adversarially-fragile": Rule(
        "outcome",
        "distance to the nearest input with another answer, relative to the distance between classes",
        "where it is a small share of what the data would allow",
        "Train on adversarial examples, or penalise the gradient by the input.",
        "Training(adversary=0.05)",
        "adv-definition",
        "warning",
    ),
}

CAUSES = tuple(RULES)
