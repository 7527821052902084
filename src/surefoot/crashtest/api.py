"""The same test from Python: `crash(...)` runs it, and a `Report` says what must hold."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .config import DEFAULT_FILE, Words, load_config, make_config, words_of, worlds_at_once
from .judge import Verdict
from .matrix import Result, run_matrix
from .proxy import proxy_of
from .rows import parse_row
from .words import command_of, headline, sentence


class Report:
    """What a test found. Each assertion fails first for rows that prove nothing, such as one without its kill.

    A row that could not be reached is warned about.
    """

    def __init__(self, result: Result, options: Sequence[str] = (), command: Sequence[str] = ()) -> None:
        """Made by `crash` and by the fixture; `options` and `command` are what the command line would need."""
        self.result, self._options, self._command = result, options, command

    @property
    def headline(self) -> str:
        """Everything in one sentence."""
        return headline(self.result)

    @property
    def kills(self) -> int:
        """Kills that were proved by an exit signal."""
        return sum(verdict.kills for verdict in self.result.verdicts)

    @property
    def rows(self) -> list[Verdict]:
        """Every row, judged."""
        return self.result.verdicts

    def assert_no_duplicates(self) -> None:
        """Nothing was done more often than in the clean run."""
        self._none("duplicates")

    def assert_nothing_lost(self) -> None:
        """Nothing was done less often, unless the agent asks a person."""
        self._none("lost")

    def assert_right_content(self) -> None:
        """What was done was done with the content (amounts) of the clean run."""
        self._none("wrong")

    def assert_right_answer(self) -> None:
        """The check command and the answer pattern were satisfied."""
        self._none("wrong_answer")

    def assert_never_stranded(self) -> None:
        """It never hung, was given up, or left work that says it runs."""
        self._none("stranded", "gave_up")

    def assert_never_asks(self) -> None:
        """It never needed a person."""
        self._none("asks")

    def assert_all_reached(self) -> None:
        """No agent had ended by itself before its kill came."""
        self._none("unreached")

    def assert_extra_model_calls(self, most: int) -> None:
        """No row paid for more model calls again than this."""
        self._check_faults()
        worst = max(self.result.verdicts, key=lambda v: v.extra_model_calls)
        if worst.extra_model_calls > most:
            raise AssertionError(
                f"{sentence(worst)}; it paid for {worst.extra_model_calls} model calls again, of {most}"
            )

    def assert_unharmed(self) -> None:
        """All of it: every row came out as if nothing had been done to the agent."""
        self._none("duplicates", "lost", "wrong", "wrong_answer", "stranded", "gave_up", "says_success")

    def _none(self, *names: str) -> None:
        __tracebackhide__ = True
        self._check_faults()
        for name in names:
            bad = [v for v in self.result.verdicts if getattr(v, name)]
            if bad:
                request = "".join(f"\n    {line}" for line in bad[0].request.splitlines()[:8])
                raise AssertionError(
                    f"{len(bad)} of {len(self.result.verdicts)} rows: {name}. {sentence(bad[0])}. "
                    f"The request:{request}\n"
                    f"again: {command_of(bad[0].row, self._options, self._command)}"
                )

    def _check_faults(self) -> None:
        if self.result.faults or len(self.result.unreached) == len(self.result.verdicts):
            raise AssertionError(self.headline)
        for verdict in self.result.unreached:
            warnings.warn(sentence(verdict), stacklevel=4)


def crash(
    command: Words | None = None,
    *,
    here: Path | str = ".",
    config: Path | str | None = None,
    variant: str | None = None,
    row: str | None = None,
    disarmed: bool = False,
    **keys: Any,
) -> Report:
    """Crash-test a command. `config` is a file; else `crashtest.toml` in `here` if there is one; `keys` go over it.

    Raises CrashtestError when the agent cannot be tested: it does not start, asks for nothing, differs from run to run.
    """
    folder = Path(here).resolve()
    changes: dict[str, Any] = {**keys, **({} if command is None else {"command": command})}
    file = Path(config) if config is not None else folder / DEFAULT_FILE
    if config is not None or file.exists():
        loaded = load_config(file if file.is_absolute() else folder / file, variant=variant, changes=changes)
    else:
        loaded = make_config(changes, here=folder, source="the call", variant=variant)
    with proxy_of(loaded) as proxied:
        only_row = None if row is None else parse_row(row)
        result = run_matrix(loaded, only_row=only_row, proxied=proxied, disarmed=disarmed, jobs=worlds_at_once(loaded))
    options = [] if config is None else ["--config", str(file if file.is_absolute() else folder / file)]
    options += [] if variant is None else ["--variant", variant]
    return Report(result, options, words_of(command))
