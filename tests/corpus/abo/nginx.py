"""One nginx on loopback that serves a bucket's tree as S3 does, as far as unsigned GETs and listings go.

Objects carry their MD5 as ETag, as S3's do. `ListObjectsV2` is answered from XML pages made
beforehand and picked by the continuation token: enough for `aws s3 cp --recursive`. A second port
answers every object some milliseconds later, by nginx's own `auth_delay`, so no module beyond
Debian's package is needed and the delay costs neither client anything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote
from xml.sax.saxutils import escape

INSTALL_HINT = "sudo apt-get install -y nginx"

#: Keys on one page of a listing, as S3 has it.
_PAGE = 1000

_CONF = """
daemon off;
worker_processes 1;
pid {work}/nginx.pid;
error_log {work}/error.log crit;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  etag off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy;
  fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi;
  scgi_temp_path {work}/scgi;
  types {{ image/jpeg jpg; image/png png; application/xml xml; }}
  map_hash_max_size 262144;
  map_hash_bucket_size 256;
  map $uri $md5 {{ default ""; include {work}/md5.conf; }}
  map $args $page {{ default 0; "~continuation-token=(?<token>[0-9]+)" $token; }}
  server {{
    listen 127.0.0.1:{port};
    root {tree};
    location = /{bucket} {{ root {work}/pages; try_files /$page.xml =404; }}
    location / {{ add_header ETag $md5; }}
  }}
  server {{
    listen 127.0.0.1:{slow_port};
    root {tree};
    location = /{bucket} {{ root {work}/pages; try_files /$page.xml =404; }}
    location = /.late {{ internal; return 401; }}
    location / {{ auth_request /.late; auth_delay {delay_ms}ms; error_page 401 = @object; }}
    location @object {{ add_header ETag $md5; }}
  }}
}}
"""


def find() -> str | None:
    """Where nginx is, or None; Debian keeps it out of a user's PATH."""
    return shutil.which(
        "nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    )


class Nginx:
    """Serves `tree/<bucket>/…`; use as a context manager.

    Args:
        tree: holds a folder by the bucket's name.
        work: for its configuration, listings and logs; made anew.
        listed: the folder inside the bucket that can be listed; none, if empty.
        delay_ms: what the second port adds to each object.
    """

    def __init__(
        self, tree: Path, bucket: str, work: Path, listed: str = "", delay_ms: int = 20
    ) -> None:
        self._tree = tree.resolve()
        self._bucket = bucket
        self._work = work.resolve()
        self._listed = listed
        self._delay_ms = delay_ms
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self.slow_port = free_ports(2)

    @property
    def endpoint(self) -> str:
        """Where it answers at once."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def slow_endpoint(self) -> str:
        """Where each object comes `delay_ms` later."""
        return f"http://127.0.0.1:{self.slow_port}"

    def __enter__(self) -> Nginx:
        binary = find()
        if binary is None:
            raise FileNotFoundError(f"no nginx here: {INSTALL_HINT}")
        shutil.rmtree(self._work, ignore_errors=True)
        (self._work / "pages").mkdir(parents=True)
        # As root, nginx's worker runs as nobody: it must be able to reach what it serves.
        self._work.chmod(0o755)
        self._write_md5s()
        if self._listed:
            self._write_pages()
        ports = {"port": self.port, "slow_port": self.slow_port, "delay_ms": self._delay_ms}
        conf = _CONF.format(work=self._work, tree=self._tree, bucket=self._bucket, **ports)
        if os.geteuid() == 0:
            conf = "user root;\n" + conf
        (self._work / "nginx.conf").write_text(conf, encoding="utf-8")
        errors = (self._work / "stderr").open("wb")
        with errors:
            command = [
                binary,
                "-p",
                str(self._work),
                "-e",
                str(self._work / "error.log"),
                "-c",
                "nginx.conf",
            ]
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        if not answers(self.port) or not answers(self.slow_port):
            said = (self._work / "stderr").read_text(encoding="utf-8", errors="replace")
            self.__exit__(None, None, None)
            raise RuntimeError(f"nginx did not start: {said}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def _keys(self) -> list[str]:
        bucket = self._tree / self._bucket
        return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())

    def _write_md5s(self) -> None:
        lines = [f'"/{self._bucket}/{key}" "\\"{self._md5(key)}\\"";\n' for key in self._keys()]
        (self._work / "md5.conf").write_text("".join(lines), encoding="utf-8")

    def _md5(self, key: str) -> str:
        with (self._tree / self._bucket / key).open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()

    def _write_pages(self) -> None:
        keys = [key for key in self._keys() if key.startswith(self._listed)]
        pages = [keys[start : start + _PAGE] for start in range(0, len(keys), _PAGE)]
        for number, page in enumerate(pages):
            more = number + 1 < len(pages)
            (self._work / "pages" / f"{number}.xml").write_text(
                self._page(page, number, more), encoding="utf-8"
            )

    def _page(self, keys: Sequence[str], number: int, more: bool) -> str:
        contents = []
        for key in keys:
            about = (self._tree / self._bucket / key).stat()
            date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(about.st_mtime))
            contents.append(
                f"<Contents><Key>{escape(quote(key))}</Key><LastModified>{date}</LastModified>"
                f"<ETag>&quot;{self._md5(key)}&quot;</ETag><Size>{about.st_size}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        token = f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{self._bucket}</Name>'
            f"<Prefix>{self._listed}</Prefix><KeyCount>{len(keys)}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
            f"<EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
            f"{''.join(contents)}</ListBucketResult>"
        )


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def answers(port: int, seconds: float = 10.0) -> bool:
    """Whether something listens on a port of loopback, now or soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False
