"""All servers of a topology file as processes of this machine, forked from one loaded parent and kept running.

A process that was killed or crashed is started again, with growing pauses. One that refused to start (exit code 1) or
that can no longer write its store (3, as on a full disk) is not: only a person can mend that.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mombroker.core.errors import MomError, StoreFailed
from mombroker.net import hangup
from mombroker.net.exit_codes import ExitCode
from mombroker.store import folder as folders

LOCK = "up.lock"  # in a data folder: held by the supervisor of its server, with its process id inside
ORDER = "up.order"  # in a data folder: what the supervisor is to do with its server, read at SIGUSR1
START, STOP, RESTART = "start", "stop", "restart"
LOG = "log.txt"
GAVE_UP = "is not started again"  # in the log of a server that only a person can mend
FIRST_PAUSE, LAST_PAUSE = 0.2, 30.0
STEADY = 10.0  # a server that ran for so many times its last pause starts again with the first one
GRACE = 30.0  # for a server to stop in
LOOK = 0.5  # between two looks whether it is over
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
NEVER = float("inf")
REACTOR = "twisted.internet.reactor"


class Watcher(Protocol):
    """Who is told of what happens."""

    def started(self, server: str, pid: int) -> None: ...
    def ended(self, server: str, text: str, again: bool) -> None: ...
    def tick(self) -> float: ...  # called after every event; returns the seconds until it wants to be called again


class Nobody:
    """Is told when a watcher has failed."""

    def started(self, server: str, pid: int) -> None: ...
    def ended(self, server: str, text: str, again: bool) -> None: ...

    def tick(self) -> float:
        return NEVER


@dataclass(slots=True)
class Child:
    name: str
    folder: Path
    pid: int = 0  # 0: not running
    started: float = 0.0
    due: float = 0.0  # when to start it
    pause: float = 0.0  # before its last start
    code: int = 0  # of its last end
    asked: float = 0.0  # when it was told to stop, by an order


def given_up(said: str, children: list[Child]) -> MomError:
    """Why children have ended before their watcher wanted it. Of one that is not started again, which `said` begins
    with, the end of its log: folders of storms go. Else somebody has stopped us, as `timeout` does or Ctrl-C."""
    if GAVE_UP not in said:
        return MomError("stopped by a signal before it was over: nothing is judged")
    logs = [child.folder / LOG for child in children if child.name == said.partition(" ")[0]]
    ends = [log.read_text(errors="replace").splitlines()[-20:] for log in logs if log.exists()]
    return MomError("\n  ".join([f"{said}; its log ends so:", *(line for end in ends for line in end)]))


@dataclass(slots=True)
class Supervisor:
    """Starts the servers, and again, until it gets SIGTERM, SIGINT or SIGHUP, or none is left. If anything raises, it
    stops them first: none outlives `run`.

    serve    runs one server in a forked child and returns its exit code
    private  open files that the children must not keep: our locks, and what the caller adds
    reloads  SIGHUP is passed on, for the servers to read their settings anew; else it is an end, as of our terminal
    """

    children: list[Child]
    serve: Callable[[str], int]
    watcher: Watcher
    private: list[int] = field(default_factory=list)
    reloads: bool = False
    stopping: float = 0.0  # when SIGTERM was passed on

    def run(self) -> int:
        """The exit code: 0 after an orderly stop, else the worst of the servers that ended by themselves."""
        if REACTOR in sys.modules:  # whatever one child waits for would be told to another, which has that number too
            raise RuntimeError(f"{REACTOR} is imported before the servers are forked: all would share its epoll")
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        locks: list[int] = []
        try:
            for child in self.children:
                locks.append(hold(child.folder))
                _taken(child.folder)  # by a supervisor that was killed before it could
            self.private += locks
            gc.collect()
            gc.freeze()  # the children share these pages as long as nobody counts references in them
            try:
                self._work()
            except BaseException:
                self.watcher = Nobody()  # it may be what has raised
                if not self.stopping:
                    self._stop(time.monotonic())
                self._work()
                raise
        finally:
            for lock in locks:
                os.close(lock)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return max((child.code for child in self.children), default=0)

    def _work(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """One round: start what is due, wait for a signal, see who ended. False when nothing is left to do."""
        now = time.monotonic()
        for child in self.children:
            if not child.pid and child.due <= now and not self.stopping:
                self._start(child, now)
        dues = [child.due - now for child in self.children if not child.pid and not self.stopping]
        if self.stopping or any(child.asked for child in self.children):
            dues.append(LOOK)
        wait = min([self.watcher.tick(), *dues])
        caught = signal.sigtimedwait(SIGNALS, min(max(wait, 0.0), 3600.0))
        if caught and caught.si_signo == signal.SIGHUP and self.reloads:
            self._signal(signal.SIGHUP)
        elif caught and caught.si_signo == signal.SIGUSR1:
            self._obey(time.monotonic())
        elif caught and caught.si_signo != signal.SIGCHLD:
            self._stop(time.monotonic())
        elif self.stopping and time.monotonic() - self.stopping > GRACE:
            self._signal(signal.SIGKILL)
        for child in self.children:
            if child.pid and child.asked and time.monotonic() - child.asked > GRACE:
                os.kill(child.pid, signal.SIGKILL)
        self._reap(time.monotonic())
        return any(child.pid or (child.due < NEVER and not self.stopping) for child in self.children)

    def _start(self, child: Child, now: float) -> None:
        if not (child.folder / LOCK).exists():  # somebody has removed the folder
            with suppress(OSError, MomError):
                self.private.append(hold(child.folder))
        child.pid = os.fork()
        if not child.pid:
            self._become(child)
        child.started = now
        self.watcher.started(child.name, child.pid)

    def _become(self, child: Child) -> None:
        """In the child: run the server; never returns into what the parent was doing."""
        code: int = ExitCode.CRASHED
        try:
            os.setsid()  # Ctrl-C at the terminal is for the supervisor, who passes on an orderly stop
            for file in self.private:
                os.close(file)
            log = os.open(child.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for each in SIGNALS:
                signal.signal(each, signal.SIG_DFL)
            hangup.hold()  # until the server can read its settings anew at it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, set(SIGNALS) - hangup.HANGUP)
            code = self.serve(child.name)
        except (MomError, StoreFailed) as error:
            code = ExitCode.REFUSED if isinstance(error, MomError) else ExitCode.UNWRITABLE
            print(error, file=sys.stderr)  # which may fail, since the log lies on the same disk
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)  # even if the log cannot be written

    def _obey(self, now: float) -> None:
        """Carry out the orders that lie in the data folders."""
        for child in self.children:
            order = _taken(child.folder)
            if order in (START, RESTART):
                child.due, child.pause = now, 0.0
            elif order == STOP:
                child.due = NEVER
            if order in (STOP, RESTART) and child.pid:
                child.asked = now
                os.kill(child.pid, signal.SIGTERM)
            if order == STOP and (beside := folders.holder(child.folder / folders.LOCK)) not in (0, child.pid):
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(beside, signal.SIGTERM)  # of `mom serve`

    def _stop(self, now: float) -> None:
        """Pass on SIGTERM; at the second time do not wait any more."""
        self._signal(signal.SIGKILL if self.stopping else signal.SIGTERM)
        self.stopping = self.stopping or now

    def _signal(self, number: signal.Signals) -> None:
        for child in self.children:
            if child.pid:
                os.kill(child.pid, number)

    def _reap(self, now: float) -> None:
        for child in self.children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.pid = 0
                self._ended(child, os.waitstatus_to_exitcode(status), now)

    def _ended(self, child: Child, code: int, now: float) -> None:
        if self.stopping:
            child.code = max(code, 0)
            self.watcher.ended(child.name, "stopped" if code == 0 else how(code), False)
            return
        if child.asked:
            child.asked, child.code = 0.0, max(code, 0)
            self.watcher.ended(child.name, "stopped" if code == 0 else how(code), child.due < NEVER)
            return
        again = code not in (0, 1, 3)
        if again:
            last = 0.0 if now - child.started > STEADY * child.pause else child.pause
            child.pause = min(max(2 * last, FIRST_PAUSE), LAST_PAUSE)
            child.due = now + child.pause
        else:
            child.due, child.code = NEVER, code
        text = f"{how(code)} and {f'starts again in {child.pause:.1f} s' if again else GAVE_UP}"
        reason = last_line(child.folder / LOG)
        with suppress(OSError), (child.folder / LOG).open("a") as log:  # somebody may have removed the folder
            print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), child.name, text, file=log)
        self.watcher.ended(child.name, f"{text}: {reason}" if reason else text, again)


def how(code: int) -> str:
    """What an exit code (negative: a signal) means."""
    match code:
        case ExitCode.DONE:
            return "has ended"
        case ExitCode.REFUSED:
            return "refused to start"
        case ExitCode.UNWRITABLE:
            return "cannot go on"
        case _ if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        case _:
            return f"ended with exit code {code}"


def order(folder: Path, text: str) -> bool:
    """Tell the supervisor of a data folder to start, stop or restart its server; False if there is none. Raises
    MomError if the folder takes no file."""
    pid = folders.holder(folder / LOCK)
    if not pid:
        return False
    draft = folder / f"{ORDER}.{os.getpid()}"
    try:
        draft.write_text(text)
        draft.rename(folder / ORDER)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        why = (error.strerror or str(error)).lower()
        raise MomError(f"{folder} takes no file, so its server is not told to {text}: {why}; make room there") from None
    os.kill(pid, signal.SIGUSR1)
    return True


def _taken(folder: Path) -> str:
    """The order that lies in a data folder, which is carried out once."""
    try:
        text = (folder / ORDER).read_text()
        (folder / ORDER).unlink()
    except OSError:
        return ""
    return text


def last_line(log: Path, before: int = 0) -> str:
    """The last line of a log, or that so many lines before it; empty if there is none."""
    if not log.exists():
        return ""  # it was killed before it could open it
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read().decode(errors="replace").rstrip().split("\n")
    return lines[-1 - before] if len(lines) > before else ""


def hold(folder: Path) -> int:
    """Take the supervisor's lock of a data folder; the open file holds it. Raises MomError if another has it."""
    try:
        return folders.locked(folders.make(folder) / LOCK)
    except BlockingIOError as error:
        raise MomError(
            f"process {error} looks after the server in {folder} already: stop it by `mom down`, or start one that has "
            "ended by `mom server start NAME`"
        ) from None
