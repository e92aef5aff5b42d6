"""Figures, tested by what their axes hold: the numbers, the labels, the scale and the colours."""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from torch.testing import assert_close

from tutorial_transformer.masks import causal_mask
from tutorial_transformer.plotting import (
    BLUE,
    HIDDEN,
    VISIBLE,
    drawable,
    plot_architecture,
    plot_attention,
    plot_mask,
    plot_signed,
    use_house_style,
)
from tutorial_transformer.transformer import Transformer, TransformerConfig

ROWS, COLUMNS = ["the", "cat", "sat"], ["die", "Katze", "saß", "<eos>", "<pad>"]
MASK = causal_mask(3, 5)[0]
WEIGHTS = torch.randn(3, 5).masked_fill(~MASK, -torch.inf).softmax(dim=-1)
SIGNED = torch.tensor([[0.5, -2.5, 0.0, 1.0, 0.25]] * 3) * torch.tensor([[1.0], [-0.5], [0.1]])
HEATMAPS = [(plot_mask, MASK), (plot_attention, WEIGHTS), (plot_signed, SIGNED)]
each_heatmap = pytest.mark.parametrize(("plot", "matrix"), HEATMAPS, ids=lambda x: "")


@pytest.fixture(autouse=True)
def closed_figures():
    """Draw without a screen, and leave neither figures nor a style behind."""
    plt.switch_backend("agg")
    with plt.rc_context():
        yield
    plt.close("all")


def pixels(ax):
    """The saved picture: (height, width, 3) in 0..1."""
    file = io.BytesIO()
    ax.figure.savefig(file, format="png")
    file.seek(0)
    return plt.imread(file)[..., :3]


def cell_colour(ax, row, column):
    """The colour that the picture has near the corner of a cell, where no number stands."""
    picture = pixels(ax)
    x, y = ax.transData.transform((column - 0.42, row - 0.42))
    return picture[len(picture) - 1 - int(y), int(x)]


def numbers_in(ax):
    """The text of each cell, by (row, column)."""
    return {
        (round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts
    }


@each_heatmap
def test_a_heatmap_holds_its_matrix_its_title_and_its_labels_in_order(plot, matrix):
    kept = matrix.clone()
    ax = plot(matrix, ROWS, COLUMNS, "What we see")
    (image,) = ax.images
    assert_close(torch.tensor(np.ma.getdata(image.get_array())), matrix, check_dtype=False)
    assert torch.equal(matrix, kept)
    assert ax.get_title() + ax.get_title(loc="left") == "What we see"
    assert [label.get_text() for label in ax.get_yticklabels()] == ROWS
    assert [label.get_text() for label in ax.get_xticklabels()] == COLUMNS
    assert list(ax.get_yticks()) == [0, 1, 2] and list(ax.get_xticks()) == [0, 1, 2, 3, 4]
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-0.5, 4.5, 2.5, -0.5)  # the first row is on top
    assert "key" in ax.get_xlabel() and "query" in ax.get_ylabel()


@each_heatmap
def test_a_heatmap_draws_where_it_is_asked_to_and_returns_it(plot, matrix):
    _, (left, right) = plt.subplots(1, 2)
    assert plot(matrix, ROWS, COLUMNS, "", ax=right) is right
    assert right.images and not left.images and len(plt.get_fignums()) == 1
    assert plot(matrix, ROWS, COLUMNS, "").figure is not right.figure


@each_heatmap
def test_a_saved_heatmap_is_a_picture(plot, matrix):
    picture = pixels(plot(matrix, ROWS, COLUMNS, "What we see"))
    assert len(np.unique((255 * picture).astype(int).reshape(-1, 3), axis=0)) > 20
    blank = pixels(plt.subplots()[1])
    assert picture.shape != blank.shape or (picture != blank).mean() > 0.1


@each_heatmap
@pytest.mark.parametrize(
    ("rows", "columns", "counts"),
    [
        (ROWS[:2], COLUMNS, "got 2 queries and 5 keys"),
        (ROWS, COLUMNS[:4], "got 3 queries and 4 keys"),
        (COLUMNS, ROWS, "got 5 queries and 3 keys"),  # the transposed map
        ([], COLUMNS, "got 0 queries and 5 keys"),
    ],
)
def test_a_wrong_number_of_labels_is_refused(plot, matrix, rows, columns, counts):
    message = re.escape("a map of shape (3, 5) needs as many labels: ") + counts
    with pytest.raises(ValueError, match=message):
        plot(matrix, rows, columns, "")
    assert not plt.get_fignums()  # not even an empty figure is left


@each_heatmap
def test_a_map_with_a_head_axis_is_refused(plot, matrix):
    with pytest.raises(
        (ValueError, TypeError),
        match=r"map of shape \(1, 3, 5\)|parameter '(mask|attn_weights|matrix)'",
    ):
        plot(matrix[None], ROWS, COLUMNS, "")
    assert not plt.get_fignums()


