"""Generative models: steps of U-Nets, flows and adversarial games, drawing by diffusion and pixel by pixel, and FID."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.harness import THREADS, Draw, Pair, claim
from corollary.engine.player import flatten

STEPS = 4  # so that going back to the start weighs little


@claim("pixelcnn-sampling", peer="torch", aim=10)
def pixels(draw: Draw) -> Pair:
    """PixelCNN sampling against the full forward for every pixel"""
    from corollary.nn.pixels import PixelNetwork

    side, n = draw.size("side", 12, 28), draw.size("images", 4, 32)
    torch.manual_seed(0)
    net = PixelNetwork(1, 4, (side, side), 16, 4).eval()
    u = torch.from_numpy(draw.rng.random((n, 1, side, side))).float()

    def choose(out: torch.Tensor, i: int, j: int, k: int) -> torch.Tensor:
        below = out.softmax(1).cumsum(1) < u[:, k, i, j, None]
        return below.sum(1).clamp_max(3) * 2 / 3 - 1

    def kept() -> np.ndarray:
        with torch.inference_mode():
            return net.draw(u, choose).numpy()

    def naive() -> np.ndarray:
        x = torch.zeros_like(u)
        with torch.inference_mode():
            for i, j in product(range(side), range(side)):
                x[:, 0, i, j] = choose(net(x)[:, 0, :, i, j], i, j, 0)
        return x.numpy()

    def quality(ours: np.ndarray, peer: np.ndarray) -> dict[str, float]:
        same = float(np.mean(ours == peer))
        if same < 0.99:  # a tie within rounding changes what follows it
            raise AssertionError("the drawn images differ")
        return {"same": same}

    return Pair(kept, naive, quality)


# --- diffusion ----------------------------------------------------------------------------------------------


def _unets(draw: Draw) -> tuple[Any, Any, Tensor]:
    """Return our U-Net in diffusers' layout with its weights, diffusers', and images."""
    from diffusers import UNet2DModel

    from corollary.generative.denoisers import UNetDenoiser

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    side, depth = draw.choice("side", (16, 28, 32)), draw.choice("halvings", (1, 2))
    channels, width = draw.choice("channels", (1, 3)), draw.choice("width", (32, 48, 64))
    side += -side % 2**depth
    batch = max(4, draw.size("pixels", 12_000, 40_000) // side**2)
    peer = UNet2DModel(
        in_channels=channels,
        out_channels=channels,
        layers_per_block=1,
        block_out_channels=tuple(width * 2**i for i in range(depth + 1)),
        down_block_types=("DownBlock2D",) * (depth + 1),
        up_block_types=("UpBlock2D",) * (depth + 1),
        norm_num_groups=8,
        add_attention=False,
        time_embedding_dim=2 * width,
        flip_sin_to_cos=False,
    )
    ours = UNetDenoiser.from_diffusers(peer)
    return ours.to(memory_format=torch.channels_last), peer, torch.randn(batch, channels, side, side)


def _trainer(module: nn.Module, out: Any, x: Tensor, flat: bool) -> Any:
    """Return a call that trains from a fixed state for some steps and returns the losses.

    ``flat`` parameters lie in one vector, as the engine's do.
    """
    start = copy.deepcopy(module.state_dict())
    parameters = list(module.parameters())
    moved = [flatten(parameters)] if flat else parameters
    t, target = torch.arange(len(x)), x.roll(1, 0)

    def train() -> list[float]:
        module.load_state_dict(start)
        optimizer = torch.optim.Adam(moved, 1e-4, fused=flat)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=not flat)
            loss = F.mse_loss(out(module(x, t)), target)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    return train


def _equal_losses(ours: list[float], peer: list[float]) -> dict[str, float]:
    gap = max(abs(a - b) / abs(b) for a, b in zip(ours, peer))
    if gap > 1e-3:
        raise AssertionError(f"losses of the same steps differ: {ours} and {peer}")
    return {"loss": ours[-1], "difference": gap}


@claim("unet-step", peer="diffusers", aim=1.25)
def unet_step(draw: Draw) -> Pair:
    """U-Net training step

    Convolutions, oneDNN's on both sides, are six sevenths of the time of either: were the rest free, the ratio would be 1.17.
    Channels-last memory and one fused update are what is saved.
    """
    ours, peer, x = _unets(draw)
    inside = x.contiguous(memory_format=torch.channels_last)
    return Pair(
        _trainer(ours.train(), lambda out: out, inside, flat=True),
        _trainer(peer.train(), lambda out: out.sample, x, flat=False),
        _equal_losses,
        repeats=5,
    )


@claim("ddim-sampling", peer="diffusers", aim=1.0)
def ddim(draw: Draw) -> Pair:
    """DDIM sampling with the same network"""
    from diffusers import DDIMScheduler

    from corollary import DDPM, Training

    net, peer, noise = _unets(draw)
    steps = draw.size("steps", 10, 30)
    model = DDPM(
        steps,
        schedule="linear",
        prediction="epsilon",
        sampling_steps=steps,
        width=8,
        n_layers=1,
        training=Training(epochs=1),
        random_state=0,
    ).fit(draw.rng.random((8, *noise.shape[1:])).astype(np.float32))
    model.module_ = net.eval()
    scheduler = DDIMScheduler(steps, clip_sample=True, timestep_spacing="linspace")
    scheduler.set_timesteps(steps)
    peer.eval()

    def ours() -> Tensor:
        how: Any = {"steps": steps, "eta": 0.0, "ancestral": False}
        with torch.inference_mode():
            return model._denoised(noise, None, model._rng(), **how)

    def theirs() -> Tensor:
        x = noise
        with torch.inference_mode():
            for t in scheduler.timesteps:
                out = peer(x, t).sample
                x = scheduler.step(out, t, x, use_clipped_model_output=True).prev_sample
        return x

    def quality(a: Tensor, b: Tensor) -> dict[str, float]:
        gap = float((a - b).abs().max())
        if gap > 1e-3:
            raise AssertionError(f"the drawn images differ by {gap}")
        return {"difference": gap}

    return Pair(ours, theirs, quality)


@claim("fid-moments", peer="scipy", aim=10, count=3)
def frechet(draw: Draw) -> Pair:
    """Fréchet distance of moments, against the root of a matrix as in pytorch-fid

    A Cholesky factor, a quarter of two products, and the eigenvalues of one symmetric matrix, two thirds of the time. SciPy's
    root of a matrix has become several times faster since pytorch-fid was measured against. Of a tenth of its time at 1900
    features, .22 seconds, factor and products take .1. A reduction to 32 bands at the speed of products (.07) and LAPACK's
    eigenvalues of these (.09) would lead to a ratio of 8.7 at best. Roots and polar factors by iteration need ten products or
    more, and all eigenvalues take as long as two or three; in single precision these err by 2e-6 and save a fifth.
    """
    from scipy.linalg import sqrtm

    from corollary.metrics.frechet import gaussian_distance

    torch.set_num_threads(THREADS)
    d = draw.size("features", 1024, 2048)
    spectrum = np.arange(1, d + 1) ** -0.5
    sides = []
    for _ in range(2):
        x = draw.rng.standard_normal((3 * d // 2, d)) * spectrum + draw.rng.standard_normal(d)
        sides += [x.mean(0), np.cov(x.T)]
    mu, A, nu, B = sides

    def theirs() -> float:
        root = sqrtm(A @ B)
        gap = mu - nu
        return float(gap @ gap + np.trace(A) + np.trace(B) - 2 * np.trace(root.real))

    def quality(a: float, b: float) -> dict[str, float]:
        if abs(a - b) > 1e-6 * abs(b):
            raise AssertionError(f"distances differ: {a} and {b}")
        return {"distance": a, "difference": abs(a - b)}

    return Pair(lambda: gaussian_distance(mu, A, nu, B), theirs, quality)


# --- flows --------------------------------------------------------------------------------------------------

BATCH = 128
RATE = 1e-3


def _flow_work(draw: Draw) -> tuple[np.ndarray, int, int, int]:
    """Return a table with bends in it, layers, units and epochs."""
    torch.set_num_threads(THREADS)
    n, d = draw.size("rows", 2000, 12000), draw.size("columns", 4, 48)
    codes = draw.rng.standard_normal((n, d))
    X = codes @ draw.rng.standard_normal((d, d)) / np.sqrt(d)
    X = (X + 0.5 * np.sin(2 * X[:, ::-1])).astype(np.float32)
    layers, units = draw.choice("layers", (4, 6, 8)), draw.choice("units", (64, 128, 256))
    return (X - X.mean(0)) / X.std(0), layers, units, max(1, 20_000 // n)


def _flow_ours(X: np.ndarray, layers: int, units: int, epochs: int) -> float:
    from corollary import Flow, Training

    plan = Training(
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=RATE,
        optimizer="adam",
        weight_decay=0.0,
        early_stopping=False,
    )
    model = Flow(n_layers=layers, hidden_layer_sizes=(units, units), training=plan, random_state=0).fit(X)
    return float(-model.score(X))


def _trained(flow: nn.Module, log_prob: Any, X: np.ndarray, epochs: int) -> float:
    """Train as the documentation of both libraries does; return the negative log-density of the data."""
    x, optimizer = torch.from_numpy(X), torch.optim.Adam(flow.parameters(), RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = -log_prob(x[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimizer.step()
    with torch.no_grad():
        return float(-log_prob(x).mean())


def _as_dense(d: int) -> Any:
    """Return a check that both learn in as many updates; ours sees the data whitened, so that the two do not agree exactly."""

    def quality(ours: float, peer: float) -> dict[str, float]:
        if ours > peer + 0.05 * d:
            raise AssertionError(f"the density is worse: {ours} against {peer} nats")
        return {"nats": ours, "peer nats": peer}

    return quality


@claim("coupling-flow-zuko", peer="zuko", aim=1.2)
def against_zuko(draw: Draw) -> Pair:
    """Coupling flow training"""
    import zuko

    X, layers, units, epochs = _flow_work(draw)

    def peer() -> float:
        torch.manual_seed(0)
        flow = zuko.flows.RealNVP(X.shape[1], transforms=layers, hidden_features=(units, units))
        return _trained(flow, lambda x: flow().log_prob(x), X, epochs)

    return Pair(lambda: _flow_ours(X, layers, units, epochs), peer, _as_dense(X.shape[1]))


@claim("coupling-flow-nflows", peer="nflows", aim=1.2)
def against_nflows(draw: Draw) -> Pair:
    """Coupling flow training"""
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.nn.nets import MLP
    from nflows.transforms import AffineCouplingTransform, CompositeTransform

    class Net(MLP):
        """nflows' own perceptron, which knows no context."""

        def forward(self, inputs: Tensor, context: Any = None) -> Tensor:
            return super().forward(inputs)

    X, layers, units, epochs = _flow_work(draw)
    d = X.shape[1]

    def peer() -> float:
        torch.manual_seed(0)
        parts = [
            AffineCouplingTransform((torch.arange(d) + i) % 2, lambda a, b: Net([a], [b], [units, units]))
            for i in range(layers)
        ]
        flow = Flow(CompositeTransform(parts), StandardNormal([d]))
        return _trained(flow, flow.log_prob, X, epochs)

    return Pair(lambda: _flow_ours(X, layers, units, epochs), peer, _as_dense(d))


