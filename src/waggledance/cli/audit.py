"""`waggle audit`: which task sources can be trusted with a reward, and what stands around their judges.

A node asks the same of its sources before it starts. What was found is kept by name and digest, in the
package for what is shipped with it and in the user's folder for the rest: a start asks only once.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from waggledance.cli.verb import add_verb
from waggledance.config import NodeConfig, VerifyConfig, read_config
from waggledance.errors import TaskError, UsageError
from waggledance.seams import Source, Verifier
from waggledance.task import Digest, SourceName
from waggledance.tasks import Arithmetic, open_sources
from waggledance.tasks.child import Child
from waggledance.tasks.judge import WARDEN, scored
from waggledance.tasks.recipes import RECIPES, REFUSED
from waggledance.verify import Uncaged
from waggledance.verify.audit import Finding, Findings, audit
from waggledance.verify.cage import Cage, Terms
from waggledance.view.text import plain

AUDITS = "audits.json"
"""In the user's folder: what was found, by name and digest."""
AUDITS_LIMIT = 1000
AUDIT_LIMIT_S = 10.0
"""Generous: an audit is to say how long it took."""
Key = tuple[SourceName, Digest]

DESCRIPTION = """Which task sources can be trusted: whether they make the same tasks in every process, hang,
break their judge, or pay for answers that anybody could write. Without a source: a node's own by default."""
EXAMPLE = """example:
  waggle audit paper gym:jugs jsonl:my-questions.jsonl
  waggle audit --all --json > audit.json"""


def add_parser(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "audit",
        "which task sources can be trusted with a reward",
        description=DESCRIPTION,
        example=EXAMPLE,
        run=run,
    )
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="as in the setting `tasks`")
    parser.add_argument("--all", action="store_true", help="every source that is installed")


def run(options: argparse.Namespace) -> int:
    if options.all and options.sources:
        raise UsageError("name sources or take --all, not both")
    config = read_config(None, os.environ)
    words = options.sources or list(config.tasks)
    findings = Findings(tuple(_all(config.verify) if options.all else _audited(words, config.verify)))
    if options.json:
        print(msgspec.json.encode(findings).decode())
    else:
        for finding in findings.sources:
            print(_line(finding))
    failed = [finding for finding in findings.sources if not finding.ok]
    return TaskError.exit_code if failed and not options.all else 0


def _line(finding: Finding) -> str:
    verdict = "ok" if finding.ok else f"refused: {plain(finding.reason, 100)}"
    return f"{plain(finding.name, 60):32} {finding.digest or '–':16} {finding.worst_ms:8.1f} ms  {verdict}"


def _all(wanted: VerifyConfig) -> Iterable[Finding]:
    yield from _audited([Arithmetic.name, *RECIPES], wanted)
    for name, reason in REFUSED.items():
        yield Finding(SourceName(f"gym:{name}"), Digest(""), False, reason, 0.0)


def _audited(words: Sequence[str], wanted: VerifyConfig) -> Iterable[Finding]:
    sources, again = open_sources(words, Child()), open_sources(words, Child())
    verifier = _cage(sources, wanted, AUDIT_LIMIT_S)
    try:
        print(f"cage: {verifier.fence}", file=sys.stderr)
        for number, (source, other) in enumerate(zip(sources, again, strict=True), 1):
            print(f"{number}/{len(sources)} {source.name}", file=sys.stderr)
            yield audit(source, other, verifier)
    finally:
        verifier.close()


def open_verifier(sources: Sequence[Source], wanted: VerifyConfig) -> Verifier:
    if wanted.kind == "cage":
        return _cage(sources, wanted, wanted.limit_s)
    if needy := scored(sources):
        raise UsageError(f"verify.kind = 'uncaged': {needy[0]} runs a foreign scorer; set it to cage")
    return Uncaged()


def _cage(sources: Sequence[Source], wanted: VerifyConfig, limit_s: float) -> Cage:
    """ReasoningGYM, which is large, is in it only where its scorers judge."""
    terms = Terms(limit_s=limit_s, memory_bytes=wanted.memory_mb << 20)
    needy = scored(sources)
    return Cage(terms, WARDEN, needy) if needy else Cage(terms)


def vet(sources: Sequence[Source], config: NodeConfig, verifier: Verifier) -> None:
    """Refuses by name a source that the audit fails."""
    kept = Path(config.home).expanduser() / AUDITS
    known = {**_read(kept), **_shipped()}
    unknown = [source for source in sources if (source.name, source.digest) not in known]
    if unknown:
        again = {source.name: source for source in open_sources(config.tasks, Child())}
        found = [audit(source, again[source.name], verifier) for source in unknown]
        known |= {(finding.name, finding.digest): finding for finding in found}
        _keep(kept, {**_read(kept), **{(finding.name, finding.digest): finding for finding in found}})
    for source in sources:
        finding = known[source.name, source.digest]
        if not finding.ok:
            raise TaskError(
                f"{source.name} is refused: {finding.reason}; take it out of tasks, or mend it and ask "
                "`waggle audit`"
            )


@cache
def _shipped() -> Mapping[Key, Finding]:
    """What was found of the sources that come with this package: `make audited`."""
    content = files("waggledance.tasks").joinpath("audited.json").read_bytes()
    return _by_key(msgspec.json.decode(content, type=Findings))


def _read(path: Path) -> Mapping[Key, Finding]:
    """Nothing where there is nothing that can be read: then it is found again."""
    try:
        return _by_key(msgspec.json.decode(path.read_bytes(), type=Findings))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _by_key(findings: Findings) -> Mapping[Key, Finding]:
    return {(finding.name, finding.digest): finding for finding in findings.sources}


def _keep(path: Path, known: Mapping[Key, Finding]) -> None:
    """Where it cannot be kept it is found again."""
    newest = tuple(known.values())[-AUDITS_LIMIT:]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(Findings(newest)))
        beside.replace(path)
