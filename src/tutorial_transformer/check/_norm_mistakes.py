"""The mistakes that people make in layer normalisation, each under its sentence."""

from collections.abc import Callable

from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake

HAND = "chapter 06, 2. Normalise four numbers by hand"
ALONE = "chapter 06, 3. Norm each token alone"


def standard(x: Tensor, eps: float = 1e-5, over=-1, biased: bool = True) -> Tensor:
    """Give every vector mean 0 and variance 1."""
    variance = x.var(over, unbiased=not biased, keepdim=True)
    return (x - x.mean(over, keepdim=True)) / (variance + eps).sqrt()


def _over(axes: Callable) -> Callable:
    return lambda x, w, b, eps: standard(x, eps, axes(x)) * w + b


def _by(size: Callable) -> Callable:
    """Divide the centred vector by this size."""
    return lambda x, w, b, eps: (x - x.mean(-1, keepdim=True)) / size(x, eps) * w + b


def _spread(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _std(x: Tensor, unbiased: bool) -> Tensor:
    return x.std(-1, unbiased=unbiased, keepdim=True)


NORMING = {
    "the variance is the unbiased one: divide by d_model, not by d_model - 1": (
        Mistake(HAND, lambda x, w, b, eps: standard(x, eps, biased=False) * w + b)
    ),
    "the standard deviation is unbiased, and eps stands outside the root: divide by d_model, and "
    "add eps to the variance": Mistake(HAND, _by(lambda x, eps: _std(x, True) + eps)),
    "eps stands outside the root; add it to the variance": (
        Mistake(HAND, _by(lambda x, eps: _std(x, False) + eps))
    ),
    "eps is missing: a constant vector is divided by 0": (
        Mistake(HAND, _by(lambda x, eps: _std(x, False)))
    ),
    "eps has no effect: it is fixed at 1e-5": (
        Mistake(HAND, lambda x, w, b, eps: standard(x) * w + b)
    ),
    "eps has no effect: it is fixed at 1e-6": (
        Mistake(HAND, lambda x, w, b, eps: standard(x, 1e-6) * w + b)
    ),
    "it divides by the variance, not by its root": (
        Mistake(HAND, _by(lambda x, eps: _std(x, False).square() + eps))
    ),
    "it divides by the variance, not by its root, and the variance is the unbiased one": (
        Mistake(HAND, _by(lambda x, eps: _std(x, True).square() + eps))
    ),
    "eps is squared: it is added to the deviation inside the root": (
        Mistake(HAND, _by(lambda x, eps: (_std(x, False).square() + eps**2).sqrt()))
    ),
    "the mean is not subtracted": Mistake(
        HAND,
        lambda x, w, b, eps: x / (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt() * w + b,
    ),
    "the mean is not subtracted: it is RMSNorm": Mistake(
        HAND, lambda x, w, b, eps: x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * w + b
    ),
    "the variance is the mean of the squares: subtract the mean first": (
        Mistake(HAND, _by(lambda x, eps: (x.square().mean(-1, keepdim=True) + eps).sqrt()))
    ),
    "it divides by the mean absolute deviation, not by the standard deviation": (
        Mistake(HAND, _by(lambda x, eps: _spread(x).abs().mean(-1, keepdim=True) + eps))
    ),
    "it scales between the smallest and the largest number; wanted mean 0 and variance 1": Mistake(
        HAND,
        lambda x, w, b, eps: (
            (x - x.amin(-1, True)) / (x.amax(-1, True) - x.amin(-1, True) + eps) * w + b
        ),
    ),
    "1 is added to the gain": Mistake(HAND, lambda x, w, b, eps: standard(x, eps) * (w + 1) + b),
    "nothing is normed in evaluation mode, as in BatchNorm; norm each token alone": (
        Mistake(ALONE, lambda x, w, b, eps: x / (1 + eps) ** 0.5 * w + b)
    ),
    "the mean is subtracted, but nothing is divided": Mistake(HAND, _by(lambda x, eps: 1.0)),
    "it divides by the vector's length, not by its standard deviation": (
        Mistake(HAND, _by(lambda x, eps: (x - x.mean(-1, keepdim=True)).norm(dim=-1, keepdim=True)))
    ),
    "the learned gain and bias have no effect": (
        Mistake(HAND, lambda x, w, b, eps: standard(x, eps))
    ),
    "the learned bias has no effect": Mistake(HAND, lambda x, w, b, eps: standard(x, eps) * w),
    "the learned gain has no effect": Mistake(HAND, lambda x, w, b, eps: standard(x, eps) + b),
    "gain and bias have changed places": (
        Mistake(HAND, lambda x, w, b, eps: standard(x, eps) * b + w)
    ),
    "the bias is added before the gain multiplies": (
        Mistake(HAND, lambda x, w, b, eps: (standard(x, eps) + b) * w)
    ),
    "it norms over the positions; norm each token alone, over the last axis": (
        Mistake(ALONE, _over(lambda x: -2))
    ),
    "it norms over the batch; norm each token alone, over the last axis": (
        Mistake(ALONE, _over(lambda x: 0))
    ),
    "it norms over positions and features together; norm each token alone, over the last axis": (
        Mistake(ALONE, _over(lambda x: (-2, -1)))
    ),
    "it norms over batch and positions, as batch norm does; norm each token alone, over the last "
    "axis": Mistake(ALONE, _over(lambda x: tuple(range(x.ndim - 1)))),
    "it norms over the whole batch; norm each token alone, over the last axis": (
        Mistake(ALONE, _over(lambda x: tuple(range(x.ndim))))
    ),
}