def test_a_mask_has_two_colours_and_says_0_and_1():
    ax = plot_mask(MASK, ROWS, COLUMNS, "")
    assert ax.images[0].get_clim() == (0, 1)
    assert numbers_in(ax) == {(i, j): str(int(MASK[i, j])) for i in range(3) for j in range(5)}
    for (row, column), colour in {(0, 0): VISIBLE, (0, 2): VISIBLE, (0, 3): HIDDEN}.items():
        assert cell_colour(ax, row, column) == pytest.approx(to_rgb(colour), abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention_is_drawn_on_the_scale_0_to_1_whatever_its_values(dtype):
    weights = (0.1 * WEIGHTS).to(dtype).requires_grad_()
    ax = plot_attention(weights, ROWS, COLUMNS, "")
    assert ax.images[0].get_clim() == (0, 1) and ax.images[0].get_cmap().name == "Blues"


def test_a_hidden_key_is_grey_and_a_small_weight_pale_blue():
    weights = torch.tensor([[0.0, 0.001, 0.999]])
    ax = plot_attention(weights, ["cat"], ["a", "b", "c"], "")
    hidden, small, large = (cell_colour(ax, 0, column) for column in range(3))
    assert hidden == pytest.approx(to_rgb(HIDDEN), abs=0.01)
    assert small[2] > small[0] and small.min() > 0.9 and large.max() < 0.5
    assert numbers_in(ax) == {(0, 1): "0.00", (0, 2): "1.00"}  # nothing is written on grey


def test_signed_numbers_stand_on_a_scale_symmetric_about_zero():
    ax = plot_signed(SIGNED, ROWS, COLUMNS, "")
    assert ax.images[0].get_clim() == (-2.5, 2.5)
    assert numbers_in(ax)[0, 1] == "-2.5" and (0, 2) not in numbers_in(ax)
    minus, zero, plus = (cell_colour(ax, row, column) for row, column in ((0, 1), (0, 2), (1, 1)))
    assert zero.min() > 0.9 and minus[0] > minus[2] and plus[2] > plus[0]  # orange, white, purple
    assert plot_signed(SIGNED, ROWS, COLUMNS, "", limit=4.0).images[0].get_clim() == (-4, 4)
    low, high = plot_signed(torch.zeros(3, 5), ROWS, COLUMNS, "").images[0].get_clim()
    assert low == -high < 0


@pytest.mark.parametrize(("side", "written"), [(10, 100), (11, 0)])
def test_numbers_are_written_up_to_ten_by_ten(side, written):
    labels = [str(number) for number in range(side)]
    for plot in (plot_attention, plot_signed):
        assert len(plot(torch.full((side, side), 0.5), labels, labels, "").texts) == written


def test_the_house_style_is_set_and_titles_stand_left():
    use_house_style()
    assert plt.rcParams["axes.prop_cycle"].by_key()["color"][0] == to_rgb(BLUE)
    assert plt.rcParams["figure.dpi"] == 100 and not plt.rcParams["axes.spines.top"]
    ax = plot_mask(MASK, ROWS, COLUMNS, "Left")
    assert ax.get_title(loc="left") == "Left" and ax.get_title(loc="center") == ""


def test_the_architecture_names_what_the_model_has():
    ax = plot_architecture(num_layers=7)
    texts = [text.get_text() for text in ax.texts]
    model = Transformer(TransformerConfig.tiny(9, 7, d_model=8, num_heads=2, num_layers=1))
    names = {part for name, _ in model.named_modules() for part in name.split(".")}
    classes = {type(module).__name__ for module in model.modules()}
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]+", text)}
    assert {"self_attn", "cross_attn", "feed_forward", "output_proj", "encoder", "decoder"} <= words
    assert {"TokenEmbedding", "PositionalEncoding", "AddNorm"} <= words & classes
    ours = {word for word in words if "_" in word or word[0].isupper()} - {"tgt_in"}
    assert ours <= names | classes  # no box has a name that the model lacks
    for stack, add_norms in (("encoder", 2), ("decoder", 3)):
        assert f"{stack}: 7 ×" in texts
        layer = getattr(model, stack).layers[0]
        assert sum("add_norm" in name for name, _ in layer.named_children()) == add_norms
    assert texts.count("AddNorm") == 5 and texts.count("feed_forward") == 2
    assert {"src ids", "tgt_in ids", "memory", "logits"} <= set(texts)
    assert len(np.unique((255 * pixels(ax)).astype(int).reshape(-1, 3), axis=0)) > 20
    assert ax.get_title() + ax.get_title(loc="left")


def test_what_the_font_cannot_draw_is_spelled_by_its_code_point():
    tokens = ["year", " ", "saß", "<eos>", "年", "5月"]
    assert drawable(tokens) == ["year", "␣", "saß", "<eos>", "U+5E74", "5U+6708"]
    fig, ax = plt.subplots()
    ax.set_title(" ".join(drawable(tokens)))
    fig.canvas.draw()  # warnings are errors: a missing glyph would be one
