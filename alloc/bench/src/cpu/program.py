"""What many Python programs do: parse and write JSON, build dictionaries, sort, match text. The same in every run."""

import collections
import json
import re

ORDERS = 6000


def numbers(seed):
    while True:
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        yield seed >> 33


def orders(count, random):
    for number in range(count):
        yield {
            "id": number,
            "customer": "customer-%05d" % (next(random) % 2000),
            "when": "2026-%02d-%02dT%02d:00:00" % (1 + next(random) % 12, 1 + next(random) % 28, next(random) % 24),
            "lines": [
                {"article": "article %d" % (next(random) % 500), "pieces": next(random) % 9 + 1, "price": next(random) % 9999 / 100}
                for _ in range(next(random) % 5 + 1)
            ],
            "note": "deliver to door %d" % next(random) if next(random) % 3 == 0 else None,
        }


def main():
    random = numbers(1)
    text = "\n".join(json.dumps(order) for order in orders(ORDERS, random))
    parsed = [json.loads(line) for line in text.splitlines()]

    totals = collections.defaultdict(float)
    articles = collections.Counter()
    months = collections.defaultdict(lambda: collections.defaultdict(list))
    for order in parsed:
        for line in order["lines"]:
            totals[order["customer"]] += line["pieces"] * line["price"]
            articles[line["article"]] += line["pieces"]
        months[order["when"][:7]][order["customer"]].append(order["id"])
    best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:20]

    words = collections.Counter(re.findall(r"[a-z]+-?\d+|\d{4}-\d\d", text))
    renamed = re.sub(r'"article (\d+)"', lambda match: '"a%s"' % match.group(1), text)
    tree = {}
    for order in sorted(parsed, key=lambda order: (order["when"], order["id"])):
        node = tree
        for part in re.split("[-T]", order["when"][:13]):
            node = node.setdefault(part, {})
        node.setdefault("orders", []).append({**order, "lines": len(order["lines"])})
    report = json.dumps({"best": best, "tree": tree, "words": words.most_common(100)}, indent=1)
    assert len(parsed) == ORDERS and len(renamed) < len(text) and report.count('"customer"') == ORDERS


main()
