"""`surefoot proxy`: the journal out of process. Its parts are imported when they are used: they need an extra."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .desk import url_of
from .exits import Exit, Failed
from .order import Db, RunId, order_of

if TYPE_CHECKING:
    from ..proxy.options import Options, Upstream
    from ..proxy.supervise import Lived

KEY_VARIABLE, PROXY = "SUREFOOT_PROXY_KEY", "SUREFOOT_PROXY"
ASK_SECONDS = 60.0
proxy = typer.Typer(
    help="Record what an agent in any language asks its model for, and its OAuth token endpoint.",
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
)

Host = Annotated[str, typer.Option("--host", help="Where to listen; anything but loopback needs a key.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 for any that is free.")]
Key = Annotated[str | None, typer.Option("--key", help=f"What every request must bring; else ${KEY_VARIABLE}.")]
Upstreams = Annotated[
    list[str] | None, typer.Option("--upstream", metavar="NAME=URL", help="Another service, or a known one elsewhere.")
]
TokenServices = Annotated[
    list[str] | None,
    typer.Option(
        "--token",
        metavar="NAME=URL[,PROMISE]",
        help="An OAuth token endpoint, and what it promises: strict, grace:SECONDS, reusable, or a receiver's name.",
    ),
]
Skips = Annotated[bool, typer.Option("--skips", help="The agent resumes from a checkpoint of its own.")]


def add_commands(app: typer.Typer) -> None:
    """Give the program these commands."""
    app.add_typer(proxy, name="proxy")


@proxy.callback()
def serve(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 7878,
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="The run of requests that name none.")] = "",
    key: Key = None,
    upstream: Upstreams = None,
    token: TokenServices = None,
    skips: Skips = False,
    db: Db = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C; what was recorded stays, and the next proxy on the store goes on."""
    if context.invoked_subcommand is not None:
        return Exit.FINE
    parts = _parts()
    given = [parts.options.read_upstream(each) for each in upstream or ()]
    options = _options(parts, host=host, port=port, run=run, key=key, given=given, token=token, skips=skips)
    url = url_of(order_of(context, db, False).db)
    listener = parts.serving.listen(options)
    at = parts.serving.address_of(listener)

    def started() -> None:
        print(f"surefoot proxy listens at {at}", flush=True)
        for name, value in parts.supervise.variables(at, options.upstreams, run=run).items():
            print(f"  export {name}={value}", flush=True)

    import asyncio

    from ..runtime.app import Surefoot

    asyncio.run(parts.serving.serve(Surefoot(url), options, listener, started))
    return Exit.FINE


@proxy.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, no_args_is_help=True
)
def execute(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The agent.", show_default=False)],
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="What identifies the work.")],
    restarts: Annotated[int, typer.Option("--restarts", min=0, help="Start it again so often when it dies.")] = 3,
    keep: Annotated[bool, typer.Option("--keep", help="Do not end the run when the agent has succeeded.")] = False,
    at: Annotated[
        str | None, typer.Option("--proxy", metavar="URL", help="A proxy that runs already; else one of its own.")
    ] = None,
    key: Key = None,
    upstream: Upstreams = None,
    token: TokenServices = None,
    skips: Skips = False,
    db: Db = None,
) -> int:
    """Run an agent behind the proxy, and start it again when it dies.

    The base URLs of its environment point to the proxy, each start as an attempt of its own. Exits as the agent did.
    The same command with the same --run goes on where it was.
    """
    parts = _parts()
    given = [*parts.supervise.upstreams_in(os.environ), *(parts.options.read_upstream(each) for each in upstream or ())]
    options = _options(parts, host="127.0.0.1", port=0, run=run, key=key, given=given, token=token, skips=skips)
    if at is not None:
        code = _live(parts, command, at.rstrip("/"), options, restarts)
        if code == 0 and not keep:
            _ask(at, "DELETE", run, options.key)
        return code
    from ..runtime.app import Surefoot

    url = url_of(order_of(context, db, False).db)
    listener = parts.serving.listen(options)
    with parts.background.Background(lambda: Surefoot(url), options, listener) as serving:
        code = _live(parts, command, parts.serving.address_of(listener), options, restarts)
        if code == 0 and not keep:
            serving.end(run)
    return code