# --- adversarial games --------------------------------------------------------------------------------------


@claim("gan-step", peer="torch", aim=1.0)
def gan_step(draw: Draw) -> Pair:
    """GAN training against a hand-written loop

    Both average the generator's weights. Ours also measures coverage after every epoch, and can be resumed.
    """
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    from corollary import GAN, Training
    from corollary.generative.adversaries import Adversaries

    torch.set_num_threads(THREADS)
    n, d = draw.size("rows", 4000, 20000), draw.size("columns", 2, 32)
    width, latent = draw.choice("width", (64, 128, 256)), 16
    codes = draw.rng.standard_normal((n, d))
    X = (np.tanh(codes @ draw.rng.standard_normal((d, d))) + 0.1 * codes).astype(np.float32)
    X = (X - X.mean(0)) / X.std(0)
    epochs, rates, batch = max(1, 30_000 // n), (2e-4, 2e-4), 64

    def ours() -> dict[str, float]:
        plan = Training(
            epochs=epochs, batch_size=batch, learning_rate=rates[0], optimizer_options={"betas": (0.5, 0.9)}
        )
        model = GAN(
            "non-saturating",
            latent=latent,
            width=width,
            n_layers=3,
            training=plan,
            critic_learning_rate=rates[1],
            random_state=0,
        )
        return model.fit(X).history_[-1]

    def peer() -> dict[str, float]:
        torch.manual_seed(0)
        nets, x = Adversaries((d,), latent, 0, width, 3), torch.from_numpy(X)
        critic, generator = nets.critic, nets.generator
        first = torch.optim.Adam(critic.parameters(), rates[1], betas=(0.5, 0.9))
        second = torch.optim.Adam(generator.parameters(), rates[0], betas=(0.5, 0.9))
        mean = AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(0.995))
        for _ in range(epochs):
            sums = [0.0, 0.0]
            for rows in torch.randperm(n).split(batch):
                real = x[rows]
                with torch.no_grad():
                    fake = generator(torch.randn(len(rows), latent))
                loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
                first.zero_grad()
                loss.backward()
                first.step()
                sums[0] += loss.item() * len(rows) / n
                loss = F.softplus(-critic(generator(torch.randn(len(rows), latent)))).mean()
                second.zero_grad()
                loss.backward()
                second.step()
                mean.update_parameters(generator)
                sums[1] += loss.item() * len(rows) / n
        return {"critic_loss": sums[0], "generator_loss": sums[1]}

    def quality(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
        if abs(a["critic_loss"] - b["critic_loss"]) > 0.3:
            raise AssertionError(f"the games went different ways: {a} and {b}")
        return {"critic loss": a["critic_loss"], "peer critic loss": b["critic_loss"]}

    return Pair(ours, peer, quality)
