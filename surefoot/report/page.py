"""``report.html``: one file that shows a run, works from disk, and asks the network for nothing.

The page is made of what the run folder holds and of nothing else. Texts that a model wrote travel as JSON in a script
element that is never executed and are set as text nodes; a content security policy allows only the page's own scripts,
by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from surefoot.extras import require
from surefoot.files import write_atomic
from surefoot.report import palette, wording
from surefoot.report.curves import figures, other_metrics
from surefoot.report.figures import Figure
from surefoot.report.markup import render_markdown
from surefoot.report.reading import Record, RunFiles, number, read_run
from surefoot.report.samples import BUDGET, readable, sample_table
from surefoot.report.summary import summarise

TEMPLATES = Path(__file__).parent / "templates"


def write_report(run: Path, budget: int = BUDGET) -> Path:
    """Write ``report.html`` into a run folder, finished or not.

    Args:
        run: the run folder.
        budget: bytes of sample files to hold; a run with more is thinned evenly over its steps.

    Returns:
        The path of the page.

    Raises:
        RunFolderError: no run folder there, or it cannot be written.
        MissingExtraError: Plotly is not installed.
    """
    plotly = require("plotly.offline", "report", "report.html")
    run = Path(run)
    files = read_run(run)
    gaps = list(files.gaps)
    samples = sample_table(run, gaps, budget)
    page = render_page(files, samples, gaps, plotly.get_plotlyjs())
    path = run / "report.html"
    write_atomic(path, page)
    return path


def render_page(files: RunFiles, samples: Record, gaps: list[str], plotly_js: str) -> str:
    """The page as text, from what was read."""
    import jinja2
    from markupsafe import Markup

    drawn, others = figures(files), other_metrics(files)
    scripts = [plotly_js, _own("curves.js"), _own("reader.js")]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(wording=wording, palette=palette)
    return environment.get_template("report.html").render(
        files=files,
        summary=summarise(files),
        planned=number(files.setting("train.steps") or files.setting("steps")),
        facts=facts(files),
        warnings=grouped_warnings(files.warnings),
        evaluations=evaluation_rows(files.evaluations),
        gaps=gaps,
        figures=[figure for figure in drawn if figure.data],
        not_recorded=[figure.title for figure in drawn if not figure.data and figure.key != "likelihood"],
        other_metrics=others,
        card=Markup(render_markdown(files.card)),
        environment=[(name, in_one_line(value)) for name, value in flat(files.environment)],
        style=Markup(_own("report.css")),
        scripts=[Markup(script) for script in scripts],
        policy="; ".join(
            [
                "default-src 'none'",
                "style-src 'unsafe-inline'",
                "img-src data:",
                f"script-src {' '.join(_hash(script) for script in scripts)}",
            ]
        ),
        figure_json=Markup(embed_json(_figure_data(drawn + others))),
        sample_json=Markup(embed_json(samples)),
        sample_count=len(samples["rows"]),
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


def facts(files: RunFiles) -> list[tuple[str, str]]:
    """What the run was, in a few words: (name, value)."""
    batch = [number(files.setting(f"train.{name}")) for name in ("prompts_per_step", "group_size")]
    sizes = [wording.count(size) for size in batch if size is not None]
    found = [
        ("Algorithm", files.setting("algorithm.preset")),
        ("Model", files.setting("model.path")),
        ("Task", files.setting("task.name")),
        ("Batch", f"{sizes[0]} prompts × {sizes[1]} samples" if len(sizes) == 2 else None),
        ("Seed", files.setting("seed")),
    ]
    return [(name, str(value)) for name, value in found if value is not None]


def grouped_warnings(records: Iterable[Record]) -> list[Record]:
    """Warnings by name: the last text, how often, and the first and last step."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(readable(record.get("name")) or "warning", []).append(record)
    counted = Counter({name: len(items) for name, items in groups.items()})
    shown = []
    for name, times in counted.most_common():
        steps = [int(step) for item in groups[name] if (step := number(item.get("step"))) is not None]
        text = readable(groups[name][-1].get("text"))
        shown.append({"name": name, "text": text, "times": times, "first": min(steps, default=None)})
        shown[-1]["last"] = max(steps, default=None)
    return shown


def evaluation_rows(records: Iterable[Record]) -> list[tuple[str, list[str]]]:
    """Every evaluation as text: step, and accuracy, interval, mean length, truncated and unanswered shares."""
    rows = []
    for record in records:
        value, low, high, length, truncated, silent = (
            number(record.get(name)) for name in ("accuracy", "low", "high", "length", "truncated", "no_answer")
        )
        shares = [None if share is None else wording.percent(share) for share in (value, truncated, silent)]
        bounds = None if low is None or high is None else wording.interval(low, high)
        tokens = None if length is None else wording.count(length)
        cells = [shares[0], bounds, tokens, shares[1], shares[2]]
        rows.append((f"{record['step']:,}", [cell or "—" for cell in cells]))
    return rows


def flat(values: Record, prefix: str = "") -> list[tuple[str, Any]]:
    """A nested mapping as dotted names and values."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


def in_one_line(value: Any) -> str:
    """A value of environment.json as text; a list of words as the command line that it is."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return readable(value)


def _figure_data(drawn: list[Figure]) -> Record:
    return {
        "dark": palette.DARK,
        "figures": {figure.key: {"data": figure.data, "layout": figure.layout} for figure in drawn if figure.data},
    }


def _own(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The script as a content security policy names it (W3C CSP 3, hash source)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
