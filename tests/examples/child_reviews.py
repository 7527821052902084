"""Children: a run starts other runs, waits for them as for anything, and finds them finished after a crash."""

import surefoot
from surefoot import Surefoot, step, workflow


@step
def read(partner: str) -> int:
    print("reading", partner)
    return len(partner)


@step
def publish(report: list[int]) -> None:
    print("publishing", report)
    if not crashed:
        crashed.append(True)
        raise KeyboardInterrupt


@workflow
def review(partner: str) -> int:
    return read(partner)


@workflow
def review_all(partners: list[str]) -> int:
    children = [surefoot.start_child(review, partner) for partner in partners]
    scores = sorted(child.result() for child in children)
    publish(scores)
    return sum(scores) + surefoot.call(review, "our own")


crashed: list[bool] = []
with Surefoot("agents.db") as sf:
    try:
        sf.run(review_all, ["acme"], id="monday")
    except KeyboardInterrupt:
        print("it died")
    print(sf.run(review_all, ["acme"], id="monday"))
    print(sorted(run.id for run in sf.list("succeeded")))
