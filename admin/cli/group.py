"""A group of commands, as all of `mom` are."""

from typing import Any

import click

from mombroker.core.topology import listed, suggestion


class Group(click.Group):
    """A name that it has not is refused with the nearest that it has, else with all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"there is no command `{ctx.command_path} {name}`: {self.hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def hint(self, ctx: click.Context, name: str) -> str:
        names = self.list_commands(ctx)
        return suggestion(name, names) or f"there are {listed(names, 99)}"


class DefaultGroup(Group):
    """What begins with no name of its commands is of its command `default`."""

    def __init__(self, *args: Any, default: str, **named: Any):
        super().__init__(*args, **named)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
