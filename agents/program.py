"""The code that a server may run: classes and functions by `module:Name`, within what the topology file allows."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from mombroker.agents import annotations as hints
from mombroker.agents import notifications as notes
from mombroker.agents.agent import VERSION, Agent, initial
from mombroker.agents.declaring import NAMES
from mombroker.agents.tables import key_of
from mombroker.core.destinations import Source
from mombroker.core.errors import MomError, NoProgram, line, sentence, short
from mombroker.core.reaction import Retry
from mombroker.core.topology import Topology


class Program:
    """`allow` are the module prefixes of classes that may come over the wire; `declared` the topology file's own."""

    def __init__(self, allow: tuple[str, ...], declared: frozenset[str]):
        self.permit(allow, declared)
        self._classes: dict[str, type[Agent]] = {}

    def permit(self, allow: tuple[str, ...], declared: frozenset[str]) -> None:
        self.allow, self.declared = allow, declared

    def load(self, path: str, agent: str, state: bytes, server: str) -> Agent:
        try:
            cls = self.find(path)
        except MomError as error:
            raise NoProgram(path, str(error).removeprefix(f"{path} ")) from error
        if not state:
            why = f"does not take the fields that the topology file gives {agent}: see `mom topology validate`"
            raise NoProgram(path, why)
        try:
            lacking = cls.lacks(state)
        except BaseException as error:  # of its `migrate`
            raise NoProgram(path, str(error) if isinstance(error, MomError) else f"fails: {sentence(error)}") from error
        if lacking:
            what = ", ".join(lacking)
            raise NoProgram(path, f"has fields that the state of {agent} lacks: give a default to {what}")
        try:
            return cls(agent, state, server)
        except BaseException as error:  # of its on_load, or of a state that no longer fits
            raise MomError(f"{agent} cannot be loaded: {sentence(error)}") from error

    def find(self, path: str) -> type[Agent]:
        cls = self._classes.get(path)
        if cls is None:
            cls = self._named(path)
            if not (isinstance(cls, type) and issubclass(cls, Agent)):
                raise MomError(f"{path} is not an Agent class")
            self._classes[path] = cls
        return cls

    def _named(self, path: str) -> Any:
        """The class of this path, or one that has it as an alias, perhaps in a module that was not imported yet."""
        if path in NAMES:
            return NAMES[path]
        try:
            return _named(path)
        except MomError:
            for module in (*(each.partition(":")[0] for each in sorted(self.declared)), *self.allow):
                with contextlib.suppress(
                    BaseException
                ):  # a module may raise anything, an exit too; who needs it is told
                    importlib.import_module(module)
                if path in NAMES:
                    return NAMES[path]
            raise

    def allowed(self, path: str, remote: bool) -> None:
        module = path.partition(":")[0] if path not in NAMES else NAMES[path].__module__
        if remote and path not in self.declared and not self._within(module):
            what = f"{short(path)} may not be deployed here"
            raise MomError(f"{what}: add {module!r} to allow in [bus] of the topology file")
        self.find(path)

    def retry(self, path: str) -> Retry:
        return self.find(path)._retry

    def refuses(self, path: str, error: BaseException) -> bool:
        return isinstance(error, self.find(path)._fatal)

    def sources(self, path: str) -> tuple[Source, ...]:
        return self.find(path)._sources

    def run(self, path: str, arguments: bytes) -> bytes:
        return notes.pack(_named(path)(*notes.unpack(arguments)), f"result of {path}")

    def initial(self, path: str, fields: dict[str, Any]) -> bytes:
        cls = self.find(path)
        try:
            return initial(cls, hints.typed(cls, fields, path))
        except TypeError as error:
            raise MomError(str(error)) from None

    def notice(self, kind: str, **fields: Any) -> tuple[str, bytes]:
        return notes.encode(notes.NOTICES[kind](**fields))

    def compose(self, type: str, fields: dict[str, Any]) -> bytes:
        module = type.rpartition(".")[0]
        if type not in notes.TYPES and self._within(module):
            try:
                importlib.import_module(module)
            except (ImportError, ValueError):
                pass  # an unknown type is refused below
            except BaseException as error:  # a module may raise anything, an exit too
                raise MomError(f"{module} cannot be imported: {sentence(error)}") from error
        return notes.compose(type, fields)

    def _within(self, module: str) -> bool:
        """True if the module may be imported for somebody outside."""
        return any(module == prefix or module.startswith(prefix + ".") for prefix in self.allow)

    def read(self, type: str, payload: bytes) -> dict[str, Any]:
        try:
            note = notes.decode(type, payload)
        except MomError:
            return {"packed": payload}
        return {name: getattr(note, name) for name in note.__wire_fields__}

    def describe(self, path: str, state: bytes) -> dict[str, Any]:
        values: dict[str, Any] = notes.unpack(state) if state else {}
        values.pop(VERSION, None)
        return values

    def collections(self, path: str) -> tuple[str, ...]:
        try:
            return self.find(path)._items
        except MomError:  # it cannot be imported: `status` says so
            return ()

    def tables(self, path: str) -> tuple[str, ...]:
        try:
            return self.find(path)._tables
        except MomError:
            return ()

    def key(self, text: str) -> Any:
        return key_of(text)

    def value(self, body: bytes) -> Any:
        return notes.unpack(body)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise MomError(f"{path} cannot be imported: {error}") from None
    except BaseException as error:  # a module may raise anything, an exit too
        raise MomError(f"{path} cannot be imported: {sentence(error)}") from error


def program(topology: Topology) -> Program:
    """The program of a topology's servers."""
    return Program(topology.allow, frozenset(agent.cls for agent in topology.agents))


def faults(topology: Topology) -> list[str]:
    """A sentence for each declared agent that cannot be made here: its server starts, and what is for it waits."""
    made, found = program(topology), []
    for agent in topology.agents:
        try:
            made.initial(agent.cls, agent.fields)
        except MomError as error:
            found.append(f"agent {agent.name} of {agent.server} cannot be made: {line(str(error))}")
    return found
