"""Wrong learning rates, each under the sentence that names the mistake."""

import math
from collections.abc import Callable

from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call

WRONG_RATES = {
    "d_model^-0.5 is missing": lambda s, d, w: min(s**-0.5, s * w**-1.5),
    "it is d_model^0.5, wanted d_model^-0.5": lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5),
    "the first step has rate 0, so its update is lost: steps count from 1, not from 0": (
        lambda s, d, w: d**-0.5 * min((s - 1) ** -0.5 if s > 1 else 1.0, (s - 1) * w**-1.5)
    ),
    "it counts from 0 and adds 1, but step counts from 1 already: all rates come one step early": (
        lambda s, d, w: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * w**-1.5)
    ),
    "it only rises: after warm-up the rate must fall as step^-0.5": (
        lambda s, d, w: d**-0.5 * s * w**-1.5
    ),
    "it only falls: the warm-up, step · warmup_steps^-1.5, is missing": (
        lambda s, d, w: d**-0.5 * s**-0.5
    ),
    "it stays constant after warm-up; it must fall as step^-0.5": (
        lambda s, d, w: d**-0.5 * min(w**-0.5, s * w**-1.5)
    ),
    "max was taken where the smaller of the two terms is wanted, min": (
        lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5)
    ),
    "the exponent of warmup_steps is -0.5, wanted -1.5": (
        lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5)
    ),
    "it is a factor whose peak is 1, not a rate: the peak is (d_model · warmup_steps)^-0.5": (
        lambda s, d, w: min((w / s) ** 0.5, s / w)
    ),
    "it is rounded, so that small rates are lost": (
        lambda s, d, w: round(d**-0.5 * min(s**-0.5, s * w**-1.5), 5)
    ),
    "the two terms are added; wanted the smaller one, min": (
        lambda s, d, w: d**-0.5 * (s**-0.5 + s * w**-1.5)
    ),
}


def powers(rate: Callable) -> str:
    """Say how a rate that is none of these depends on its three arguments; "" if it cannot be."""
    try:
        shares = {
            "in the warm-up it changes as step": (_power(rate, (2, 4, 36), 0), 1),
            "after the warm-up it falls as step": (_power(rate, (36, 4, 9), 0), -0.5),
            "it changes as d_model": (_power(rate, (5, 4, 9), 1), -0.5),
            "in the warm-up it changes as warmup_steps": (_power(rate, (5, 4, 9), 2), -1.5),
        }
        times = _at(rate, (1, 4, 9)) / (4**-0.5 * 9**-1.5)
    except (UnusableError, NotAttemptedError, ValueError, TypeError, ArithmeticError):
        return ""
    wrong = [
        f"{says}^{got:.3g}, wanted ^{wanted:g}"
        for says, (got, wanted) in shares.items()
        if abs(got - wanted) > 0.02
    ]
    level = f"all rates are {times:.3g} times the right ones"
    return "; ".join(wrong) or ("" if abs(times - 1) < 0.01 else level)


def _at(rate: Callable, point: tuple) -> float:
    return float(call(rate, *point))


def _power(rate: Callable, point: tuple, place: int) -> float:
    """The power of one argument, from its value to four times as much."""
    far = tuple(4 * one if at == place else one for at, one in enumerate(point))
    return math.log(_at(rate, far) / _at(rate, point), 4)
