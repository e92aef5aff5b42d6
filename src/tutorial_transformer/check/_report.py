"""What a grader found: which property holds, the smallest failing input, and the likely mistake."""

import html
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Property:
    """One thing that must hold; example, got and wanted stand there where it does not."""

    name: str
    passed: bool
    example: str = ""
    got: str = ""
    wanted: str = ""


@dataclass
class Report:
    """The result of one grader: print it, look at it in a notebook, or ask report.passed."""

    component: str
    expects: str
    reread: str
    properties: list[Property] = field(default_factory=list)
    diagnosis: str = ""
    attempted: bool = True

    @property
    def passed(self) -> bool:
        """Whether the component was attempted and every property holds."""
        return self.attempted and all(item.passed for item in self.properties)

    @property
    def status(self) -> str:
        """One of "passed", "failed" and "not attempted"."""
        return "not attempted" if not self.attempted else "passed" if self.passed else "failed"

    @property
    def line(self) -> str:
        """The report in one line, which begins with [x], [!] or [ ]."""
        if not self.attempted:
            return f"[ ] {self.component}: not attempted yet"
        if self.passed:
            count = len(self.properties)
            hold = "1 property holds" if count == 1 else f"{count} properties hold"
            return f"[x] {self.component}: passed, {hold}"
        return f"[!] {self.component}: {self.diagnosis} (reread {self.reread})"

    def __str__(self) -> str:
        lines = [self.line]
        if not self.attempted:
            lines.append(f"    wanted: {self.expects}")
        for item in self.properties:
            lines.append(f"    {'ok  ' if item.passed else 'FAIL'} {item.name}")
            lines += [f"         {name}: {text}" for name, text in self._details(item)]
        return "\n".join(lines)

    __repr__ = __str__

    def _details(self, item: Property) -> list[tuple[str, str]]:
        """Input, got and wanted of the smallest failing property; the others keep their names."""
        first = next((one for one in self.properties if not one.passed), None)
        parts = {"input": item.example, "got": item.got, "wanted": item.wanted}
        return [(name, text) for name, text in parts.items() if text] if item is first else []

    def _ipython_display_(self) -> None:
        """Print the line, which other programs can read, and show the table under it."""
        from IPython.display import HTML, display

        print(f"{self.line}\n", end="")  # in one piece: a kernel may send two as two outputs
        if self.attempted:
            display(HTML(self._repr_html_()))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'ok' if item.passed else '<b>fails</b>'}</td>"
            f"<td style='text-align:left'>{html.escape(item.name)}"
            + "".join(
                f"<br><code>{name}: {html.escape(text)}</code>"
                for name, text in self._details(item)
            )
            + "</td></tr>"
            for item in self.properties
        )
        wanted = "" if self.attempted else f"<br>wanted: <code>{html.escape(self.expects)}</code>"
        return f"<b>{html.escape(self.line)}</b>{wanted}<table>{rows}</table>"


def kind_of(tensor: Tensor) -> str:
    """The dtype by its own name."""
    return str(tensor.dtype).removeprefix("torch.")


def short(value: object) -> str:
    """Write a value in a line or two: small tensors with their numbers, large ones by shape."""
    if isinstance(value, Tensor):
        kind = kind_of(value)
        if value.numel() > 36:
            return f"{kind} tensor of shape {tuple(value.shape)}"
        numbers = value.detach().cpu()
        if value.is_floating_point():
            numbers = numbers.double().mul(1000).round() / 1000
        listed = numbers.int().tolist() if value.dtype == torch.bool else numbers.tolist()
        return f"{listed} ({kind}, shape {tuple(value.shape)})"
    if isinstance(value, tuple | list):
        return ", ".join(short(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6g}"
    try:
        text = repr(value)
    except Exception:  # of an object of the learner's own
        text = type(value).__name__
    return text if len(text) <= 200 else text[:197] + "..."
