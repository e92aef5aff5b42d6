"""Draw the README's picture with the course's own plotting code."""

from pathlib import Path

import matplotlib.pyplot as plt

from tutorial_transformer.plotting import plot_architecture, use_house_style

if __name__ == "__main__":
    use_house_style()
    plot_architecture()
    path = Path(__file__).parent.parent / "docs" / "architecture.png"
    path.parent.mkdir(exist_ok=True)
    plt.savefig(path, metadata={"Software": None})
