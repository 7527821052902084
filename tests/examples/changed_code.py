"""Code that changed while a run was under way: `patched` keeps the old path for runs that began on it."""

from surefoot import Surefoot, patched, step, workflow


class PowerCut(BaseException):
    """Stands in for a crash."""


@step
def draft(topic: str) -> str:
    return f"draft on {topic}"


@step
def check(text: str) -> str:
    return f"checked {text}"


@step
def publish(text: str) -> str:
    return f"published {text}"


@workflow(name="article")
def old_article(topic: str) -> str:
    publish(draft(topic))
    raise PowerCut


def new_article(topic: str) -> str:
    text = draft(topic)
    if patched("check before publishing"):
        text = check(text)
    return publish(text)


with Surefoot("agents.db") as sf:
    try:
        sf.run(old_article, "tides", id="article-1")
    except PowerCut:
        print("the old code died")

old_article.function = new_article  # the program is deployed again, with other code under the same name
with Surefoot("agents.db") as sf:
    print(sf.run(old_article, "tides", id="article-1"))
    print(sf.run(old_article, "ice", id="article-2"))
