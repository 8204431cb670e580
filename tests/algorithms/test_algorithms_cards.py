"""Cards: made from the parts alone, with every number in them, in valid LaTeX, and without words that others wrote."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from markdown_it import MarkdownIt
from matplotlib.mathtext import MathTextParser

from surefoot.algorithms import card, correction, interruption, notation
from surefoot.algorithms.algorithm import SLOTS, Algorithm
from surefoot.algorithms.card import Objective
from surefoot.algorithms.config import AlgorithmConfig
from surefoot.algorithms.part import REGISTRY, Part
from surefoot.algorithms.preference_presets import PREFERENCES
from surefoot.algorithms.presets import PRESETS, grpo, reinforce
from surefoot.algorithms.symbols import SYMBOLS, legend
from surefoot.errors import AlgorithmError
from tests.algorithms.harness import Rows
from tests.algorithms.test_algorithms_numbers import CHANGES

EVERY: list[Objective] = [*PRESETS.values(), *PREFERENCES.values()]
every_objective = pytest.mark.parametrize("objective", EVERY, ids=lambda objective: objective.name)

# Tried one after another until the schema of a number takes one that it did not have.
OTHERS = (False, True, 0.5, 0.25, 3.5, -0.5, 0, 1, 2, 7, {"a": 0.5}, {"a": "b"}, "something else")

TAGS = {"h1", "p", "strong", "em", "pre", "code", "table", "thead", "tbody", "tr", "th", "td"}

# Commands that KaTeX and MathJax both know.
COMMANDS = set(
    re.findall(
        r"\\\S+",
        r"""
    \bar \begin \Big \big \binom \cdot \cup \delta \ell \end \exp \frac \gt \hat \in \infty \lambda \lceil \rceil \le
    \leftarrow \log \lt \mathrm \max \min \mp \mu \ne \ge \omega \operatorname \overline \pi \pm \pounds \prod \propto
    \qquad \quad \rho \sigma \succ \sum \tau \tbinom \text \textasciicircum \textasciitilde \textbackslash \textbf
    \texttt \tfrac \theta \wedge \beta \gamma \epsilon \alpha \|
    """,
    )
)
SIGNS = {rf"\{sign}" for sign in ",;\\{}%&#$_"}


def numbers(parts: dict[str, Part]) -> list[tuple[str, str]]:
    return [(slot, name) for slot, part in parts.items() for name in part.numbers]


def varied(part: Part, name: str) -> Part:
    """The part with another value of one number."""
    annotation = part.kind.schema.model_fields[name].annotation
    for value in get_args(annotation) if get_origin(annotation) is Literal else OTHERS:
        try:
            other = part.but(**{name: value})
        except AlgorithmError:
            continue
        if other != part:
            return other
    raise AssertionError(f"no other value for {part!r}.{name}")


def with_part(objective: Objective, slot: str, part: Part) -> Objective:
    """Without the check for contradictions, which would hide numbers that only go together with others."""
    changed = copy.copy(objective)
    object.__setattr__(changed, "loss" if slot == "preference" else slot, part)
    return changed


@every_objective
def test_every_number_of_every_part_is_on_the_card(objective: Objective) -> None:
    before = card.card(objective)
    for slot, name in numbers(objective.parts):
        part = varied(objective.parts[slot], name)
        after = card.card(with_part(objective, slot, part))
        assert after != before and repr(part) in after.replace(r"\|", "|"), f"{slot}.{name}"


@pytest.mark.parametrize("row", sorted(CHANGES), ids=".".join)
def test_a_number_that_changes_the_result_changes_the_equation(row: tuple[str, str, str]) -> None:
    slot, kind, number = row
    value, base = CHANGES[row]
    before = REGISTRY[slot][kind](**base)
    after = before.but(**{number: value})
    assert before.text != after.text and before.latex != after.latex


@every_objective
def test_the_equation_says_what_every_part_says(objective: Objective) -> None:
    for latex in (False, True):
        said = squeezed("\n".join(card.equation(objective, latex)))
        for slot, part in objective.parts.items():
            own = squeezed(part.latex if latex else part.text)
            if slot == "aggregation":  # the loss of a token is replaced by all that it is made of
                own = re.split(r"\\ell_{it}|l_it", own)[0]
            if not card.idle(part) and not (slot == "ratio" and part.name == "none"):
                assert own and own in said, slot


def squeezed(equation: str) -> str:
    """Without spaces and the ends of lines."""
    return re.sub(r"\\\\(\[6pt\])?(?!\S)|\\[,;]|\\q?quad|\s|&", "", equation)


def test_weights_corrections_penalties_and_critics_are_terms_of_the_loss() -> None:
    ppo, clipped = PRESETS["ppo"], grpo.but(correction="token_truncate", weights="high_entropy")
    assert "(omega_it w_it l_it + 0.04 * k3(pi || pi_ref)_it)" in card.equation(clipped)[0]
    assert r"\big(\omega_{it}w_{it}\ell_{it} + 0.04\,\mathrm{k3}" in card.equation(clipped, latex=True)[1]
    assert card.equation(ppo)[0] == "L = (1/N_tokens) sum_it (l_it + 0.1 v_it)"
    assert "+ 0.5 v_it)" in card.equation(ppo.but(value={"coef": 0.5}))[0]
    assert "+ 1e-5 v_it)" in card.equation(ppo.but(value={"coef": 1e-5}))[0]


def test_what_happens_before_the_loss_stands_under_headings() -> None:
    algorithm = PRESETS["prorl"].but(
        truncated="mask_loss",
        shaping="stop_properly",
        prompts="prioritised",
        interruption="force_answer",
        reset={"patience": 3},
    )
    lines = card.equation(algorithm)
    headings = [
        line for line in lines if line and not line.startswith(" ") and " " not in line.replace("between s", "")
    ]
    assert headings == ["batch", "rewards", "sampling", "between steps"]
    assert all(lines[lines.index(heading) - 1] == "" for heading in headings)
    at = lines.index
    assert at("batch") < at(f"  {algorithm.truncated.text}") < at(f"  {algorithm.selection.text}") < at("rewards")
    assert at("rewards") < at(f"  {algorithm.shaping.text}") < at("sampling")
    assert at("between steps") == len(lines) - 1 - len(notation.lines(algorithm.reset.text, 108))
    source = "\n".join(card.equation(algorithm, latex=True))
    assert re.findall(r"\[6pt\]\n& \\textbf\{(.*?)\} \\\\", source) == headings


@every_objective
def test_an_equation_of_another_width_says_the_same(objective: Objective) -> None:
    said = " ".join(" ".join(card.equation(objective)).split())
    for width in (60, 200):
        lines = [line for _, lines in card.statements(objective, width) for line in lines]
        assert " ".join(" ".join(lines).split()) == said
        assert width == 60 or all(len(line) <= width for line in lines)


def test_a_penalty_stands_where_it_is_taken_off() -> None:
    before = card.equation(PRESETS["rloo"])
    assert before[before.index("rewards") + 1].strip().startswith("R_it <- R_it - 0.05 k1(")
    after = card.equation(PRESETS["openrlhf_grpo"])
    assert "rewards" not in after and any(line.startswith("A_it <- A_it - ") for line in after)


def test_parts_that_do_nothing_say_nothing() -> None:
    assert card.equation(reinforce) == ["L = (1/N_rows) sum_i sum_t l_it", "l_it = -A_it log pi(y_it)", "A_i = r_i"]
    rows = [line for line in card.card(reinforce).splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| part", "| advantage", "| ratio", "| trust", "| aggregation"]


@every_objective
def test_the_text_is_plain_and_narrow(objective: Objective) -> None:
    for line in card.equation(objective):
        assert line.isascii() and len(line) <= card.WIDTH and line == line.rstrip()
        assert not re.search(r"e-0\d", line)


def check_latex(source: str) -> None:
    """Balanced braces, brackets of one size, environments and delimiters; known commands; no unescaped specials."""
    bare = re.sub(r"\\[{}]", "", source)
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0, source
    assert depth == 0, source
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", source):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name, source
    assert opened == [] and source.count(r"\left") == source.count(r"\right") + source.count(r"\leftarrow"), source
    for size in (r"\big", r"\Big"):
        sides = re.findall(re.escape(size) + r"([(\[|)\]])", source)
        assert len(re.findall(re.escape(size) + r"(?![a-zA-Z])", source)) == len(sides), (
            f"{size} without a bracket: {source}"
        )
        assert sides.count("(") == sides.count(")") and sides.count("[") == sides.count("]"), source
    commands = re.findall(r"\\(?:[a-zA-Z]+|.)", source)
    assert [one for one in commands if one not in COMMANDS | SIGNS] == [], source
    assert not re.search(r"(?<!\\)[%#$~]|[<>]|\d[eE][+-]\d|(?<![a-z\\])inf(?![a-z])", source), source
    words = "".join(re.findall(r"\\text\w*\{((?:\\.|[^{}])*)\}", source))
    assert not re.search(r"(?<!\\)[_^&]", words), source
    aligned = re.sub(r"\\begin\{cases\}.*?\\end\{cases\}", "", source)
    assert all(line.count("&") - line.count(r"\&") <= 1 for line in aligned.splitlines()), source


# What the typesetter of Matplotlib calls otherwise or does not have, so that it can read the rest.
DIALECT = {
    r"\\tfrac(\d)(\w)": r"\\frac{\1}{\2}",
    r"\\tfrac": r"\\frac",
    r"\\tbinom": r"\\binom",
    r"\\(operatorname|texttt|textbf)\b": r"\\mathrm",
    r"\\[bB]ig\b|\\textbackslash\{\}|\\text\{\}": "",
    r"\\qquad\b": r"\\quad",
    r"\\(lt|gt|le|ge|ne)(?![a-z])(\{\})?": "=",
    r"\\[lr]ceil\b": "|",
    r"\\(begin|end)\{(cases|aligned)\}": "",
    r"\\\\(\[6pt\])?": r"\\;",
    r"(?<!\\)&": r"\\;",
}


def typeset(source: str) -> None:
    for pattern, other in DIALECT.items():
        source = re.sub(pattern, other, source)
    MathTextParser("agg").parse(f"${source}$")


@every_objective
def test_the_latex_is_valid(objective: Objective) -> None:
    source = card.equation(objective, latex=True)
    check_latex("\n".join(source))
    assert source[0] == r"\begin{aligned}" and source[-1] == r"\end{aligned}"
    assert all(re.search(r" \\\\(\[6pt\])?$", line) for line in source[1:-2]) and not source[-2].endswith("\\")
    for line in source[1:-1]:
        typeset(line)


KINDS = [kind for kinds in REGISTRY.values() for kind in kinds.values() if kind.fn.__module__.startswith("surefoot.")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.slot}.{kind.name}")
def test_the_latex_of_every_part_is_valid_for_other_numbers_too(kind: Any) -> None:
    part = kind()
    for made in (part, *(varied(part, name) for name in part.numbers)):
        check_latex(made.latex)
        if made.latex:
            typeset(made.latex)


def test_the_latex_checks_see_mistakes() -> None:
    for wrong in (
        "{", "}", "{}}{", r"\begin{aligned}", r"\begin{a}\end{b}", r"\nonsense", "5 %", "a < b", r"\text{a_b}", r"\big(x)",
        "1e-06", "min(x, inf)", r"\big x", r"\left(", "a & b & c", "#1",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            check_latex(wrong)
    with pytest.raises(ValueError):
        typeset(r"\frac{a}")


def test_a_phrase_of_any_kind_is_typed_as_it_is() -> None:
    phrase = "100 % of <b> & $x_1$ #2 {a} \\b ^~ | `q` 1e-06 inf"
    part = interruption.force_answer(phrase=phrase, close="</x>")
    check_latex(part.latex.replace("1e-06 inf", ""))
    assert r"100 \% of }\lt{}\texttt{b}\gt{}\texttt{ \& \$x\_1\$ \#2 \{a\} " in part.latex
    assert "1e-06 inf" in part.latex, "words are no numbers"
    text = card.card(grpo.but(interruption=part))
    rows = [line for line in text.splitlines() if line.startswith("| interruption")]
    assert len(rows) == 2
    html = MarkdownIt("commonmark").enable("table").render("\n".join(["| a | b | c |", "|---|---|---|", *rows]))
    assert html.count("<tr>") == 3 and html.count("<td>") == 6 and html.count("<code>") == 3
    assert "`q` 1e-06 inf" in html and "| `q`" in html and "<b>" not in html


def test_numbers_are_written_as_in_a_paper() -> None:
    assert r"+ 10^{-6}}" in grpo.advantage.latex and grpo.advantage.text.endswith("+ 1e-6)")
    assert r"2.5\cdot 10^{-7}" in grpo.but(advantage={"eps": 2.5e-7}).advantage.latex
    assert r"10^{20}" in notation.latex("1e+20") and notation.plain("x 1e+20") == "x 1e20"
    assert notation.plain("see1e-06 and 0x1e-06") == "see1e-06 and 0x1e-06"
    assert r"\infty" in correction.token_truncate(cap=float("inf")).latex
    assert notation.latex(r"\inf_x \operatorname{inf}") == r"\inf_x \operatorname{inf}".replace("{inf}", r"{\infty }")


def test_lines_break_where_definitions_begin() -> None:
    assert notation.lines("short,  one", 20) == ["short,  one"]
    assert notation.lines("a = b c,  b = d;  c = e", 10) == ["a = b c,", "    b = d;", "    c = e"]
    assert notation.lines("one two three four", 9) == ["one two", "    three", "    four"]
    assert notation.lines("clip(x, 1-0.2)", 12) == ["clip(x,", "    1-0.2)"], "a minus is no hyphen"
    for width in (1, 0, -2):
        assert notation.lines("one, two", width) == ["one,", "    two"], "a word is never broken"
    wide = r"A = f(a,\;b),\; " + "x" * 90 + r",\;\begin{cases}a,\;b\end{cases}"
    assert notation.latex_lines(wide) == [r"A = f(a,\;b),", "x" * 90 + ",", r"\begin{cases}a,\;b\end{cases}"]
    assert notation.latex_lines(r"a,\;b") == [r"a,\;b"]


@pytest.mark.parametrize("family", [PRESETS, PREFERENCES], ids=["policy", "preference"])
def test_every_family_is_a_tree_without_strays(family: dict[str, Objective]) -> None:
    assert all(name == objective.name for name, objective in family.items())
    assert all(objective.ancestor in family for objective in family.values() if objective.ancestor)
    nodes = card.tree(family.values())
    assert sorted(objective.name for _, objective in nodes) == sorted(family)
    above: list[str] = []
    for depth, objective in nodes:
        del above[depth:]
        assert (above[-1] if above else "") == objective.ancestor
        above.append(objective.name)
        assert [one.name for one in card.lineage(objective)] == above
        assert objective.changes or not objective.ancestor
        assert objective.paper and objective.note


def test_a_circle_of_ancestors_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "rloo", PRESETS["rloo"].but(ancestor="dapo", changes="turns back."))
    names = [one.name for one in card.lineage(PRESETS["dapo"])]
    assert names == ["rloo", "grpo", "grpo_token", "dapo"]


def test_no_name_is_in_two_families() -> None:
    assert not PRESETS.keys() & PREFERENCES.keys()


def test_a_tree_holds_those_whose_ancestor_is_elsewhere() -> None:
    some = [PRESETS["dapo"], PRESETS["grpo_token"], PRESETS["ppo"]]
    assert [(depth, one.name) for depth, one in card.tree(some)] == [(0, "grpo_token"), (1, "dapo"), (0, "ppo")]


@every_objective
def test_the_words_of_a_preset_are_its_own(objective: Objective) -> None:
    """Two presets never share paper, ancestor and changes: by them the author of inherited words is found."""
    family = PRESETS if isinstance(objective, Algorithm) else PREFERENCES
    told = [one for one in family.values() if (one.paper, one.ancestor, one.changes) ==
            (objective.paper, objective.ancestor, objective.changes)]  # fmt: skip
    assert told == [objective]
    assert card.title(objective) == objective.name and card.note(objective) == objective.note


@every_objective
def test_the_card_shows_what_changed_part_by_part(objective: Objective) -> None:
    text = card.card(objective)
    if not objective.ancestor:
        assert "From **" not in text
        return
    ancestor = (PRESETS if isinstance(objective, Algorithm) else PREFERENCES)[objective.ancestor]
    assert f"From **{ancestor.name}**: {objective.changes}\n" in text
    changed = [slot for slot, part in objective.parts.items() if part != ancestor.parts[slot]]
    table = text.split(f"| part | {ancestor.name} | {objective.name} |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = [
        f"| {slot} | {card.code(repr(ancestor.parts[slot]))} | {card.code(repr(objective.parts[slot]))} |"
        for slot in changed
    ]
    assert table.splitlines() == rows and rows
    chain = [*(one.name for one in card.lineage(ancestor)), f"**{objective.name}**"]
    assert f"\n{' -> '.join(chain)}\n" in text


@every_objective
def test_the_card_is_good_markdown(objective: Objective) -> None:
    text = card.card(objective)
    assert text.startswith(f"# {objective.name}\n") and text.endswith("\n") and not text.endswith("\n\n")
    assert "``" not in text.replace("```text", "").replace("```\n", "") and not re.search(r":\w+:`", text)
    assert text.count("$$") == 2 and text.count("```") == 2
    assert f"**Assumptions and limits.** {objective.note}\n" in text
    bare = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    html = MarkdownIt("commonmark").enable("table").render(bare)
    tables = 1 + bool(objective.ancestor)
    assert html.count("<table>") == tables and html.count("<h1>") == 1
    assert set(re.findall(r"<(\w+)", html)) <= TAGS
    emphasised = re.findall(r"<em>(.*?)</em>", html)
    assert all(re.fullmatch(r"[a-z ]+", words) for words in emphasised), emphasised


def test_a_variant_does_not_repeat_what_was_said_of_its_preset() -> None:
    named = grpo.but(kl="none", trust={"high": 0.3}, name="mine")
    text = named.explain()
    assert text.startswith("# mine\n") and "From **grpo**\n" in text.replace(":\n", "\n")
    assert grpo.changes not in text and "rloo -> grpo -> **mine**" in text
    assert "| trust | `clip(low=0.2, high=0.2)` | `clip(low=0.2, high=0.3)` |" in text
    assert f"Of grpo: {grpo.note}" in text
    unnamed = grpo.but(kl="none").explain()
    assert unnamed.startswith("# grpo (varied)\n") and "grpo -> **grpo (varied)**" in unnamed
    root = reinforce.but(advantage="batch_mean", name="mine").explain()
    assert "reinforce -> **mine**" in root and "| advantage | `reward()` | `batch_mean()` |" in root
    again = grpo.but(name="again").explain()
    assert again.replace("again", "grpo") == grpo.explain()


def test_an_algorithm_of_ones_own_has_only_what_it_says() -> None:
    own = Algorithm(advantage=REGISTRY["advantage"]["batch_mean"](), name="own", note="Mine.")
    text = own.explain()
    assert "From **" not in text and " -> " not in text and text.endswith("**Assumptions and limits.** Mine.\n")
    related = Algorithm(name="own", ancestor="grpo", changes="is mine.").explain()
    assert "From **grpo**: is mine." in related and "grpo -> **own**" in related
    stranger = Algorithm(name="own", ancestor="unknown", changes="is mine.").explain()
    assert "From **" not in stranger


def test_a_configuration_varies_a_preset_and_its_card_says_so() -> None:
    section = AlgorithmConfig(preset="dapo", trust={"high": 0.3}, kl="in_loss")
    text = section.build().explain()
    assert text.startswith("# dapo (varied)\n") and "dapo -> **dapo (varied)**" in text
    assert "From **dapo**: trust = clip(low=0.2, high=0.3); kl = in_loss(coef=0.04, estimator='k3')." in text
    assert AlgorithmConfig(**section.resolved()).build().explain() == text
    assert AlgorithmConfig(preset="dapo").build().explain() == PRESETS["dapo"].explain()


def test_two_objectives_differ_where_their_parts_do() -> None:
    for one in PRESETS.values():
        assert card.compare(one, one) == []
        for other in PRESETS.values():
            rows = card.compare(one, other)
            assert [slot for slot, _, _ in rows] == [slot for slot in SLOTS if one.parts[slot] != other.parts[slot]]
            assert [(slot, theirs, mine) for slot, mine, theirs in rows] == card.compare(other, one)


def test_symbols_are_explained_where_they_occur() -> None:
    said = legend(card.equation(PRESETS["ppo"]))
    assert "`pi_ref` the reference policy" in said and "`V` the critic's value" in said and "k3" not in said
    assert "`k3_ratio`" in legend(card.equation(grpo.but(kl={"estimator": "k3_ratio"})))
    assert legend([]) == ""
    everything = "\n".join(line for one in PRESETS.values() for line in card.equation(one))
    everything += grpo.but(kl={"estimator": "k3_ratio"}).kl.text
    assert [meaning for pattern, meaning in SYMBOLS if not re.search(pattern, everything)] == []


def test_cells_and_code_hold_anything() -> None:
    assert card.cell("a | b <c> `d <e>`") == r"a \| b &lt;c> `d <e>`"
    assert card.code("a|b") == r"`a\|b`" and card.code("a`b``c") == "``` a`b``c ```"


def test_the_surrogate_of_the_guide_is_the_one_of_the_paper() -> None:
    """SAPO, arXiv 2511.20347: f(x) = sigmoid(tau (x - 1)) 4 / tau, tau = 1 for positive advantages and 1.05 for others."""
    text = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def sapo" in block]
    assert len(code.split("@part")[1].split("\n\n\n")[0].splitlines()) <= 15
    names: dict[str, Any] = {"__name__": "__page__"}
    try:
        exec(code, names)
        rows = Rows([[1, 1, 1], [1, 1, 0]])
        logp = torch.tensor([[-0.5, -0.4, -1.0], [-1.0, -2.0, 0.0]], dtype=torch.float64)
        old = torch.tensor([[-0.7, -0.4, -0.2], [-1.5, -1.0, 0.0]], dtype=torch.float64)
        loss, gradient = rows.loss(names["mine"], logp, [1.0, -1.0], logp_old=old)
    finally:
        REGISTRY["trust"].pop("sapo", None)
    ratio, tau = (logp - old).exp(), torch.tensor([[1.0], [1.05]], dtype=torch.float64)
    share = torch.tensor([[1 / 6, 1 / 6, 1 / 6], [-1 / 4, -1 / 4, 0]], dtype=torch.float64)  # A_i / (N L_i)
    gate = torch.sigmoid(tau * (ratio - 1))
    assert loss == pytest.approx(float(-(share * gate * 4 / tau).sum()), abs=1e-12)
    torch.testing.assert_close(gradient, -share * 4 * gate * (1 - gate) * ratio, rtol=0, atol=1e-12)
