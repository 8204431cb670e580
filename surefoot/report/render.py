"""From templates and data to one file that works from disk and asks the network for nothing.

Texts that a model wrote travel as JSON in script elements that are never executed and are set as text nodes; a content
security policy allows only the page's own scripts, by their hashes, and no request at all. A page that ``surefoot view``
serves may ask that server, and nobody else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.extras import require
from surefoot.report import palette, wording
from surefoot.report.figures import Figure
from surefoot.report.markup import tied
from surefoot.report.reading import Record

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, scripts: Sequence[str], *, live: bool = False, plots: bool = True, **values: Any) -> str:
    """A page of the house.

    Args:
        template: name of the template.
        scripts: names of its scripts, in their order.
        live: whether a server keeps it up to date: it then may ask where it came from.
        plots: whether it draws curves.
        values: of the template.

    Raises:
        MissingExtraError: Plotly is not installed.
    """
    import jinja2
    from markupsafe import Markup

    texts = [own(name) for name in ([*scripts, "live.js"] if live else scripts)]
    if plots:
        texts.insert(0, require("plotly.offline", "report", "report.html").get_plotlyjs())
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(wording=wording, palette=palette)
    environment.filters["tied"] = tied
    rules = [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        f"script-src {' '.join(hash_of(text) for text in texts) or chr(39) + 'none' + chr(39)}",
    ]
    return environment.get_template(template).render(
        style=Markup(own("report.css")),
        scripts=[Markup(text) for text in texts],
        policy="; ".join([*rules, "connect-src 'self'"] if live else rules),
        live=live,
        **values,
    )


def embed_json(value: Any) -> str:
    """JSON that can stand in a script element: no '<', '>' or '&' survives, nor the line ends of older JavaScript.

    Raises:
        ValueError: a number that is not finite, which JSON does not have.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def figure_data(drawn: Sequence[Figure]) -> Record:
    """Figures as the page's script takes them."""
    return {
        "dark": palette.DARK,
        "figures": {figure.key: {"data": figure.data, "layout": figure.layout} for figure in drawn if figure.data},
    }


def own(name: str) -> str:
    """A file of the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def hash_of(script: str) -> str:
    """The script as a content security policy names it (W3C CSP 3, hash source)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
