"""Wrong learning rates, each under the sentence that names the mistake."""

WRONG_RATES = {
    "d_model^-0.5 is missing": lambda s, d, w: min(s**-0.5, s * w**-1.5),
    "it is d_model^0.5, wanted d_model^-0.5": lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5),
    "it is divided by d_model, wanted by its root": lambda s, d, w: min(s**-0.5, s * w**-1.5) / d,
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
    "the exponent of warmup_steps is -1, wanted -1.5": (
        lambda s, d, w: d**-0.5 * min(s**-0.5, s / w)
    ),
    "the exponent of step is 0.5, wanted -0.5": lambda s, d, w: d**-0.5 * min(s**0.5, s * w**-1.5),
    "after warm-up it falls as 1/step, wanted step^-0.5": (
        lambda s, d, w: d**-0.5 * (s * w**-1.5 if s < w else w**0.5 / s)
    ),
    "in the warm-up the rate must rise in a line, with step; it rises with another power": (
        lambda s, d, w: d**-0.5 * min(s**-0.5, s**2 * w**-2.5)
    ),
    "after warm-up it falls in a line, wanted step^-0.5": (
        lambda s, d, w: d**-0.5 * (s * w**-1.5 if s < w else w**-0.5 * max(0.0, 2 - s / w))
    ),
    "it is a factor whose peak is 1, not a rate: the peak is (d_model · warmup_steps)^-0.5": (
        lambda s, d, w: min((w / s) ** 0.5, s / w)
    ),
    "it is a factor whose peak is 1, and it stays there: after warm-up the rate must fall": (
        lambda s, d, w: min(1.0, s / w)
    ),
    "the peak is d_model^-0.5, wanted (d_model · warmup_steps)^-0.5": (
        lambda s, d, w: d**-0.5 * min((w / s) ** 0.5, s / w)
    ),
    "warmup_steps has no effect: 4000 is taken instead": (
        lambda s, d, w: d**-0.5 * min(s**-0.5, s * 4000**-1.5)
    ),
    "d_model has no effect: 512 is taken instead": (
        lambda s, d, w: 512**-0.5 * min(s**-0.5, s * w**-1.5)
    ),
}
