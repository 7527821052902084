"""The result as JSON and as JUnit XML. Each shape here is a contract with whoever reads it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from .config import COUNTED
from .judge import Verdict, crossed
from .matrix import Result
from .words import headline, sentence

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(result: Result, commands: Mapping[str, str]) -> dict[str, Any]:
    """Plain JSON values; `commands` says how to run each row alone, by its id."""
    return {
        "format": 1,
        "name": result.title,
        "headline": headline(result),
        "passes": not result.faults and not crossed(result.verdicts, result.config.threshold),
        "crossed": {
            n: {"found": f, "allowed": a} for n, (f, a) in crossed(result.verdicts, result.config.threshold).items()
        },
        "counts": {name: sum(v.counts()[name] for v in result.verdicts if not v.fault) for name in COUNTED},
        "rows_count": len(result.verdicts),
        "kills": sum(v.kills for v in result.verdicts),
        "faults": len(result.faults),
        "clean": {
            "seconds": round(result.clean_seconds, 3),
            "effects": dict(result.expected.performed),
            "model_calls": result.expected.model_calls,
            "tokens": result.expected.tokens,
        },
        "boundaries": [
            {"number": a.number, "name": a.boundary, "model": a.is_model, "acts": list(a.acted)}
            for a in result.boundaries
        ],
        "rows": [row(verdict, commands.get(verdict.row.id, "")) for verdict in result.verdicts],
        "warnings": result.warnings,
        "seconds": round(result.seconds, 2),
        "jobs": result.jobs,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def row(verdict: Verdict, command: str) -> dict[str, Any]:
    """One row."""
    return {
        "id": verdict.row.id,
        "kind": verdict.row.kind,
        "window": verdict.row.window,
        "boundary": verdict.row.boundary,
        "fails": verdict.fails,
        "fault": verdict.fault,
        "duplicates": verdict.duplicates,
        "lost": verdict.lost,
        "wrong": verdict.wrong,
        "wrong_answer": verdict.wrong_answer,
        "stranded": verdict.stranded,
        "gave_up": verdict.gave_up,
        "says_success": verdict.says_success,
        "asks": verdict.asks,
        "unreached": verdict.unreached,
        "extra_model_calls": verdict.extra_model_calls,
        "extra_tokens": verdict.extra_tokens,
        "recover_seconds": round(verdict.recover_seconds, 3),
        "refused_by_model": verdict.refused,
        "processes_outside_the_group": verdict.strays,
        "processes_left": verdict.left_children,
        "kills": verdict.kills,
        "lives": verdict.lives,
        "exit_codes": list(verdict.exit_codes),
        "seconds": round(verdict.seconds, 3),
        "note": verdict.note,
        "sentence": sentence(verdict),
        "request": verdict.request,
        "command": command,
    }


def junit(result: Result, commands: Mapping[str, str]) -> bytes:
    """One test case for each row; a fault is an error, a failing row a failure, one that was not reached is skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(result.title),
        tests=str(len(result.verdicts)),
        failures=str(len(result.failing)),
        errors=str(len(result.faults)),
        skipped=str(len(result.unreached)),
        time=f"{result.seconds:.3f}",
    )
    for verdict in result.verdicts:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_clean(f"crashtest.{verdict.row.kind}"),
            name=_clean(verdict.row.id),
            time=f"{verdict.seconds:.3f}",
        )
        kind = "error" if verdict.fault else "failure" if verdict.fails else "skipped" if verdict.unreached else ""
        if kind:
            told = ElementTree.SubElement(case, kind, message=_clean(sentence(verdict)))
            told.text = _clean("\n".join(filter(None, [verdict.request, commands.get(verdict.row.id, "")])))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
