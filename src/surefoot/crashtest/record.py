"""Runs the agent once against the real services, and keeps what they answered."""

from __future__ import annotations

import os
from pathlib import Path

from .config import Config
from .errors import CrashtestError
from .matrix import complain, open_bench
from .proxy import proxy_of
from .rows import CLEAN
from .services.opening import opener_of
from .services.recording import Exchange, write_recording
from .supervise import Bench, run_row


def record_once(config: Config, out: Path) -> list[Exchange]:
    """One clean run; the file is whole when this returns, or as it was before."""
    real = [name for name, service in config.services.items() if service.kind == "upstream"]
    if not real:
        raise CrashtestError(
            'there is nothing to record: give the real services kind = "upstream" and their url, such as '
            "https://api.example.com"
        )
    kept: list[Exchange] = []
    with proxy_of(config) as proxied, open_bench(config, proxied=proxied) as made:
        bench = Bench(
            config=config,
            opener=opener_of(config, kept=kept),
            starter=made.starter,
            folder=made.folder,
            files=made.files,
            timeout_seconds=made.timeout_seconds,
            proxied=proxied,
        )
        seen, _ = run_row(bench, CLEAN, watch_foreign=True)
        complain(seen, config)
    if not kept:
        raise CrashtestError(f"the agent called none of {', '.join(real)}, so there is nothing to record")
    write_recording(out, kept)
    os.chmod(out, 0o600)  # bodies may hold what is nobody else's business
    return kept
