"""
Draw the pictures of the documentation: `python -m scripts.pictures` makes docs/pictures/NAME.svg from NAME.txt.

A line of a description is a shape, its numbers and, behind a colon, its texts, divided by " | ":

    title: A short sentence; what the picture shows, for those who do not see it
    size WIDTH HEIGHT
    frame X Y WIDTH HEIGHT: LABEL           a partition, a table, a program: what holds other shapes
    row X Y WIDTH: KEY | VALUE              a row; `entry` is a derived one, `gone` one that is no longer there
    box X Y WIDTH HEIGHT: LINE | LINE       a program or a store
    arrow X Y X Y: LABEL                    `later` is dashed, `refused` is red; more points bend it
    text X Y: LINE | LINE                   `code` likewise, in the letters of code; `small` is paler

The colours follow those of the page: an image has the colour scheme of the element that shows it.
"""

from html import escape
from pathlib import Path

from scripts.docs_pages import ROOT, PageError

FOLDER = ROOT / "docs" / "pictures"

ROW, LINE, LABEL = 28, 18, 12

STYLE = """
svg{--paper:#fff;--ink:#1f2328;--pale:#59636e;--line:#818b98;--ground:#f6f8fa;--row:#fff;--box:#e6eaff;--edge:#4051b5;
--entry:#fff4d4;--rim:#b07900;--red:#c3222c}
@media (prefers-color-scheme:dark){svg{--paper:#0d0e12;--ink:#e6edf3;--pale:#a3adb8;--line:#6e7681;
--ground:#14181f;--row:#0b0e13;--box:#1c2344;--edge:#8c9eff;--entry:#2c2410;--rim:#d29922;--red:#ff7b72}}
text{fill:var(--ink);font:14px system-ui,sans-serif}
.code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.code{white-space:pre}
.label{paint-order:stroke;stroke:var(--paper);stroke-width:5px}
.small{fill:var(--pale);font-size:13px}
rect{stroke:var(--line);fill:var(--row)}
.frame{fill:var(--ground);stroke-dasharray:5 4}
.box{fill:var(--box);stroke:var(--edge)}
.entry{fill:var(--entry);stroke:var(--rim)}
.gone{fill:none;stroke:var(--red);stroke-dasharray:4 3}
.arrow,.later,.refused{stroke:var(--edge);stroke-width:1.6;fill:none}
.later{stroke-dasharray:6 4}
.refused{stroke:var(--red)}
.tip{fill:context-stroke}
"""

TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0 10 5 0 10z"/></marker>'
)


def draw(description: str) -> str:
    """
    Return the SVG of a description.

    Raises:
        PageError: A line is no shape.
    """
    # Frames lie below what they hold.
    frames: list[str] = []
    shapes: list[str] = []
    title, width, height = "", 0, 0
    for line in description.splitlines():
        head, _, tail = line.partition(":")
        kind, *rest = head.split() or [""]
        numbers, texts = [int(each) for each in rest], [each.strip() for each in tail.split(" | ") if each.strip()]
        match kind, numbers:
            case "", []:
                continue
            case "title", []:
                title = tail.strip()
            case "size", [width, height]:
                pass
            case "frame", [x, y, w, h]:
                frames += [_rect(kind, x, y, w, h), _text("small", x + w - 10, y + LINE + 1, texts, "end")]
            case "row" | "entry" | "gone", [x, y, w]:
                shapes += [_rect(kind, x, y, w, ROW), _text("code", x + 9, y + 19, texts[:1])]
                shapes.append(_text("code small", x + w - 9, y + 19, texts[1:], "end"))
            case "box", [x, y, w, h]:
                top = y + h // 2 + 5 - (len(texts) - 1) * LINE // 2
                shapes += [_rect(kind, x, y, w, h), _text("", x + w // 2, top, texts, "middle")]
            case "arrow" | "later" | "refused", [x, y, to_x, to_y, *_] if len(numbers) % 2 == 0:
                points = " ".join(map(str, numbers))
                shapes.append(f'<path class="{kind}" marker-end="url(#tip)" d="M{points}"/>')
                anchor, shift = ("middle", -7) if y == to_y else ("start", 5)
                middle = (x + to_x) // 2 + (0 if y == to_y else LABEL)
                shapes.append(_text("small label", middle, (y + to_y) // 2 + shift, texts, anchor))
            case "text" | "code" | "small", [x, y]:
                shapes.append(_text("" if kind == "text" else kind, x, y, texts))
            case _:
                raise PageError(f"{line!r} is no shape of a picture; see scripts/pictures.py")
    inside = "\n".join(shape for shape in [*frames, *shapes] if shape)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title">\n<title id="title">{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n<defs>{TIP}</defs>\n{inside}\n</svg>\n"
    )


def _rect(kind: str, x: int, y: int, w: int, h: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="6"/>'


def _text(kind: str, x: int, y: int, lines: list[str], anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return "\n".join(
        f'<text{style} x="{x}" y="{y + number * LINE}" text-anchor="{anchor}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )


def main() -> None:
    """Draw all pictures."""
    for source in sorted(FOLDER.glob("*.txt")):
        Path(source.with_suffix(".svg")).write_text(draw(source.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
