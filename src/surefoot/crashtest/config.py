"""`crashtest.toml`: what is tested, which services there are, and what is tolerated.

Unknown keys are refused, so that a misspelt one does nothing silently. Nothing is started here.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from .errors import CrashtestError

Words = str | list[str]
Json = dict[str, Any]
WINDOWS = ("before", "effect", "read", "recorded")
ROW_KINDS = ("twice", "lose_reply", "late", "500_after", "pause", "deploy", "replicas")
COUNTED = ("duplicates", "lost", "wrong", "wrong_answer", "stranded", "gave_up", "says_success", "asks", "unreached")
NO_FAILURE = ("asks", "unreached")  # told and counted; tolerated unless a threshold says otherwise
MEASURED = ("extra_model_calls", "extra_tokens", "recover_seconds")
DEFAULT_FILE = "crashtest.toml"
FORKED_PER_CPU = 4


class Route(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One route of a service that answers by itself."""

    request: str
    effect: str | None = None
    key: str | None = None
    window_seconds: float | None = None
    refuse: bool = False
    finds: str | None = None
    status: int = 200
    reply: Any = msgspec.field(default_factory=dict[str, Any])


class EffectRule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which requests of a service that is only watched change the world."""

    request: str
    name: str | None = None
    key: str = "Idempotency-Key"


class ModelTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a scripted model says in one turn."""

    text: str = ""
    tool: str | None = None
    arguments: Json = msgspec.field(default_factory=dict[str, Any])
    tools: list[Json] = msgspec.field(default_factory=list[Json])
    tokens: int | None = None


