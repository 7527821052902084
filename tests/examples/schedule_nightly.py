"""A schedule: the clock starts a run, each occurrence once, whoever looks and however often."""

from datetime import UTC, datetime

from surefoot import Surefoot, workflow
from surefoot.core.schedule import run_id_of
from surefoot.runtime.schedules import fire_due


@workflow
def report(team: str) -> str:
    return f"report for {team}"


with Surefoot("agents.db") as sf:
    for _ in range(2):  # each start of the program says it: the same definition again changes nothing
        nightly = sf.schedule("nightly", report, "sales", cron="0 3 * * *", tz="Europe/Berlin", catch_up="last")
    print(nightly.name, nightly.when, nightly.queue, len(nightly.next))

    # A worker does this about once a second: `surefoot worker reports:sf`. Here the night is made up.
    night = nightly.next[0].timestamp() + 1
    print(fire_due(sf.engine, night), fire_due(sf.engine, night))

    (run,) = sf.list("pending")
    print(run.id == run_id_of("nightly", nightly.next[0].timestamp()), run.arguments)
    with sf.worker():
        print(sf.start(report, "sales", id=run.id, queue="default").result(30))
    assert sf.schedules()[0].last_at == nightly.next[0] and nightly.next[0] > datetime.now(UTC)
    sf.unschedule("nightly")
    print(sf.schedules())
