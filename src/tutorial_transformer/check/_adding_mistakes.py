"""The mistakes that people make in the residual wrapper, each under its sentence."""

from collections.abc import Callable

from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake

ADD = "chapter 06, 1. Add the input back, or the gradient is lost"
ORDER = "chapter 06, 4. Wrap the sub-layer, in one of two orders"
UNNORMED = "in pre-norm order the norm is missing"
STREAM = "chapter 06, 9. Take the shortcut from the stream, not from its norm"


def right_add(norm: Callable, first: bool, x: Tensor, sublayer: Callable) -> Tensor:
    """Wrap a sub-layer, rightly."""
    return x + sublayer(norm(x)) if first else norm(x + sublayer(x))


def both(post: Callable | None = None, pre: Callable | None = None) -> Callable:
    """A wrapper with a mistake in one order or in both; each is a rule of (norm, x, sublayer)."""

    def wrong(norm: Callable, first: bool, x: Tensor, sublayer: Callable) -> Tensor:
        rule = pre if first else post
        return right_add(norm, first, x, sublayer) if rule is None else rule(norm, x, sublayer)

    return wrong


def _same(rule: Callable) -> Callable:
    return both(rule, rule)


def _normed_twice(n, x, f):
    return n(x + f(n(x)))


ADDING = {
    "the residual is missing: x must be added to the sub-layer's output": (
        Mistake(ADD, both(lambda n, x, f: n(f(x)), lambda n, x, f: f(n(x))))
    ),
    "in post-norm order the residual is missing": Mistake(ADD, both(lambda n, x, f: n(f(x)))),
    "in pre-norm order the residual is missing": Mistake(ADD, both(None, lambda n, x, f: f(n(x)))),
    "the norm is missing": Mistake(ORDER, _same(lambda n, x, f: x + f(x))),
    "in post-norm order the norm is missing": Mistake(ORDER, both(lambda n, x, f: x + f(x))),
    UNNORMED: Mistake(ORDER, both(None, lambda n, x, f: x + f(x))),
    "norm_first is read the wrong way round: True is pre-norm, False is post-norm": (
        Mistake(ORDER, lambda n, first, x, f: right_add(n, not first, x, f))
    ),
    "norm_first has no effect: it is always post-norm, LayerNorm(x + Sublayer(x))": (
        Mistake(ORDER, lambda n, first, x, f: right_add(n, False, x, f))
    ),
    "norm_first has no effect: it is always pre-norm, x + Sublayer(LayerNorm(x))": (
        Mistake(ORDER, lambda n, first, x, f: right_add(n, True, x, f))
    ),
    "the shortcut carries the norm of x: in pre-norm order add x itself": (
        Mistake(STREAM, both(None, lambda n, x, f: n(x) + f(n(x))))
    ),
    "the norm is taken of x alone, before the sum: norm(x) + Sublayer(norm(x))": (
        Mistake(STREAM, _same(lambda n, x, f: n(x) + f(n(x))))
    ),
    "the shortcut carries the norm of x, the sub-layer reads x itself": (
        Mistake(STREAM, _same(lambda n, x, f: n(x) + f(x)))
    ),
    "in pre-norm order the shortcut carries the norm of x, and the sub-layer reads x itself": (
        Mistake(STREAM, both(None, lambda n, x, f: n(x) + f(x)))
    ),
    "the sub-layer's output is normed alone: x + norm(Sublayer(x)); norm the sum": (
        Mistake(ORDER, _same(lambda n, x, f: x + n(f(x))))
    ),
    "in post-norm order the sub-layer's output is normed alone; norm the sum": (
        Mistake(ORDER, both(lambda n, x, f: x + n(f(x))))
    ),
    "in pre-norm order the sub-layer's output is normed; norm its input": (
        Mistake(ORDER, both(None, lambda n, x, f: x + n(f(x))))
    ),
    "it norms before and after the sub-layer": Mistake(ORDER, _same(_normed_twice)),
    "in post-norm order it norms before the sub-layer as well": (
        Mistake(ORDER, both(_normed_twice))
    ),
    "in pre-norm order it norms the sum as well": Mistake(ORDER, both(None, _normed_twice)),
    "the residual is added twice": Mistake(
        ADD, both(lambda n, x, f: n(2 * x + f(x)), lambda n, x, f: 2 * x + f(n(x)))
    ),
    "the sub-layer's output is subtracted": Mistake(
        ADD, both(lambda n, x, f: n(x - f(x)), lambda n, x, f: x - f(n(x)))
    ),
    "x is subtracted": Mistake(ADD, both(lambda n, x, f: n(f(x) - x), lambda n, x, f: f(n(x)) - x)),
    "x and the sub-layer's output are averaged; add them": Mistake(
        ADD, both(lambda n, x, f: n((x + f(x)) / 2), lambda n, x, f: (x + f(n(x))) / 2)
    ),
    "the sub-layer's output is halved; add it as it is": Mistake(
        ADD, both(lambda n, x, f: n(x + f(x) / 2), lambda n, x, f: x + f(n(x)) / 2)
    ),
    "x and the sub-layer's output are multiplied; add them": Mistake(
        ADD, both(lambda n, x, f: n(x * f(x)), lambda n, x, f: x * f(n(x)))
    ),
    "the norm comes twice": Mistake(
        ORDER, both(lambda n, x, f: n(n(x + f(x))), lambda n, x, f: x + f(n(n(x))))
    ),
    "the sub-layer runs twice": Mistake(
        ORDER, both(lambda n, x, f: n(x + f(f(x))), lambda n, x, f: x + f(f(n(x))))
    ),
    "in post-norm order the residual is added once more after the norm": (
        Mistake(ORDER, both(lambda n, x, f: x + n(x + f(x))))
    ),
    "the sub-layer is not called: x is added to itself": (
        Mistake(ADD, both(lambda n, x, f: n(x + x), lambda n, x, f: x + n(x)))
    ),
    "the sub-layer is not called": Mistake(ADD, both(lambda n, x, f: n(x), lambda n, x, f: x)),
}
