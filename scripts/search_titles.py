"""
Let searches of the site find the guide before the reference: change the reference's titles in the index of the search.

The search weighs titles most. If two titles have the words of a search, the one that has them nearer to its beginning
comes first. The reference has pages and headings such as Testing and `explain`, as the guide has. In the index, they
become "Reference: Testing" and "Reference: Query.explain", so the results also show whose method it is.
"""

import json
from typing import Any

from scripts.docs_pages import ROOT

INDEX = ROOT / "site" / "search.json"


def main() -> None:
    """Change the titles in the index of the site that was built."""
    index = json.loads(INDEX.read_text(encoding="utf-8"))
    for item in index["items"]:
        if item["location"].startswith("reference/"):
            retitle(item)
    INDEX.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def retitle(item: dict[str, Any]) -> None:
    """Give a page or a name of the reference its title among the results."""
    name = item["location"].partition("#")[2]
    if name.startswith("tableorm"):
        owner, last = name.split(".")[-2:]
        item["title"] = f"{owner}.{last}" if owner[0].isupper() else last
        # So that the whole name is found too, with its module.
        item["text"] = f"<p><code>{name}</code></p> {item['text']}"
    item["title"] = f"Reference: {item['title']}"


if __name__ == "__main__":
    main()
