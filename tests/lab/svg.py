"""Reading what a diagram has drawn, for tests."""

SVG = "{http://www.w3.org/2000/svg}"


def links(root):
    return [each.get("href") for each in root.iter(f"{SVG}a")]
