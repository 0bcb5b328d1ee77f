"""Writes the fixture graphs: python export.py FAMILY [FIXTURE...] (see --help)."""

import argparse
import importlib
import os
import sys

FAMILIES = ("optimum", "dynamo18", "dynamo23", "ortopt", "mha", "genai", "families", "encoders")


def main():
    # Merging and fusing iterate over sets of names: fix their order.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES, help="which exporter")
    parser.add_argument("fixture", nargs="*", help="which fixtures; all when none is named")
    parser.add_argument("--full", action="store_true", help="the full-size subjects instead of the tiny ones")
    arguments = parser.parse_args()
    family = arguments.family
    module = importlib.import_module(("dynamo" if family.startswith("dynamo") else family) + "_export")
    options = {"full": True} if arguments.full else {}
    if family.startswith("dynamo"):
        options["opset"] = int(family.removeprefix("dynamo"))
    if arguments.full and not hasattr(module, "FULL"):
        parser.error(f"{family} has no full-size subject: optimum, mha and encoders have")
    if not arguments.full and not hasattr(module, "TINY"):
        parser.error(f"{family} has full-size subjects only: --full")
    fixtures = arguments.fixture or list(module.FULL if arguments.full else module.TINY)
    for fixture in fixtures:
        module.run(fixture, **options)


if __name__ == "__main__":
    main()
