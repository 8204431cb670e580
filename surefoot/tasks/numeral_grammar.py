r"""What a number can look like: one expression for a token of a text that :func:`.numeral_forms.plain` has gone over.

Every quantifier is possessive or bounded and every token is consumed whole, also one that turns out to be no number, so
that a text is gone over in time that grows with its length and no faster.
"""

from __future__ import annotations

import re

from surefoot.tasks.numeral_forms import HAN

_INT = r"[0-9]++"
_DEC = r"(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)"
_HANS = f"[{HAN}]++"
_EXP = r"(?:\{ ?[+-]?[0-9]++ ?\}|\( ?[+-]?[0-9]++ ?\)|[+-]?[0-9]++)"
_CASH = r"[$€£¥₹₩]"
_START = rf"(?=[0-9.{HAN}])(?:(?<![0-9A-Za-z_.])|(?<=\.\.)(?=[0-9]))"
_FREE = r"(?<![0-9A-Za-z_)\]}])"  # where a hyphen is a sign
_SIGN = (
    rf"(?:(?P<minus>{_FREE}-|(?<=[=≈({{\[$]) ?- |(?<![A-Za-z])(?i:negative|minus) |负的? ?|零下 ?)"
    rf"|(?P<both>(?:±|正负) ?)|{_FREE}\+)?(?P<cash>{_CASH} ?)?"
)
_BRACED = r"(?:\{{ {{0,3}}(?P<{0}>[+-]?[0-9]++) {{0,3}}\}}|(?P<{0}1>[0-9]))"
_ANY = r"\{[^{}\n]{0,99}+(?:\{[^{}\n]{0,99}+\}[^{}\n]{0,99}+){0,3}+\}"
_FORMS = {
    "latex": rf"(?:{_START}(?P<latex_whole>{_INT})[ $]{{0,3}}(?:又[ $]{{0,2}})?)?"
    rf"\\[dtc]?frac {{0,3}}{_BRACED.format('top')} {{0,3}}{_BRACED.format('bottom')}",
    "parts": rf"(?:(?P<parts_whole>{_INT}|{_HANS}) ?又 ?)?(?P<below>{_INT}|{_HANS}) ?分之 ?(?P<above>{_DEC}|{_HANS})",
    "mixed": rf"(?P<whole>[0-9]{{1,3}}(?:,[0-9]{{3}}(?![0-9]))++|{_INT})(?P<join> ?又 ?| and |[ -])"
    rf"(?P<mixed_top>{_INT})/(?P<mixed_bottom>{_INT})(?![0-9]|[.,/:][0-9])",
    "half": rf"(?P<count>{_DEC})(?: and (?:(?:a|one)[ -]|(?=t))(?P<share>half|third|quarter|three[ -]quarters|two[ -]thirds)"
    r"(?![A-Za-z])|[个年天周斤倍元块里米岁]半(?![径圆球数价]))",
    "ratio": rf"(?P<over>{_INT}) ?/ ?(?P<under>{_INT})(?![0-9]|[.,/:][0-9]| ?/ ?[0-9]|_[0-9{{])",
    "recurring": r"(?P<fixed>[0-9]*+\.[0-9]*+)(?:\\overline ?\{(?P<period>[0-9]++)\}|\((?P<period1>[0-9]++)\)(?![0-9A-Za-z(]))",
    "power": rf"(?:(?P<coefficient>{_DEC}) ?[x×X*] ?)?(?P<base>{_DEC})(?: ?\^ ?|\*\*| \*\* )(?P<exponent>{_EXP})",
    "other": rf"(?:{_START}{_DEC} ?[×*]? ?)?"
    rf"(?:√(?:\[[^\[\]]{{0,9}}\])? ?(?:{_ANY}|\([^()]{{0,99}}\)|[0-9])|\\[dtc]?frac ?{_ANY} ?{_ANY})",
    "tens": r"(?:[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]++)?(?:[千百万]?[万亿]|百万|千万|百(?![分帕])|千(?![米克瓦卡帕赫焦伏升])))++"
    r"(?:[0-9]++(?![.,/:][0-9]))?",
    "han": rf"(?P<signs>{_HANS})(?:点(?P<decimals>[零一二三四五六七八九]++)(?![十分]))?(?P<more>[万亿])?",
    "spaced": r"[1-9][0-9]{0,2}(?:(?: [0-9]{3}(?![0-9]))++|(?:'[0-9]{3}(?![0-9]))++)(?:[.,][0-9]++(?![.,/:][0-9]))?",
    "chunk": r"(?:[0-9]|\.(?=[0-9]))[0-9]*+(?:[.,/:][0-9]++)*+(?:[eE][+-]?[0-9]++(?![0-9A-Za-z]))?",
}
_NONE = (
    r"_\{[^{}]{0,99}\}|(?<![0-9A-Za-z_.])(?:[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?![0-9])"
    r"|[0-9]{4}年 ?[0-9]{1,2}月(?: ?[0-9]{1,2}[日号])?|0[xX][0-9a-fA-F]++)"
)
_TIMES = r"(?: ?(?P<times>thousand|million|billion|trillion)(?![A-Za-z])|(?P<letter>[kKMB])(?![A-Za-z0-9]))?"

KINDS = tuple(_FORMS)
TOKEN = re.compile(
    rf"(?=[0-9.√\\^*_±+\-$€£¥₹₩正负 NnMm{HAN}])(?:(?P<raised>(?:\^|(?<=[0-9A-Za-z)\]}}])\*\*) ?{_EXP})"
    rf"|(?P<none>{_NONE})|{_SIGN}(?P<body>"
    + "|".join(f"(?P<{name}>{_FORMS[name]})" for name in ("latex", "other"))
    + rf"|{_START}(?:"
    + "|".join(f"(?P<{name}>{form})" for name, form in _FORMS.items() if name not in ("latex", "other"))
    + f")){_TIMES})"
)
GOES_ON = re.compile(r" ?π| pi(?![A-Za-z])|\^ ?(?!\{? ?(?:\\circ|°))[A-Za-z{(\\]")
"""Behind a number: it is a factor or the base of something that is not read."""

DENIED = re.compile(
    r"(?:(?i:\bnot|n't|\bnever|\brather than|\binstead of)|不是|而非|并非|不等于|不为|不会是|≠)"
    r"\s?(?:equal to )?[\s$(=*]{0,3}$"
)
SUBTRACTED = re.compile(r"(?:[0-9)\]%]|(?<![A-Za-z])[A-Za-z]) ?$")
"""In front of "minus": it is no sign there."""
