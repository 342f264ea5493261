"""Build ``orca-busybox:test`` from nothing but this host's static busybox; no network needed.

Run as ``build_image.py [--host DOCKER_HOST]``; an image of the same content is not built again.
Prints the tag. Needs aiodocker and Debian's package busybox-static.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path

import aiodocker
import aiohttp

TAG = "orca-busybox:test"
DIGEST_LABEL = "orca.content"
BUSYBOX_PATHS = (Path("/bin/busybox"), Path("/usr/bin/busybox"))
APPLETS = ("sh", "awk", "cat", "date", "dd", "echo", "env", "false", "head", "id", "ls", "mkdir")
MORE_APPLETS = ("nc", "printf", "rm", "seq", "sleep", "tail", "true", "wget", "yes")
DOCKERFILE = """\
FROM scratch
ADD rootfs.tar /
ENV PATH=/bin
CMD ["/bin/sh"]
"""
BUILD_TIMEOUT_S = 60.0


class ImageBuildError(Exception):
    """The image cannot be built; says why and what to do."""


def static_busybox() -> bytes:
    """The host's busybox. Raises ImageBuildError when there is none or it needs a loader."""
    for path in BUSYBOX_PATHS:
        content = path.read_bytes() if path.exists() else b""
        # A dynamic executable names its loader near its start; in an empty image it would be lost.
        if content and b"/ld-linux" not in content[:4096] and b"/ld-musl" not in content[:4096]:
            return content
    raise ImageBuildError("no static busybox here; apt-get install -y busybox-static")


def root_file_system(busybox: bytes) -> bytes:
    """A tar of /bin/busybox, its applets as links, /etc/passwd and an empty /tmp."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        _add(tar, "bin/busybox", busybox, mode=0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        _add(tar, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        for applet in APPLETS + MORE_APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
    return out.getvalue()


def build_context(root: bytes) -> bytes:
    """The tar that the engine builds from: a Dockerfile and the root file system."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        _add(tar, "Dockerfile", DOCKERFILE.encode())
        _add(tar, "rootfs.tar", root)
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


async def ensure_image(docker_host: str) -> None:
    """Make the engine at ``docker_host`` have the image.

    Raises ImageBuildError, aiodocker.DockerError, TimeoutError.
    """
    context = build_context(root_file_system(static_busybox()))
    digest = hashlib.sha256(context).hexdigest()
    timeout = aiohttp.ClientTimeout(total=BUILD_TIMEOUT_S)
    async with aiodocker.Docker(url=docker_host, timeout=timeout) as docker:
        if await _content_of(docker) == digest:
            return
        await docker.images.build(
            fileobj=io.BytesIO(context),
            encoding="identity",
            tag=TAG,
            labels={DIGEST_LABEL: digest},
            timeout=timeout,
        )


async def _content_of(docker: aiodocker.Docker) -> str | None:
    try:
        image = await docker.images.inspect(TAG)
    except aiodocker.DockerError as error:
        if error.status != 404:
            raise
        return None
    labels: dict[str, str] = image["Config"].get("Labels") or {}
    return labels.get(DIGEST_LABEL)


def main(arguments: list[str]) -> int:
    """Run the command line; 0 on success, 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(description=f"Build {TAG} without a network.")
    default = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    parser.add_argument("--host", default=default, help="address of the engine")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(ensure_image(options.host))
    except (ImageBuildError, aiodocker.DockerError, TimeoutError) as error:
        print(f"build_image.py: {error!r}", file=sys.stderr)
        return 1
    print(TAG)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
