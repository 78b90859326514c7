"""A job in bad weather: nothing that the server ever gave whole is lost, over HTTP and from S3.

`WALLCLOCK_SOAK` is how many images there are.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.bad_weather import FATES, Server, fate, picture, serving, url
from tests.conftest import ROOT
from tests.wallclock.job.conftest import content

N = int(os.environ.get("WALLCLOCK_SOAK", "5000"))
SETTINGS = ("model=null", "deduplicate=false", "processes=1", "shard=200", "give_up_s=15")
#: Seconds that no run exceeds, and how many runs there are at most.
LIMIT_S, MOST_RUNS = 300, 20
#: The command, for credentials that are renewed 20 seconds before they end, not 10 minutes.
COMMAND = """
import sys
from botocore.credentials import RefreshableCredentials
from wallclock.__main__ import main
RefreshableCredentials._advisory_refresh_timeout = 30
RefreshableCredentials._mandatory_refresh_timeout = 20
sys.exit(main())
"""
#: Credentials that end a minute from now, when the token says.
CREDENTIALS = """#!/bin/sh
ends=$(($(date +%s) + 60))
printf '{"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "secret", '
printf '"SessionToken": "%s", "Expiration": "%s"}' $ends $(date -u -d @$ends +%FT%TZ)
"""


@dataclass
class Job:
    """The runs of one job. `peaks`: the most memory of each, in MiB."""

    source: Path
    out: Path
    env: dict[str, str]
    peaks: list[float] = field(default_factory=list)
    said: str = ""

    def start(self) -> None:
        """Start a run."""
        assert len(self.peaks) < MOST_RUNS, self.said
        words = ["embed", str(self.source), str(self.out), *SETTINGS]
        self._said = self.out.with_name("said.txt")
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *words],
                env=self.env,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, limit_s: float = LIMIT_S) -> int:
        """The status of the run, once it has ended; below 0: a signal."""
        until = time.monotonic() + limit_s
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > until:
                self.kill()
                pytest.fail(f"still running after {limit_s:g} s: {self.said}")
            time.sleep(0.05)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.peaks.append(usage.ru_maxrss / 1024)
        self.said = self._said.read_text(errors="replace")
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL, and wait."""
        os.killpg(self.process.pid, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL, self.said

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()


def wait_for(server: Server, job: Job, n: int) -> None:
    """Return once the server has given so many more images whole."""
    until, seen = time.monotonic() + LIMIT_S, server.log.stat().st_size
    line = len("whole 1000\n")
    while server.log.stat().st_size < seen + n * line:
        assert time.monotonic() < until, "no progress"
        ended = os.waitid(os.P_PID, job.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert not ended, (job.end(), job.said)
        time.sleep(0.02)


#: A host whose first URLs in a run are those that never come is given up for its others, untried.
@pytest.fixture(params=["http", "s3"])
def soak(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Server, Job]:
    """A server that is not started, and a job over its images."""
    s3 = request.param == "s3"
    server = Server(tmp_path / "log", 0, *(["tokens"] if s3 else []))
    urls = [f"s3://bucket/{n}" if s3 else url(n, server.port) for n in range(N)]
    source, program, config = tmp_path / "list.csv", tmp_path / "renew", tmp_path / "config"
    source.write_text("id,url\n" + "".join(f"{n},{where}\n" for n, where in enumerate(urls)))
    program.write_text(CREDENTIALS)
    program.chmod(0o755)
    config.write_text(f"[default]\nregion = us-east-1\ncredential_process = {program}\n")
    env = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    env |= {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}"}
    env |= {"PYTHONPATH": str(ROOT / "code"), "NO_PROXY": "*"}
    return server, Job(source, tmp_path / "out", env)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost(soak: tuple[Server, Job]) -> None:
    """Three kills of the server and of the job, then an outage for longer than the job waits."""
    server, job = soak
    with serving(server), job:
        for _ in range(3):
            job.start()
            wait_for(server, job, N // 12)
            server.kill()
            time.sleep(1)
            server.start()
            wait_for(server, job, N // 12)
            job.kill()
        job.start()
        wait_for(server, job, N // 12)
        server.kill()
        assert job.end() == 1
        assert "not reached: run again" in job.said, job.said
        server.start()
        job.start()
        while job.end() != 0:
            assert job.process.returncode == 1, job.said
            assert "not reached: run again" in job.said, job.said
            job.start()
        job.start()
        assert job.end() == 0
        assert "complete already" in job.said, job.said
    check(server, job)


def check(server: Server, job: Job) -> None:
    """Every image is there once; memory was flat."""
    found, whole = content(job.out), server.logged("whole")
    reasons = dict(found.failures)
    kinds = Counter(fate(int(name)) or "fine" for name in reasons)
    print(f"{N} images: {len(whole)} given whole, {len(found.rows)} vectors,", end=" ")
    print(f"failures {dict(kinds)}; {len(job.peaks)} runs, peaks {[*map(round, job.peaks)]} MiB")
    assert {str(n) for n in whole} <= found.rows.keys()
    assert found.rows.keys() | reasons.keys() == {str(n) for n in range(N)}
    for name, row in found.rows.items():
        assert hashlib.sha256(picture(int(name))).hexdigest() in row, name
    for name, reason in reasons.items():
        kind = fate(int(name))
        assert FATES[kind][1] in reason if kind else reason.endswith("in 3 runs"), name
    assert not server.logged("refused")
    assert max(job.peaks) <= 1.2 * job.peaks[0]
