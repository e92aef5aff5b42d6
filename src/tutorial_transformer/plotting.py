"""Figures in one hand: the same colours, the same axes, the same size in every notebook.

Every function takes plain tensors, draws on `ax` (or a new one) and returns it.
Nothing in the package imports this file, so matplotlib stays optional for users of the model.
"""

import itertools
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

# Okabe-Ito: eight colours that stay apart for colour-blind readers.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"

HIDDEN, VISIBLE = "#E8E8E8", BLUE  # masks: grey 0, blue 1
WEIGHTS = "Blues"  # quantities in [0, 1]: always vmin=0, vmax=1
SIGNED = "PuOr"  # quantities around 0: always vmin=-v, vmax=+v


def use_house_style() -> None:
    """Set the style; call once, in the first code cell of a notebook."""
    sns.set_theme(style="ticks", palette=[BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK])
    plt.rcParams.update({
        "figure.figsize": (6, 3.5), "figure.dpi": 100, "figure.constrained_layout.use": True,
        "font.size": 11, "axes.titlesize": 12, "axes.labelsize": 11, "legend.fontsize": 10,
        "xtick.labelsize": 10, "ytick.labelsize": 10, "image.interpolation": "nearest",
        "axes.titlelocation": "left", "axes.titleweight": "bold", "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "font.family": ["DejaVu Sans"],
    })  # fmt: skip


def drawable(tokens: list[str]) -> list[str]:
    """Spell what the font cannot draw by its code points, and show spaces; "年" is "U+5E74"."""
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    known = font.get_charmap()
    return [
        "".join(char if ord(char) in known else f"U+{ord(char):04X}" for char in token)
        for token in (token.replace(" ", "␣") for token in tokens)
    ]


def _token_axes(ax: Axes | None, queries: list[str], keys: list[str], title: str) -> Axes:
    """An axes whose rows are queries and whose columns are keys, both named by their tokens."""
    size = (0.5 * len(keys) + 1.6, 0.5 * len(queries) + 1.4)
    ax = ax or plt.subplots(figsize=size)[1]
    ax.set_xticks(range(len(keys)), keys, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(queries)), queries)
    ax.set(xlabel="key (looked at)", ylabel="query (looking)", title=title)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _check_labels(matrix: Tensor, queries: list[str], keys: list[str]) -> None:
    if matrix.ndim != 2 or matrix.shape != (len(queries), len(keys)):
        raise ValueError(
            f"a map of shape {tuple(matrix.shape)} needs as many labels: "
            f"got {len(queries)} queries and {len(keys)} keys"
        )


