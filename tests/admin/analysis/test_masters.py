"""The same analysis gives the same figures wherever Spark runs. Minutes, and JVMs of its own."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from mombroker.lab.communities import communities
from mombroker.lab.recording import mixed, paced, record
from mombroker.net import config
from tests.admin.analysis.conftest import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.usefixtures("quick")]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def quick(java):
    """Every JVM, those of master, worker and executors among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    from mombroker.admin.analysis import export, stores

    folder = tmp_path_factory.mktemp("recorded")
    traffic = communities(1, 12)
    topology = mixed(traffic, ("matrix", "ks", "daisy", "rst"))
    record(topology, paced(traffic.sends(1000), 4000), folder / "bus")
    (folder / "bus.toml").write_text(config.dumps(topology))
    list(export.export(stores.read(folder / "bus"), folder / "exported"))
    return folder


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=220, **more)
    assert done.returncode == 0 and " ERROR " not in done.stderr, done.stderr[-5000:]
    return done.stdout


def mom(*args):
    return json.loads(run(sys.executable, "-m", "mombroker.admin.cli.main", *args, "-o", "json", cwd=ROOT))


@pytest.fixture(scope="module")
def here(quick, recorded):
    return analyzed(recorded, "local[2]")


def analyzed(folder, master):
    return mom("analyze", folder / "exported", "--file", folder / "bus.toml", "--master", master)


@pytest.fixture(scope="module")
def standalone(quick, tmp_path_factory):
    """The URL of a master with one worker, on this machine."""
    import pyspark

    folder = tmp_path_factory.mktemp("standalone")
    port = free_port()
    url, launch = f"spark://127.0.0.1:{port}", Path(pyspark.__file__).parent / "bin" / "spark-class"
    master = "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"
    worker = (
        "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "2g",
        "--webui-port", "0", "--work-dir", folder / "work", url,
    )  # fmt: skip
    with started(folder / "master.log", "Starting Spark master at", launch, *master):
        with started(folder / "worker.log", "Successfully registered with master", launch, *worker):
            yield url


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def started(log, ready, *command):
    """A process, once its log says that it is ready."""
    env = {name: text for name, text in os.environ.items() if name != "SPARK_CONF_DIR"}  # that of this session is quiet
    with log.open("w") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, env=env)
    try:
        deadline = time.monotonic() + 120
        while ready not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-5000:]
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def test_two_executors_give_the_figures_of_one_process(recorded, here):
    assert analyzed(recorded, "local-cluster[2,1,1024]") == here


def test_a_standalone_master_with_a_worker_gives_them_too(recorded, here, standalone):
    assert analyzed(recorded, standalone) == here


def test_a_server_of_spark_connect_gives_them_too(recorded, here, tmp_path):
    pytest.importorskip("grpc", reason="this needs pyspark[connect]")
    import pyspark

    port = free_port()
    server = (
        Path(pyspark.__file__).parent / "bin" / "spark-submit", "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "spark-internal",
    )  # fmt: skip
    with started(tmp_path / "connect.log", "Spark Connect server started", *server):
        assert analyzed(recorded, f"sc://127.0.0.1:{port}") == here


def test_what_is_submitted_with_its_code_in_a_zip_runs_there(recorded, here, standalone, tmp_path):
    """As docs/cost-analysis.md says it. The replay is our code, which the executors have from the zip alone."""
    import pyspark

    build = "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path
    run(sys.executable, *build, copied(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    code = wheel.rename(tmp_path / "mombroker.zip")
    (tmp_path / "job.py").write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    said = run(
        submit, "--master", standalone, "--conf", "spark.ui.enabled=false", "--py-files", code, tmp_path / "job.py",
        recorded, tmp_path, cwd=tmp_path,
    )  # fmt: skip
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures | {"holes": []} == here, said  # these are told by the command alone
    where, replayed = json.loads((tmp_path / "replayed.json").read_text())
    assert re.search(r"mombroker\.zip/mombroker/", where)
    assert set(replayed) == {"current", "flat", "bus", "proposed"} and min(replayed.values()) > 0


def copied(folder):
    """The tree without what was built in it."""
    for name in ("mombroker", "admin", "agents"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "tree" / name)
    return folder / "tree"


JOB = """
import json, sys
from pathlib import Path

from mombroker.admin.analysis import report, session, source
from mombroker.admin.topology.advise import advise, replay_all
from mombroker.net import config

folder, out = map(Path, sys.argv[1:])
topology = config.load(folder / "bus.toml")
spark = session.session()
log = source.read(spark, folder / "exported")
figures, load = report.analyse(log, topology, messages=500)
(out / "figures.json").write_text(json.dumps(figures))


def where(_):
    import mombroker.lab.replay

    return mombroker.lab.replay.__file__


found = spark.sparkContext.parallelize([0], 1).map(where).first()
advice = advise(topology, load)
replay_all(advice, load, spark)
replayed = {name: option.replayed.total.control_bytes for name, option in advice.options.items()}
(out / "replayed.json").write_text(json.dumps([found, replayed]))
"""
