"""Lets kazoo's own tests start, stop and use a cluster of Ordinate where they would use one of ZooKeeper.

A pytest plugin: `pytest -p ordinate_cluster --pyargs kazoo.tests`. Environment: ORDINATE_BINARY, ORDINATE_COORDINATION (lines
of the section [coordination]), ORDINATE_PORT (the first of twelve free ports).
"""

import hashlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types

import pytest

# kazoo.testing makes Java key stores with these two; nothing here needs such stores.
for absent in ("OpenSSL", "jks"):
    sys.modules.setdefault(absent, types.ModuleType(absent))

from kazoo.client import KazooClient  # noqa: E402
from kazoo.exceptions import AuthFailedError  # noqa: E402
from kazoo.protocol.states import KeeperState  # noqa: E402
from kazoo.testing import harness  # noqa: E402

log = logging.getLogger(__name__)
# Clients that outlive the cluster would complain on stderr for ever.
logging.lastResort = None
HOSTS = 3
# What kazoo's harness gives ZooKeeper's superuser: the password "test".
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

# What cannot run here, and why. docs/zookeeper.md explains.
EXCLUDED = {
    r"test_sasl\.py::.*GSSAPI": "Kerberos is not spoken",
    r"::TestSSLClient::": "the harness makes Java key stores; TLS has its own tests",
    r"::TestReadOnlyMode::": "there is no read-only mode: a minority refuses",
    r"::TestReconfig::": "membership is changed by `ordinate cluster`, not by reconfig",
    r"test_build\.py::": "is about kazoo's own build",
}


class Server:
    def __init__(self, folder, number, port):
        self.name = "abc"[number]
        self.folder = folder
        self.peer, self.native, self.admin, self.client_port = (
            port + 4 * number + offset for offset in range(4)
        )
        self.address = "127.0.0.1:%d" % self.client_port
        # Nobody listens here.
        self.secure_address = "127.0.0.1:1"
        self.process = None

    @property
    def log_path(self):
        return os.path.join(self.folder, self.name + ".log")

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def run(self):
        if self.running:
            return
        listen = ("native", self.native), ("admin", self.admin), ("zookeeper", self.client_port)
        sets = ["--set=listen.%s=127.0.0.1:%d" % it for it in listen]
        config = os.path.join(self.folder, "cluster.toml")
        command = [os.environ["ORDINATE_BINARY"], "serve", "--config", config, "--host", self.name]
        with open(self.log_path, "ab") as output:
            self.process = subprocess.Popen(command + sets, stdout=output, stderr=output)

    def stop(self):
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.process = None

    def destroy(self):
        self.stop()

    def get_logs(self):
        with open(self.log_path, errors="replace") as lines:
            return lines.readlines()[-40:]


class Cluster:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="ordinate-kazoo-")
        port = int(os.environ.get("ORDINATE_PORT", "21810"))
        self.servers = [Server(self.folder, number, port) for number in range(HOSTS)]
        with open(os.path.join(self.folder, "cluster.toml"), "w") as file:
            file.write('cluster = "kazoo"\n[coordination]\n')
            file.write(os.environ.get("ORDINATE_COORDINATION", 'engine = "mason"\nshards = 4') + "\n")
            file.write('super_digest = "%s"\n[hosts]\n' % SUPER_DIGEST)
            for server in self.servers:
                file.write('%s = "127.0.0.1:%d"\n' % (server.name, server.peer))
            file.write('[access]\nfile = "access.toml"\n')
        # As ZooKeeper without access control, but that kazoo's user can log in.
        secret = hashlib.md5(b"jaasuser:ordinate:jaas_password").hexdigest()
        with open(os.path.join(self.folder, "access.toml"), "w") as file:
            file.write('[identity.jaasuser]\ndigest = "md5:%s"\n' % secret)
            file.write('[identity.anyone]\ngrants = ["all * *", "read cluster"]\n')

    def __getitem__(self, index):
        return self.servers[index]

    def __iter__(self):
        return iter(self.servers)

    def start(self):
        for server in self.servers:
            server.run()
        deadline = time.monotonic() + 30
        while not all(answers(server.client_port) for server in self.servers):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster does not start:\n" + "".join(self.get_logs()))
            time.sleep(0.05)

    def terminate(self):
        """Between classes of tests the cluster stays: every test uses a folder of its own."""

    def end(self):
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def get_logs(self):
        return [line for server in self.servers for line in server.get_logs()]


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"ruok")
            connection.settimeout(1)
            return connection.recv(4) == b"imok"
    except OSError:
        return False


CLUSTER = Cluster()
harness.get_global_cluster = lambda: CLUSTER


def starts_or_is_refused(start=KazooClient.start, callback=KazooClient._session_callback):
    """kazoo's `start` reports a refused login as a time-out if the refusal comes before its thread looks whether it is connected.
    Here a client that the server has refused says so in either case."""

    def started(self, *arguments, **named):
        self.refused = False
        try:
            return start(self, *arguments, **named)
        except self.handler.timeout_exception as error:
            if self.refused:
                raise AuthFailedError() from error
            raise

    def called(self, state):
        if state == KeeperState.AUTH_FAILED:
            self.refused = True
        return callback(self, state)

    return started, called


KazooClient.start, KazooClient._session_callback = starts_or_is_refused()


def pytest_collection_modifyitems(config, items):
    wanted = os.environ.get("ORDINATE_KAZOO_ONLY")
    retained, dropped = [], []
    for item in items:
        reason = next((why for what, why in EXCLUDED.items() if re.search(what, item.nodeid)), None)
        if reason:
            item.add_marker(pytest.mark.skip(reason="excluded: " + reason))
        (retained if not wanted or re.search(wanted, item.nodeid) else dropped).append(item)
    items[:] = retained
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def pytest_sessionfinish(session, exitstatus):
    session.config.ordinate_status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """A test of kazoo's that fails leaves threads behind that wait for ever, and Python waits for those before it ends."""
    try:
        CLUSTER.end()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(getattr(config, "ordinate_status", 1))
