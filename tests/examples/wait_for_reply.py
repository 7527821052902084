"""A run waits for a reply and holds nothing meanwhile. A message that came early is kept; each is read once."""

import surefoot
from surefoot import Surefoot, step, workflow


@step
def ask(question: str) -> str:
    return f"asked: {question}"


@workflow
def interview() -> list[str]:
    told = [ask("Which city?"), surefoot.wait_for("reply", str)]
    try:
        told.append(surefoot.wait_for("second thoughts", str, within=0.1))
    except TimeoutError:
        told.append("no second thoughts")
    return told


with Surefoot("agents.db") as sf:
    handle = sf.start(interview, id="interview-7", queue="default")
    sf.signal("interview-7", "reply", "Oslo", message="form-3391")
    sf.signal("interview-7", "reply", "Oslo", message="form-3391")  # the form was sent twice: one message

with Surefoot("agents.db") as sf, sf.worker():
    print(sf.start(interview, id="interview-7", queue="default").result(30))
