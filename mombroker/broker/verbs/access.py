"""What operators may ask about users, roles and permissions. The registry decides each change, and tells all servers:
whoever knows of one can rely on it wherever a later message arrives."""

from __future__ import annotations

from typing import Any

from mombroker.broker.access.guard import Access
from mombroker.broker.access.permission import ACTIONS, check_destination, check_name, permission
from mombroker.broker.access.users import limits_of
from mombroker.core.errors import MomError
from mombroker.core.requests import Reply, changes, reads
from mombroker.core.topology import listed


class UserVerbs:
    def __init__(self, access: Access):
        self.table = access.users

    @reads
    def users(self) -> Reply:
        """The users that clients log in as, with roles and limits."""
        rows: list[Reply] = [{"user": name, "roles": [], "limits": {}} for name in self.table.former]
        for name, user in self.table.known.items():
            _, roles, limits = user.row()
            rows.append({"user": name, "roles": roles, "limits": limits})
        return {"users": sorted(rows, key=lambda row: str(row["user"]))}

    @changes
    def set_user(self, ticket: int, user: str, hash: str = "", new: bool = False) -> None:
        """Add a user with the hash of a passcode if it is `new`; else change that, which ends its connections. Without
        a hash it logs in by a certificate alone."""
        check_name("user", user)
        self.table.change("add" if new else "passcode", user, hash, ticket)

    @changes
    def renew_user(self, ticket: int, user: str, hash: str, was: str) -> None:
        """Store another hash of the same passcode, if it was not changed since."""
        self.table.change("renew", user, [was, hash], ticket)

    @changes
    def delete_user(self, ticket: int, user: str) -> None:
        """Delete a user; its connections are closed."""
        check_name("user", user)
        self.table.change("delete", user, None, ticket)

    @changes
    def set_roles(self, ticket: int, user: str, grant: list[str] = [], revoke: list[str] = []) -> None:  # noqa: B006
        """Give roles to a user, or take them."""
        check_name("user", user)
        for role in [*grant, *revoke]:
            check_name("role", role)
        if not grant and not revoke:
            raise MomError("which role? Name one to grant or to revoke")
        self.table.change("roles", user, {"grant": grant, "revoke": revoke}, ticket)

    @changes
    def limit_user(self, ticket: int, user: str, limits: dict[str, Any]) -> None:
        """Set limits of a user, on each server by itself; 0 is none, and what is not named stays."""
        check_name("user", user)
        limits_of(limits)
        self.table.change("limits", user, limits, ticket)


class PermissionVerbs:
    def __init__(self, access: Access):
        self.access, self.table = access, access.permissions

    @reads
    def permissions(self) -> Reply:
        """The permissions in force. Without any, every user may do everything."""
        rows = [{"from": "mom permission set", **each.values()} for each in self.table.set.values()]
        rows += [{"from": "topology file", **each.values()} for each in self.table.declared]
        return {"guarded": self.access.guarded, "permissions": rows}

    @reads
    def may(self, action: str, destination: str, user: str = "") -> Reply:
        """Whether a user, or somebody who is anonymous, may do something, and the permissions that say so."""
        if action not in ACTIONS:
            raise MomError(
                f"{ascii(action)[:64]} is nothing that a permission is about: ask for one of {listed(ACTIONS)}"
            )
        check_destination(destination)
        known = self.access.users.known.get(user)
        those = self.table.of(user, known.roles if known else ())
        return {
            "may": self.access.may(user, action, destination), "guarded": self.access.guarded,
            "permissions": [each.values() for each in those if action in each.may + each.deny],
        }  # fmt: skip

    @changes
    def set_permission(
        self,
        ticket: int,
        match: str,
        user: str = "",
        role: str = "",
        may: list[str] = [],  # noqa: B006
        deny: list[str] = [],  # noqa: B006
    ) -> None:
        """Set what a user or a role may do where a pattern matches, in place of a former permission of the same."""
        made = permission({"match": match, "user": user, "role": role, "may": may, "deny": deny})
        self.table.change(made, False, False, ticket)

    @changes
    def delete_permission(self, ticket: int, match: str, user: str = "", role: str = "", open: bool = False) -> None:
        """Delete a permission that was set at run time; the last one only if the bus is to be `open` to all."""
        made = permission({"match": match, "user": user, "role": role, "may": ACTIONS})
        self.table.change(made, True, open, ticket)