def plot_mask(
    mask: Bool[Tensor, "rows columns"],
    queries: list[str],
    keys: list[str],
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw a mask with its 0s and 1s written in, so that colour is never the only signal."""
    _check_labels(mask, queries, keys)
    ax = _token_axes(ax, queries, keys, title)
    cells = mask.cpu().numpy()
    ax.imshow(cells, cmap=ListedColormap([HIDDEN, VISIBLE]), vmin=0, vmax=1)
    for (i, j), visible in np.ndenumerate(cells):
        color = "white" if visible else "#555555"
        ax.text(j, i, int(visible), ha="center", va="center", color=color)
    return ax


def plot_attention(
    attn_weights: Float[Tensor, "rows columns"],
    queries: list[str],
    keys: list[str],
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw one attention map on the fixed scale 0..1, so that two maps can be compared.

    A weight of exactly 0 (a hidden key) is grey; a weight that is merely small is pale blue.
    """
    _check_labels(attn_weights, queries, keys)
    ax = _token_axes(ax, queries, keys, title)
    weights = attn_weights.detach().cpu().float().numpy()
    ax.set_facecolor(HIDDEN)
    ax.imshow(np.ma.masked_equal(weights, 0), cmap=WEIGHTS, vmin=0, vmax=1)
    _write_numbers(ax, weights, "{:.2f}", np.abs(weights) > 0.6)
    return ax


def plot_signed(
    matrix: Float[Tensor, "rows columns"],
    rows: list[str],
    columns: list[str],
    title: str,
    ax: Axes | None = None,
    limit: Real | None = None,
) -> Axes:
    """Draw quantities of either sign (scores, vectors, gradients) on a scale symmetric about 0.

    limit is the largest magnitude on the scale; give it to compare two maps.
    """
    _check_labels(matrix, rows, columns)
    ax = _token_axes(ax, rows, columns, title)
    numbers = matrix.detach().cpu().float().numpy()
    limit = limit or max(float(np.abs(numbers).max()), 1e-12)
    ax.imshow(numbers, cmap=SIGNED, vmin=-limit, vmax=limit)
    _write_numbers(ax, numbers, "{:.1f}", np.abs(numbers) > 0.6 * limit)
    return ax


def _write_numbers(ax: Axes, numbers: np.ndarray, form: str, dark: np.ndarray) -> None:
    """Write the numbers into the cells of a map of up to 10 × 10; exact zeros stay empty."""
    if max(numbers.shape) > 10:
        return
    for (i, j), number in np.ndenumerate(numbers):
        if number != 0:
            color = "white" if dark[i, j] else "#333333"
            ax.text(j, i, form.format(number), ha="center", va="center", fontsize=8, color=color)


def plot_architecture(num_layers: int = 6, ax: Axes | None = None) -> Axes:
    """Draw the whole model as boxes and arrows, each named as its class or attribute."""
    ax = ax or plt.subplots(figsize=(7.5, 6.8))[1]
    ax.set(xlim=(0, 10), ylim=(0, 12.6), title="The encoder reads, the decoder writes")
    ax.axis("off")
    left, right = 2.4, 7.2
    heights = [0.5, 1.9, 3.5, 4.5, 5.8, 6.8, 8.1, 9.1, 10.7, 11.9]
    embed = "TokenEmbedding\n+ PositionalEncoding"
    encoder = ["src ids", embed, "self_attn", "AddNorm", "feed_forward", "AddNorm"]
    decoder = ["tgt_in ids", embed, "self_attn (causal)", "AddNorm", "cross_attn", "AddNorm",
               "feed_forward", "AddNorm", "output_proj", "logits"]  # fmt: skip
    for x, names in ((left, encoder), (right, decoder)):
        for name, y in zip(names, heights, strict=False):
            _box(ax, x, y, name)
        for below, above in itertools.pairwise(heights[: len(names)]):
            _arrow(ax, (x, below + 0.36), (x, above - 0.36), BLACK)
    for x, top, name in ((left, 7.5, "encoder"), (right, 9.8, "decoder")):
        box = FancyBboxPatch(
            (x - 1.7, 2.95),
            3.4,
            top - 2.95,
            fill=False,
            ls="--",
            ec="#777777",
            boxstyle="square,pad=0",
        )
        ax.add_patch(box)
        ax.text(x - 1.7, top + 0.12, f"{name}: {num_layers} ×", color="#555555", fontsize=10)
    _arrow(ax, (left + 1.48, 6.8), (right - 1.48, 5.8), GREEN)
    ax.text(4.8, 6.75, "memory", color=GREEN, fontsize=10, ha="center")
    return ax


BOX_COLORS = {"self": ORANGE, "cros": GREEN, "feed": SKY, "AddN": "#DDDDDD", "Toke": PURPLE}


def _box(ax: Axes, x: float, y: float, name: str) -> None:
    """One box of the architecture with its name."""
    style, color = "round,pad=0.03,rounding_size=0.1", BOX_COLORS.get(name[:4], "white")
    box = FancyBboxPatch((x - 1.45, y - 0.33), 2.9, 0.66, boxstyle=style, fc=color, ec="#777777")
    ax.add_patch(box)
    ax.text(x, y, name, ha="center", va="center", fontsize=9)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    """One arrow from box to box."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": color, "lw": 1.5})