@proxy.command()
def end(
    run: RunId,
    at: Annotated[str | None, typer.Option("--proxy", metavar="URL", help=f"Where it runs; else ${PROXY}.")] = None,
    key: Key = None,
) -> int:
    """End a run: it takes no new calls, and answers from its record."""
    where = at or os.environ.get(PROXY) or "http://127.0.0.1:7878"
    told = _ask(where, "DELETE", run, key or os.environ.get(KEY_VARIABLE, ""))
    print(f"run {told['run']} has ended: {told['calls']} calls recorded, {told['unrecorded']} passed on unrecorded")
    return Exit.FINE


class _Parts:
    """The proxy's modules; importing them needs the extra."""

    def __init__(self) -> None:
        from ..proxy import background, options, serving, supervise

        self.background, self.options, self.serving, self.supervise = background, options, serving, supervise


def _parts() -> _Parts:
    try:
        for needed in ("httpx", "uvicorn"):
            importlib.import_module(needed)
        return _Parts()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("surefoot"):
            raise
        raise Failed(Exit.MISSING_EXTRA, f"the proxy needs {error.name}: pip install 'surefoot[proxy]'") from error


def _options(
    parts: _Parts,
    *,
    host: str,
    port: int,
    run: str,
    key: str | None,
    given: Sequence[Upstream],
    token: list[str] | None,
    skips: bool,
) -> Options:
    chosen = parts.options
    return chosen.Options(
        host=host,
        port=port,
        run=run,
        key=key or os.environ.get(KEY_VARIABLE, ""),
        upstreams=chosen.with_known(tuple(given)),
        tokens=tuple(chosen.read_token_service(each) for each in token or ()),
        skips=skips,
    )


def _live(parts: _Parts, command: list[str], at: str, options: Options, restarts: int) -> int:
    """Run the agent to its end, and say so each time it is started again."""

    def environment(attempt: str) -> dict[str, str]:
        told = parts.supervise.variables(at, options.upstreams, run=options.run, attempt=attempt, key=options.key)
        return {**os.environ, **told}

    def tell(life: Lived) -> None:
        how = f"signal {-life.code}" if life.code < 0 else f"exit code {life.code}"
        print(f"surefoot proxy: attempt {life.attempt} ended with {how}; started again", file=sys.stderr, flush=True)

    supervisor = parts.supervise.Supervisor(command, environment, restarts=restarts, tell=tell)
    supervisor.catch()
    code = supervisor.run(own_session=not sys.stdin.isatty())
    if code == parts.supervise.CANNOT_START:
        raise Failed(Exit.BAD_INPUT, f"cannot start {command[0]!r}: give a program that is on PATH, after --")
    return code


def _ask(at: str, method: str, run: str, key: str) -> dict[str, Any]:
    """One question to a proxy that runs."""
    from urllib.error import HTTPError, URLError
    from urllib.parse import quote
    from urllib.request import Request, urlopen

    request = Request(f"{at.rstrip('/')}/run/{quote(run, safe='')}", method=method, headers={"X-Surefoot-Key": key})
    try:
        with urlopen(request, timeout=ASK_SECONDS) as response:
            return json.load(response)
    except HTTPError as error:
        said = json.loads(error.read() or b"{}")
        raise Failed(Exit.ILLEGAL, str(said.get("error", {}).get("message", error))) from None
    except (OSError, URLError) as error:
        raise Failed(
            Exit.NOT_FOUND, f"no proxy answers at {at} ({error}); give --proxy URL, or start one: surefoot proxy"
        ) from None
