"""`mom completion`: what a shell needs to complete commands, options and names."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    from mombroker.admin.cli.main import cli

    found = get_completion_class(shell)
    assert found, f"click knows no completion for {shell}"
    return found(cli, {}, "mom", "_MOM_COMPLETE").source().strip() + "\n"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options, servers and queues.

    Servers are those of the topology file; queues are those of a bus that runs.

    \b
    Example:
      mom completion bash > ~/.local/share/bash-completion/completions/mom
      mom completion zsh > ~/.zfunc/_mom       # a folder of $fpath
      mom completion fish > ~/.config/fish/completions/mom.fish
    """
    click.echo(script(shell), nl=False)