class Service(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One service that the agent calls, and how the agent finds it."""

    kind: Literal["http", "model", "twin", "upstream", "command"]
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    hosts: list[str] = msgspec.field(default_factory=list[str])
    port: int = 0
    routes: list[Route] = msgspec.field(default_factory=list[Route])
    turns: list[ModelTurn] = msgspec.field(default_factory=list[ModelTurn])
    planner: str | None = None
    strict: bool = True
    receiver: str | None = None
    twin: str | None = None
    lies: Json = msgspec.field(default_factory=dict[str, Any])
    url: str | None = None
    command: Words | None = None
    ready_seconds: float = 20.0
    model: bool = False
    effects: list[EffectRule] | None = None

    @property
    def is_model(self) -> bool:
        """Its requests cost tokens and change nothing."""
        return self.kind == "model" or self.model


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file; see docs/crashtest.md for each key."""

    command: Words = ""
    new_command: Words | None = None
    name: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    files: list[str] | None = None
    setup: Words | None = None
    check: Words | None = None
    answer: str | None = None
    status: Words | None = None
    running: str = "running|in_progress|pending"
    asks_exit: list[int] = msgspec.field(default_factory=list[int])
    person: Words | None = None
    restarts: int = 3
    timeout_seconds: float | None = None
    fork: bool = False
    preload: list[str] = msgspec.field(default_factory=list[str])
    proxy: bool = False
    recording: str | None = None
    windows: list[Literal["before", "effect", "read", "recorded"]] = msgspec.field(
        default_factory=lambda: ["before", "effect", "recorded"]
    )
    rows: list[Literal["twice", "lose_reply", "late", "500_after", "pause", "deploy", "replicas"]] = msgspec.field(
        default_factory=list[Any]
    )
    replicas: int = 2
    pause_seconds: float = 3.0
    late_seconds: float = 1.0
    settle_ms: float = 100.0
    only: str | None = None
    skip: str | None = None
    clean_runs: int = 2
    ignore: list[str] = msgspec.field(default_factory=list[str])
    jobs: int = 0
    threshold: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    services: dict[str, Service] = msgspec.field(default_factory=dict[str, Service])
    variants: dict[str, Json] = msgspec.field(default_factory=dict[str, Json])
    here: str = ""

    @property
    def title(self) -> str:
        """What reports call the agent."""
        return self.name or shlex.join(words_of(self.command))


def worlds_at_once(config: Config) -> int:
    """How many worlds run at a time, unless it is said: forked agents wait for the disk of the ledger, and share it."""
    if any(service.port for service in config.services.values()):
        return 1
    return config.jobs or (os.cpu_count() or 1) * (FORKED_PER_CPU if config.fork else 1)


def words_of(command: Words | None) -> list[str]:
    """A command as a list of words."""
    if command is None:
        return []
    if isinstance(command, list):
        return command
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CrashtestError(f"the command {command!r} cannot be read: {error}; quote it, or give a list") from None


def fill(text: str, places: Mapping[str, str]) -> str:
    """A text with its `{placeholders}` filled in; a brace around anything else stays as it is."""
    return re.sub(r"\{(\w+)\}", lambda found: places.get(found[1], found[0]), text)


def load_config(path: Path, *, variant: str | None = None, changes: Json | None = None) -> Config:
    """The configuration in this file, with a variant's keys and then the command line's over it."""
    try:
        document: Json = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CrashtestError(
            f"there is no {path}; name one by --config, or write one: docs/crashtest.md has an example"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CrashtestError(f"{path} is not TOML: {error}") from None
    return make_config(document, here=path.resolve().parent, source=str(path), variant=variant, changes=changes)


def make_config(
    document: Json, *, here: Path, source: str, variant: str | None = None, changes: Json | None = None
) -> Config:
    """A configuration from plain values; relative paths in it are relative to `here`."""
    if variant is not None:
        known: Json = document.get("variants") or {}
        if variant not in known:
            raise CrashtestError(
                f"{source} has no variant {variant!r}; it has {', '.join(known) or 'none'}: add [variants.{variant}]"
            )
        document = _over(document, known[variant])
    document = {**_over(document, changes or {}), "here": str(here)}
    for key, allowed in (("windows", WINDOWS), ("rows", ROW_KINDS)):
        given = cast("list[object]", document.get(key) or [])
        if wrong := [each for each in given if each not in allowed]:
            raise CrashtestError(f"{source}: {key} are some of {', '.join(allowed)}; found {wrong[0]!r}")
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise CrashtestError(f"{source}: {error}; docs/crashtest.md lists the keys") from None
    _check(config, source)
    return config


def _over(under: Json, over: Json) -> Json:
    mixed = dict(under)
    for key, value in over.items():
        held = mixed.get(key)
        if isinstance(held, dict) and isinstance(value, dict) and key not in ("reply", "arguments"):
            mixed[key] = _over(cast("Json", held), cast("Json", value))
        else:
            mixed[key] = value
    return mixed


NEEDED = {"upstream": "url", "command": "command", "twin": "receiver"}


def _check(config: Config, source: str) -> None:
    for name, service in config.services.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("dir", "here", "python", "life", "port"):
            raise CrashtestError(f"{source}: a service cannot be called {name!r}; use a word of letters, such as shop")
        needed = NEEDED.get(service.kind)
        if needed is not None and getattr(service, needed) is None:
            raise CrashtestError(f"{source}: services.{name} is of kind {service.kind} and needs {needed} = …")
        if service.kind == "model" and not service.turns and service.planner is None:
            raise CrashtestError(
                f"{source}: services.{name} is a model and needs turns = [{{ text = … }}], or a planner"
            )
    for key in config.threshold:
        if key not in (*COUNTED, *MEASURED):
            raise CrashtestError(
                f"{source}: the threshold {key!r} is unknown; expected some of {', '.join((*COUNTED, *MEASURED))}"
            )
    for key in ("answer", "running", "only", "skip"):
        check_pattern(getattr(config, key), f"{source}: {key}")
    for text in config.ignore:
        check_pattern(text, f"{source}: ignore")
    for key, least in (("restarts", 0), ("replicas", 2), ("clean_runs", 1), ("settle_ms", 0), ("jobs", 0)):
        if getattr(config, key) < least:
            raise CrashtestError(f"{source}: {key} must be {least} or more, found {getattr(config, key)}")
    if "deploy" in config.rows and config.new_command is None:
        raise CrashtestError(f"{source}: deploy rows need the new command; give new_command, or --deploy OLD NEW")


def check_pattern(pattern: str | None, where: str) -> None:
    """Raises for what is no regular expression."""
    if pattern is None:
        return
    try:
        re.compile(pattern)
    except re.error as error:
        raise CrashtestError(f"{where}: {pattern!r} is not a regular expression: {error}") from None


def read_allowed(texts: Sequence[str]) -> dict[str, float]:
    """`duplicates=1,extra_tokens=2000` as a table."""
    allowed: dict[str, float] = {}
    for part in ",".join(texts).split(","):
        if not part.strip():
            continue
        key, found, value = part.partition("=")
        try:
            allowed[key.strip().replace("-", "_")] = float(value)
        except ValueError:
            found = ""
        if not found:
            raise CrashtestError(f"--allow expects NAME=NUMBER, such as extra_tokens=2000; found {part!r}")
    return allowed


def placeholders(config: Config) -> dict[str, str]:
    """Those that are the same in each world."""
    return {"here": config.here, "python": sys.executable}
