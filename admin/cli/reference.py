"""What is made from the code itself: docs/cli.md, docs/topology.md, docs/tables.md, docs/invariants.md
and etc/completion/.

`python -m mombroker.admin.cli.reference` in a checkout writes them anew.
"""

from pathlib import Path

import click

from mombroker.admin.cli import completion, invariants, main, tables_reference, topology_reference

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = """# mom: the command line

Made from the commands' own help by `python -m mombroker.admin.cli.reference`; do not edit.

Every command takes its topology file from `--file`, or from its argument (where it has others, a first one that ends
in .toml is the file), else from `$MOM_FILE`, else it is `mombroker.toml` in the current folder. What talks to a running
server reads the token in that server's data folder, so run it as the same user and on the same machine. Tables have no
borders where the output is not a terminal; in one they fit its width, and columns without room are named. `-o json`
prints the same values, `-c a,b` chooses among them. Times are UTC in tables, and numbers in JSON.
"""


def files() -> dict[Path, str]:
    """Every file that is made from the code, with its content."""
    docs = ROOT / "docs"
    made = {
        docs / "cli.md": "\n".join([HEAD, *map(_section, main.commands())]),
        docs / "topology.md": topology_reference.document(),
        docs / "tables.md": tables_reference.document(),
        docs / "invariants.md": invariants.document(ROOT),
    }
    for shell in completion.SHELLS:
        made[ROOT / "etc" / "completion" / f"mom.{shell}"] = completion.script(shell)
    return made


def _section(named: tuple[str, click.Command]) -> str:
    name, command = named
    names = ["-h", "--help"]
    ctx = click.Context(command, info_name=name, terminal_width=100, max_content_width=100, help_option_names=names)
    return f"{'#' * min(len(name.split()) + 1, 3)} {name}\n\n```\n{command.get_help(ctx)}\n```\n"


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
