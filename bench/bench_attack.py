"""Attacks against torchattacks and foolbox: the same small network, images, radius and steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import THREADS, Draw, Pair, claim

BOUNDS = (0.0, 1.0)


def _net(draw: Draw, images: tuple[int, int] = (64, 256)) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a small convolutional network that tells random images apart, and what it says of them."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(int(draw.rng.integers(2**31)))
    side, channels = draw.choice("side", (16, 28, 32)), draw.choice("channels", (1, 3))
    width, classes = draw.size("width", 8, 32), draw.choice("classes", (5, 10))
    flat = 2 * width * (side // 4) ** 2
    layers = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, classes)).eval()
    with torch.no_grad():
        net[-1].weight *= 10  # classes lie apart, so that attacks have something to do
    x = torch.rand(draw.size("images", *images), channels, side, side)
    with torch.no_grad():
        y = net(x).argmax(1)
    return net, x, y


def _equal(net: nn.Module, y: Tensor) -> Any:
    """Return a check that the same steps lead to the same images, but for a few where rounding turned the sign of a slope."""

    def check(ours: Tensor, peer: Tensor) -> dict[str, float]:
        apart = float(((ours - peer).abs().flatten(1).amax(1) > 1e-4).float().mean())
        with torch.no_grad():
            won = [float((net(each).argmax(1) != y).float().mean()) for each in (ours, peer)]
        if apart > 0.05 or won[0] < won[1] - 0.01:
            raise AssertionError(f"{apart:.0%} of the images end apart; success {won}")
        return {"success": won[0], "images apart": apart}

    return check


def _no_worse(net: nn.Module, x: Tensor, y: Tensor) -> Any:
    """Return a check that ours fools as many, by changes no longer in the mean."""

    def check(ours: Tensor, peer: Tensor) -> dict[str, float]:
        with torch.no_grad():
            won = [float((net(each).argmax(1) != y).float().mean()) for each in (ours, peer)]
        far = [float((each - x).flatten(1).norm(dim=1).mean()) for each in (ours, peer)]
        if won[0] < won[1] or far[0] > 1.02 * far[1]:
            raise AssertionError(f"success {won}, mean distance {far}")
        return {"success": won[0], "distance": far[0], "their distance": far[1]}

    return check


def _ascent(draw: Draw) -> tuple[nn.Module, Tensor, Tensor, Any]:
    from corollary import attack

    net, x, y = _net(draw)
    options = {
        "eps": 0.1,
        "steps": 40,
        "step_size": 0.01,
        "bounds": BOUNDS,
        "random_start": False,
        "keep": "last",
    }
    return net, x, y, lambda: attack.pgd(net, x, y, **options).adversarial


def _fooling(draw: Draw, images: tuple[int, int] = (64, 256)) -> tuple[nn.Module, Tensor, Tensor, Any]:
    from corollary import attack

    net, x, y = _net(draw, images)
    return net, x, y, lambda: attack.deepfool(net, x, y, bounds=BOUNDS).adversarial


@claim("pgd-torchattacks", peer="torchattacks", aim=1.0)
def pgd_torchattacks(draw: Draw) -> Pair:
    """PGD with 40 steps, against torchattacks

    The network's forward and backward passes are nearly all of the time on both sides.
    """
    import torchattacks

    net, x, y, ours = _ascent(draw)
    peer = torchattacks.PGD(net, eps=0.1, alpha=0.01, steps=40, random_start=False)
    return Pair(ours, lambda: peer(x, y), _equal(net, y))


@claim("pgd-foolbox", peer="foolbox", aim=1.0)
def pgd_foolbox(draw: Draw) -> Pair:
    """PGD with 40 steps, against foolbox

    The network's forward and backward passes are nearly all of the time on both sides.
    """
    import foolbox

    net, x, y, ours = _ascent(draw)
    model = foolbox.PyTorchModel(net, bounds=BOUNDS)
    peer = foolbox.attacks.LinfPGD(abs_stepsize=0.01, steps=40, random_start=False)
    return Pair(ours, lambda: peer(model, x, y, epsilons=0.1)[1], _equal(net, y))


@claim("deepfool-torchattacks", peer="torchattacks", aim=15.0)
def deepfool_torchattacks(draw: Draw) -> Pair:
    """DeepFool, against torchattacks

    It attacks one image at a time; ours as many as stay in the cache, and drops those that are fooled. One forward pass and one
    backward for each rival class remain, nine tenths of them in torch's gradients of convolutions, and a batch makes these
    hardly cheaper: of images of 3 x 32 x 32 in a network of width 26, sixteen at once take .9 of sixteen times what one takes.
    What is saved there are gradients of the weights, which the peer takes too. All rivals in one batched backward pass
    (`is_grads_batched`) take as long as one after another.
    """
    import torchattacks

    net, x, y, ours = _fooling(draw, (32, 128))  # one at a time, more would take minutes
    peer = torchattacks.DeepFool(net, steps=50, overshoot=0.02)
    return Pair(ours, lambda: peer(x, y), _no_worse(net, x, y))


@claim("deepfool-foolbox", peer="foolbox", aim=2.0)
def deepfool_foolbox(draw: Draw) -> Pair:
    """DeepFool, against foolbox

    It runs the network anew for every rival class, over all images until the last is fooled.
    """
    import foolbox

    net, x, y, ours = _fooling(draw)
    model = foolbox.PyTorchModel(net, bounds=BOUNDS)
    peer = foolbox.attacks.L2DeepFoolAttack(steps=50, candidates=10, overshoot=0.02)
    return Pair(ours, lambda: peer(model, x, y, epsilons=None)[1], _no_worse(net, x, y))
