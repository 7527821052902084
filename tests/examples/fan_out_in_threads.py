"""The same in a plain `def` workflow: the branches run in threads that know their run."""

import surefoot
from surefoot import Surefoot, step, workflow


@step
def price(shop: str) -> int:
    return {"north": 12, "south": 9, "west": 15}[shop]


@workflow
def cheapest() -> str:
    north, south = surefoot.gather(lambda: price("north"), lambda: price("south"))
    (west,) = surefoot.map(price, ["west"])
    prices = {"north": north, "south": south, "west": west}
    return min(prices, key=lambda shop: prices[shop])


with Surefoot("agents.db") as sf:
    print(sf.run(cheapest, id="prices-today"))
