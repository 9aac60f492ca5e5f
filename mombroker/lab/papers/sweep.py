"""Many points: each is run once, kept in a file under the hash of what it is a run of, and never run again.

So a sweep that was cut off goes on where it stopped: a file is written whole or not at all.
"""

import ast
import gc
import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, suppress
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import Thread
from time import monotonic, process_time
from typing import TYPE_CHECKING

import mombroker
from mombroker.core.errors import MomError
from mombroker.lab.papers.base import Paper, Params, Point, Result, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAPERS = ("overlay", "daisy", "ks", "groups", "domains")  # a module each
BESIDE = ("_claims", "papers.base", "core.errors")  # modules on which no result depends
Progress = Callable[[int, int, float], None]  # points done, points in all, seconds left (about; below 0: not known)


def load(name: str) -> Paper:
    paper: Paper = import_module(f"mombroker.lab.papers.{name}").PAPER
    return paper


def work(name: str, params: Params) -> Result:
    """One point, in any process; `cpu_s` is what it took."""
    paper, begin = load(name), process_time()
    gc.disable()  # packets are in no cycles: looking for them takes a fifth of the time
    try:
        result = paper.run(params)
    finally:
        gc.enable()
    return result | {"cpu_s": process_time() - begin}


def points(paper: Paper, figures: Sequence[str], full: bool, seeds: int, changed: Params) -> list[Point]:
    """What these figures and their claims need, each once."""
    found = (point for name in figures for point in paper.points(name, full, range(1, seeds + 1), changed))
    return list({repr(point): point for point in found}.values())


def drawn(paper: Paper, figures: Sequence[str], full: bool, changed: Params) -> set[tuple[str, str]]:
    """The curves, by figure and setting, of which chance decides the runs: two seeds are more of them than one."""
    one, two = (
        Counter((point.figure, point.setting) for point in points(paper, figures, full, seeds, changed))
        for seeds in (1, 2)
    )
    return {curve for curve, runs in two.items() if runs > one[curve]}


@cache
def code(name: str) -> str:
    """A hash of all code that decides a result: a changed core makes old results worthless. Comments decide nothing,
    claims judge results, and an exception ends a run that has none: these may change."""
    found: dict[str, str] = {}
    todo = [f"mombroker.lab.papers.{name}", *(f"mombroker.ordering.{each}" for each in load(name).backends)]
    while todo:
        module = todo.pop()
        if module not in found and not module.endswith(BESIDE):
            tree = ast.parse(_file(module).read_bytes())
            found[module] = _text(tree)
            todo += _imports(tree)
    return sha256("\0".join(found[module] for module in sorted(found)).encode()).hexdigest()


def _file(module: str) -> Path:
    path = Path(mombroker.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _text(tree: ast.Module) -> str:
    """A module without its comments and docstrings. `tree` is left without them, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _imports(tree: ast.Module) -> list[str]:
    """The modules of ours that a module imports when it is loaded."""
    named = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mombroker":
            named += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return [module for module in named if _file(module).exists()]


class Cache:
    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder / name, name

    def path(self, params: Params) -> Path:
        text = json.dumps([code(self.name), params], sort_keys=True)
        return self.folder / f"{sha256(text.encode()).hexdigest()[:32]}.json"

    def get(self, params: Params) -> Result | None:
        """None where no whole result is: then it is run anew."""
        try:
            kept = json.loads(self.path(params).read_text())
            return kept["result"] if kept["sum"] == _sum(params, kept["result"]) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, params: Params, result: Result) -> None:
        """Raises MomError if it cannot be written."""
        path = self.path(params)
        part = path.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"params": params, "result": result, "sum": _sum(params, result)}))
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            why = (error.strerror or str(error)).lower()
            raise MomError(
                f"{error.filename2 or self.folder} cannot be written: {why}; the runs before are kept"
            ) from None


def _sum(params: Params, result: Result) -> str:
    return sha256(json.dumps([params, result], sort_keys=True).encode()).hexdigest()[:16]


def missing(paper: Paper, points: Sequence[Point], cached: Cache) -> list[Params]:
    """What is still to run, each once, the costly first: so that no process is left alone at the end."""
    left = {str(cached.path(point.params)): point.params for point in points if cached.get(point.params) is None}
    return sorted(left.values(), key=paper.cost, reverse=True)


def run(
    paper: Paper,
    points: Sequence[Point],
    cached: Cache,
    processes: int = 1,
    progress: Progress = lambda done, total, left: None,
    spark: "SparkSession | None" = None,
) -> list[Row]:
    """A row for each point, in their order; whatever is not in the cache is run first, by processes of this machine or
    by the executors of Spark. Raises MomError if results cannot be kept, or are gone at the end."""
    left = missing(paper, points, cached)
    costs = [paper.cost(params) for params in left]
    total, done, begin = sum(costs), 0.0, monotonic()
    progress(0, len(left), -1.0)
    ready = _by_spark(spark, paper.name, left) if spark else _results(paper.name, left, processes)
    with closing(ready) as results:
        for number, (at, result) in enumerate(results, 1):
            cached.put(left[at], result)
            done += costs[at]
            progress(number, len(left), (monotonic() - begin) / done * (total - done))
    rows = []
    for point in points:
        found = cached.get(point.params)
        if found is None:
            gone = len(missing(paper, points, cached))
            raise MomError(f"{gone} results that {cached.folder} had are gone: the same command runs them again")
        rows.append({"figure": point.figure, "setting": point.setting, "x": point.x, **point.params, **found})
    return rows


def _results(name: str, left: Sequence[Params], processes: int) -> Generator[tuple[int, Result], None, None]:
    """(which, result), in the order in which they are ready."""
    if processes == 1 or len(left) < 2:
        for at, params in enumerate(left):
            yield at, work(name, params)
        return
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_obey) as pool:
        try:
            # Workers start here, and inherit that Ctrl-C has to wait: before `_obey` they would answer by a traceback.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                futures = {pool.submit(work, name, params): at for at, params in enumerate(left)}
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:  # also when the caller goes no further: what is under way is not waited for
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _by_spark(spark: "SparkSession", name: str, left: Sequence[Params]) -> Generator[tuple[int, Result], None, None]:
    """A task for each point; some for each core at a time, so that what is done is kept when a sweep is cut off.

    On a cluster the package must be installed where the executors are.
    """
    context = spark.sparkContext
    wave = 4 * context.defaultParallelism
    for start in range(0, len(left), wave):
        jobs = list(enumerate(left))[start : start + wave]
        tasks = context.parallelize(jobs, len(jobs))
        yield from tasks.map(partial(_task, name)).collect()


def _task(name: str, job: tuple[int, Params]) -> tuple[int, Result]:
    at, params = job
    return at, work(name, params)


def _obey() -> None:
    """Ctrl-C ends a worker without a word: its parent speaks. It does not outlive its parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers follow"
    parent.join()
    os._exit(1)
