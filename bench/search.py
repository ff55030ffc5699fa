"""How long searches take whose answers nobody keeps, asked at a steady rate."""

from urllib.parse import urlencode

from bench.load import delays, get
from bench.points import RARE, SYLLABLES
from bench.stage import verdict

# what no kind may take longer than in 95 of 100 cases, in milliseconds
MOST = 50
PER_SECOND = 12


def searches(base, points):
    """Measure every kind of search; return whether all were fast enough."""
    held = []
    for name, make in kinds(points.dice, points.words):
        # the first one finds nothing in memory
        get(base + make(), points.token)
        count = PER_SECOND * points.sizes.seconds * 5 // 4
        paths = [make() for _ in range(count)]
        p50, p95, _ = delays(points, base, paths, per_second=PER_SECOND)
        text = f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"
        held.append(verdict(name, holds=p95 <= MOST, message=text))
    return all(held)


def kinds(dice, words):
    """Yield what is asked, by name, each as a way to make up another one."""
    rare = words.all[RARE:]
    common = words.all[5:200]

    def spot():
        return f"{dice.uniform(47, 55):.5f},{dice.uniform(6, 15):.5f}"

    def mistyped():
        word = dice.choice(rare)
        at = dice.randrange(1, len(word) - 1)
        return word[:at] + dice.choice("aeioqxyz") + word[at + 1 :]

    def search(**parameters):
        return lambda: path("search", parameters)

    def suggest(begin):
        return lambda: path("suggest", {"q": begin})

    def facets(**parameters):
        return lambda: path("facets", parameters)

    yield "a rare word", search(q=lambda: dice.choice(rare))
    yield "a frequent word", search(q=lambda: dice.choice(common))
    yield "a word of 10 % of the rows", search(q="station")
    yield "two such words", search(q="station park")
    yield "rare and frequent", search(q=lambda: f"{dice.choice(rare)} station")
    yield (
        "no such row",
        search(q=lambda: f"{dice.choice(rare)} {dice.choice(rare)} park"),
    )
    yield "a beginning of two letters", search(q=lambda: dice.choice(SYLLABLES)[:2])
    yield "a beginning of four letters", search(q=lambda: dice.choice(rare)[:4])
    yield "a typo", search(q=mistyped)
    yield "a typo beside a frequent word", search(q=lambda: f"{mistyped()} station")
    yield (
        "10 % and a rare value",
        search(q="station", town=lambda: f"eq.{dice.choice(words.towns[1000:])}"),
    )
    yield (
        "10 % and a frequent value",
        search(q="station", points=lambda: f"eq.{dice.randint(0, 60)}"),
    )
    yield (
        "a rare word and most rows",
        search(q=lambda: dice.choice(rare), points="gte.1"),
    )
    yield "near", search(near=spot)
    yield "near, within 5 km", search(near=spot, within="5")
    yield "near, within 500 km", search(near=spot, within="500")
    yield "10 % near", search(near=spot, q="station")
    yield "a frequent word near", search(near=spot, q=lambda: dice.choice(common))
    yield "a rare word near", search(near=spot, q=lambda: dice.choice(rare))
    yield "near, with a value", search(near=spot, points="eq.7")
    yield "suggest by two letters", suggest(lambda: dice.choice(SYLLABLES)[:2])
    yield "suggest by four letters", suggest(lambda: dice.choice(rare)[:4])
    yield (
        "suggest beside a frequent word",
        suggest(lambda: "station " + dice.choice(rare)[:3]),
    )
    yield "facets of all rows", facets()
    yield "facets of a value", facets(country_id="eq.3")
    yield "facets of a rare value", facets(town=f"eq.{words.towns[-1]}")
    yield "facets of 10 %", facets(q="station")
    yield "facets of a rare word", facets(q=lambda: dice.choice(rare))


def path(what, parameters):
    request = {
        name: value() if callable(value) else value
        for name, value in parameters.items()
    }
    return f"/api/v1/datasets/poi/{what}?{urlencode(request)}"
