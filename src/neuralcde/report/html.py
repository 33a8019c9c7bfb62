"""Templates of the pages: one file each, with inline style and script, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from markupsafe import Markup

from ..figures import duration, number, percent, score


def render_page(template: str, **names: Any) -> str:
    """Render a template of this folder. Everything that is not a `Markup` is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "duration": duration,
        "score": score,
        "signed": signed,
    }
    script = _read("script.js")
    page = environment.get_template(template).render(
        style=Markup(_read("style.css")),  # our own files, in which there is nothing to escape
        script=Markup(script),
        policy=content_security_policy(script),
        **names,
    )
    return page.lstrip()


def content_security_policy(script: str) -> str:
    """The policy of a page: it may run this script and no other, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def signed(value: float) -> str:
    """A difference of two metrics, with its sign."""
    text = score(value)
    return text if text.startswith("\u2212") else f"+{text}"


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
