"""The command line: `surefoot crashtest [OPTIONS] [-- COMMAND…]` and `surefoot crashtest record`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .config import DEFAULT_FILE, Config, load_config, read_allowed, words_of, worlds_at_once
from .document import document, junit
from .errors import BAD_INPUT, CROSSED, FINE, HARNESS_FAULT, CrashtestError
from .judge import Verdict, crossed, judge
from .live import watched
from .matrix import Result, open_bench, run_matrix
from .minimise import Smallest, minimise
from .observed import Observed
from .page import write_page
from .proxy import proxy_of
from .record import record_once
from .rows import Row, parse_row
from .supervise import run_row
from .table import draw
from .words import command_of, sentence

EPILOG = """\b
Exit codes:
  0  no threshold is crossed
  1  a threshold is crossed
  2  the command line, the configuration or the agent make no sense; the message says what to do
  3  an extra is not installed
  7  a fault of the harness: a row without its kill
"""
OPTIONS: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
app = typer.Typer(**OPTIONS)
recording = typer.Typer(**OPTIONS)

File = Annotated[Path, typer.Option("--config", metavar="FILE", help="What is tested, and its services.")]
Variant = Annotated[str | None, typer.Option("--variant", metavar="NAME", help="Put [variants.NAME] over the rest.")]
Command = Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="How the agent is started.")]


@app.command(epilog=EPILOG)
def crashtest(
    command: Command = None,
    config: File = Path(DEFAULT_FILE),
    variant: Variant = None,
    windows: Annotated[str | None, typer.Option(help="before,effect,read,recorded: some of these.")] = None,
    only: Annotated[str | None, typer.Option(metavar="REGEX", help="Only boundaries that match.")] = None,
    skip: Annotated[str | None, typer.Option(metavar="REGEX", help="No boundaries that match.")] = None,
    row: Annotated[str | None, typer.Option(metavar="ID", help="This row alone.")] = None,
    replicas: Annotated[int | None, typer.Option(metavar="N", help="Also start N copies together.")] = None,
    pause: Annotated[float | None, typer.Option(metavar="SECONDS", help="Also stop it past its lease.")] = None,
    twice: Annotated[bool, typer.Option("--twice", help="Also kill it again while it recovers.")] = False,
    lose_reply: Annotated[bool, typer.Option("--lose-reply", help="Also lose each reply.")] = False,
    late: Annotated[bool, typer.Option("--late", help="Also let each effect act after its connection is cut.")] = False,
    error_after: Annotated[bool, typer.Option("--500-after", help="Also act and answer 500.")] = False,
    deploy: Annotated[
        tuple[str, str] | None, typer.Option(metavar="OLD NEW", help="Also kill OLD and restart as NEW.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", metavar="N", help="Worlds at once; 0: one per CPU, four with --fork.")
    ] = 0,
    restarts: Annotated[int | None, typer.Option(metavar="N", help="How often it is started again.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="A longer life hangs.")] = None,
    fork: Annotated[bool | None, typer.Option("--fork/--no-fork", help="Start Python from a fork server.")] = None,
    proxy: Annotated[bool | None, typer.Option("--proxy/--no-proxy", help="See it by an intercepting proxy.")] = None,
    recorded: Annotated[
        str | None, typer.Option("--recording", metavar="FILE", help="Services answer from it.")
    ] = None,
    allow: Annotated[list[str] | None, typer.Option(metavar="NAME=N", help="Tolerate this much.")] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="Reports go here; '' for none.")] = "crashtest-results",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    smallest: Annotated[bool, typer.Option("--minimise", help="Then find the smallest failing case.")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every world here.")] = None,
    disarm: Annotated[bool, typer.Option("--disarm", hidden=True, help="Leave each kill out: must fail.")] = False,
) -> int:
    """Kill an agent at each of its requests, restart it, and count what really happened.

    Docs: docs/crashtest.md.
    """
    flags = {"twice": twice, "lose_reply": lose_reply, "late": late, "500_after": error_after}
    flags |= {"replicas": replicas is not None, "pause": pause is not None, "deploy": deploy is not None}
    asked = [name for name, wanted in flags.items() if wanted]
    old, new = deploy or (command, None)
    changes: dict[str, Any] = {"command": old, "new_command": new, "only": only, "skip": skip, "fork": fork}
    changes |= {"replicas": replicas, "pause_seconds": pause, "restarts": restarts, "timeout_seconds": timeout}
    changes |= {"proxy": proxy, "jobs": jobs or None, "threshold": read_allowed(allow) if allow else None}
    changes |= {"windows": windows.split(",") if windows else None}
    changes |= {"recording": str(Path(recorded).resolve()) if recorded else None}
    loaded = _load(config, variant, changes, asked)
    result, least = _test(loaded, row, smallest=smallest, keep=keep, disarm=disarm, as_json=as_json)
    named = {"--variant": variant, "--restarts": restarts, "--timeout": timeout, "--recording": recorded}
    options = _options(config, named, {"fork": fork, "proxy": proxy})
    again: dict[str, Any] = {"pause": pause, "deploy": deploy, "command": command or ()}
    commands = {v.row.id: _again(v.row, options, **again) for v in result.verdicts}
    _show(result, least, commands, out=out, as_json=as_json)
    return _code(result)


def _code(result: Result) -> int:
    if result.faults:
        return HARNESS_FAULT
    if len(result.unreached) == len(result.verdicts):
        return BAD_INPUT
    return CROSSED if crossed(result.verdicts, result.config.threshold) else FINE


def _load(file: Path, variant: str | None, changes: dict[str, Any], asked: Sequence[str]) -> Config:
    given = {name: value for name, value in changes.items() if value is not None}
    config = load_config(file, variant=variant, changes=given)
    if asked:
        rows = list(dict.fromkeys([*config.rows, *asked]))
        config = load_config(file, variant=variant, changes={**given, "rows": rows})
    return config


def _test(
    config: Config, row: str | None, *, smallest: bool, keep: Path | None, disarm: bool, as_json: bool
) -> tuple[Result, Smallest | None]:
    console = Console(stderr=as_json or not sys.stdout.isatty(), highlight=False)
    only_row = None if row is None else parse_row(row)
    with proxy_of(config) as proxied, watched(console, config.title) as progress:
        result = run_matrix(
            config,
            only_row=only_row,
            folder=keep,
            keep=keep is not None,
            proxied=proxied,
            disarmed=disarm,
            progress=progress,
            jobs=worlds_at_once(config),
        )
        if not smallest or not result.failing:
            return result, None
        with open_bench(config, proxied=proxied) as bench:

            def run(row: Row) -> Verdict:
                seen: Observed = run_row(bench, row)[0]
                return judge(seen, result.expected)

            return result, minimise(result, run)


def _options(config: Path, named: Mapping[str, object], switches: Mapping[str, bool | None]) -> list[str]:
    """Those that were given, as they are given."""
    words = [] if config == Path(DEFAULT_FILE) else ["--config", str(config)]
    words += [str(word) for name, value in named.items() if value is not None for word in (name, value)]
    return words + [f"--{'' if on else 'no-'}{name}" for name, on in switches.items() if on is not None]


def _again(
    row: Row, options: Sequence[str], *, pause: float | None, deploy: tuple[str, str] | None, command: Sequence[str]
) -> str:
    """The command that runs this row alone, with those of the options given that matter to it."""
    words = [*options]
    words += ["--pause", f"{pause:g}"] if pause is not None and row.kind == "pause" else []
    words += ["--deploy", *deploy] if deploy is not None and row.kind == "deploy" else []
    started = command if deploy is None or row.kind == "deploy" else words_of(deploy[0])
    return command_of(row, words, started)


def _show(result: Result, least: Smallest | None, commands: dict[str, str], *, out: str, as_json: bool) -> None:
    shapes = document(result, commands)
    if least is not None:
        row = least.verdict.row
        shapes["smallest"] = {"id": row.id, "failed": least.failed, "trials": least.trials, "command": commands[row.id]}
    if out:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "result.json", json.dumps(shapes, indent=2).encode() + b"\n")
        _write(folder / "junit.xml", junit(result, commands))
        write_page(folder / "report.html", result, commands)
    if as_json:
        sys.stdout.write(json.dumps(shapes) + "\n")
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(draw(result))
    if least is not None:
        row = least.verdict.row
        console.print(f"\nsmallest failing case, {least.failed} of {least.trials} trials: {sentence(least.verdict)}")
        console.print(f"    {commands[row.id]}", soft_wrap=True)
    if out:
        console.print(f"\nreport: {Path(out) / 'report.html'}", soft_wrap=True)


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)


@recording.command()
def record(
    command: Command = None,
    config: File = Path(DEFAULT_FILE),
    variant: Variant = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the recording goes.")] = Path("recording.jsonl"),
    proxy: Annotated[bool | None, typer.Option("--proxy/--no-proxy", help="See it by an intercepting proxy.")] = None,
) -> int:
    """Run the agent once against the real services, and keep what they answered."""
    given = {"command": command, "proxy": proxy}
    loaded = load_config(config, variant=variant, changes={n: v for n, v in given.items() if v is not None})
    kept = record_once(loaded, out)
    Console(highlight=False).print(
        f"{len(kept)} answers of {len({each.service for each in kept})} services are in {out}; crash on them with:\n"
        f"    surefoot crashtest --recording {out}",
        soft_wrap=True,
    )
    return FINE


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code, and shows no traceback for what a user can cause."""
    given = list(arguments)
    is_record = given[:1] == ["record"]
    program, words = (recording, given[1:]) if is_record else (app, given)
    name = "surefoot crashtest record" if is_record else "surefoot crashtest"
    try:
        code: Any = program(args=words, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except CrashtestError as error:
        return _complain(error.message, error.code, as_json="--json" in given)
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except _ClickException as error:
        return _complain(error.format_message(), BAD_INPUT, as_json="--json" in given)


# Where typer keeps this class differs between its versions.
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _complain(text: str, code: int, *, as_json: bool) -> int:
    told = json.dumps({"error": text, "code": code}) if as_json else f"surefoot crashtest: {text}"
    print(told, file=sys.stderr)
    return code
