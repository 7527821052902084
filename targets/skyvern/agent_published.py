"""Orders through Skyvern: start a task, wait for its end. Started again, it starts a task again."""

from __future__ import annotations

from api import submit, wait

if __name__ == "__main__":
    said = wait(submit())
    print(f"SAID {said}")
    raise SystemExit(said != "completed")
