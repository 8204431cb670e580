"""Texts for a page: Markdown that a run wrote as HTML that is safe, and sentences that break where they may."""

from __future__ import annotations

import html
import re

from markdown_it import MarkdownIt

_MATH = re.compile(r"^\$\$[ \t]*\n(.*?)\n\$\$[ \t]*$", re.MULTILINE | re.DOTALL)


_TIED = re.compile(r"(?<=[0-9]) (?=%|(?:points?|seeds?|s|min|h)\b)|(?<=\bp) (?=[=<>])|(?<=[=<>]) (?=[0-9])")


def tied(text: str) -> str:
    """A sentence in which a number is not torn from its unit, nor ``p = 1`` into three: no-break spaces.

    >>> tied("At 95 % (p = 1, 3 seeds).").replace("\u00a0", "~")
    'At 95~% (p~=~1, 3~seeds).'
    """
    return _TIED.sub("\u00a0", text)


def render_markdown(text: str, heading: int = 3) -> str:
    """CommonMark with tables as HTML.

    HTML in the source is shown, not obeyed; images become links, so that nothing is fetched. A display equation (``$$``
    on lines of its own) becomes its source behind a disclosure: a page without a network has no typesetter.

    Args:
        text: markdown.
        heading: the level that a first-level heading gets; deeper ones follow.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parts = _MATH.split(text)
    rendered = []
    for index, part in enumerate(parts):
        if index % 2:
            rendered.append(
                f"<details><summary>The same in LaTeX</summary><pre><code>{html.escape(part)}</code></pre></details>\n"
            )
            continue
        tokens = parser.parse(part)
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(int(token.tag[1:]) + heading - 1, 6)}"
        rendered.append(parser.renderer.render(tokens, parser.options, {}))
    return "".join(rendered)
