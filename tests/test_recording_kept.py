"""What `record` keeps when lines are lost, and when the trace, a checkpoint or the file fails."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from pathlib import Path

import pytest
from probescope.command.crash import version
from probescope.command.errors import CommandError, Usage
from probescope.command.record import Output
from probescope.profile import pprof_reader
from probescope.profile.checkpoints import Checkpoints
from probescope.profile.destination import Destination
from probescope.profile.recording import KINDS, Recording
from tracing import wait_for

LINES = (Path(__file__).parent.parent / "spec/fixtures/profile/shop.lines").read_text().splitlines()
WHOLE = (110, 1_100_000_000)


@pytest.fixture(name="path")
def path_of_a_recording(tmp_path):
    return tmp_path / "shop.pb.gz"


def output_of(path, lines, **options):
    """`record` behind these lines of stacks.bt."""
    asked = Namespace(pid=7, seconds=None, json=False, color="never", **{"own": [], **options})
    output = Output(asked, Destination(str(path)))
    for line in lines:
        output.take(json.dumps({"type": "printf", "data": f"{line}\n"}).encode())
    return output


def read(path):
    return pprof_reader.read(str(path))


def test_what_arrived_behind_a_lost_line_is_recorded(path, capsys):
    output = output_of(path, [line for line in LINES if not line.startswith("f 7 4")])
    output.interrupted = True
    output.write()
    assert read(path).total(0)[:2] == WHOLE
    assert read(path).metadata["lost"]["events"] == 1
    assert capsys.readouterr().err == ""  # nothing is printed before the file is written
    output.release()
    assert "1 events were lost between the kernel and bpftrace" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, message",
    [
        (CommandError("bpftrace failed", "doctor"), "bpftrace failed"),
        (RuntimeError("odd"), "this is a fault of probescope: RuntimeError: odd"),
    ],
)
def test_a_failure_loses_nothing(path, error, message):
    output = output_of(path, LINES)
    output.failed = error
    recording, written = output.write()
    with pytest.raises(CommandError) as raised:
        output.show(recording, written)
    assert str(raised.value) == f"{message}; {path} has what was recorded until then"
    assert read(path).total(0)[:2] == WHOLE


def test_the_file_has_the_version_of_the_command_and_all_warnings(path):
    output_of(path, LINES, own=["nowhere/*"]).write()
    told = read(path).metadata
    assert told["probescope"] == version()
    assert any("--own nowhere/*: no file matches" in text for text in told["warnings"])


def test_files_of_others_stay(path):
    Path(f"{path}.new").write_text("theirs")
    Path(f"{path}.part.new").symlink_to("nothing")
    output_of(path, LINES).write()
    assert Path(f"{path}.new").read_text() == "theirs"
    assert len(os.listdir(path.parent)) == 3


def test_a_file_that_appears_meanwhile_stays_and_the_recording_is_kept(path):
    output = output_of(path, LINES)
    path.write_text("theirs")
    with pytest.raises(CommandError, match=r"File exists; the complete file is .*\.new$"):
        output.write()
    assert path.read_text() == "theirs"
    (kept,) = (name for name in os.listdir(path.parent) if name != path.name)
    assert read(path.parent / kept).total(0)[:2] == WHOLE


def test_a_place_that_takes_no_file_is_refused(tmp_path):
    for name, reason in (("a" * 240, errno.ENAMETOOLONG), ("none/a", errno.ENOENT)):
        with pytest.raises(Usage, match=os.strerror(reason)):
            Destination(str(tmp_path / f"{name}.pb.gz"))
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_that_is_under_way_at_the_end_leaves_nothing(path):
    entered, waits = os.pipe(), os.pipe()

    class Slow(Recording):
        """Waits in the middle of its file."""

        def keys_by_node(self):
            os.write(entered[1], b"x")
            os.read(waits[0], 1)
            return super().keys_by_node()

    destination = Destination(str(path))
    checkpoints = Checkpoints(destination, lambda: Slow(list(KINDS)), pytest.fail, every=0)
    checkpoints.step()
    os.read(entered[0], 1)
    checkpoints.stop()
    destination.write(Recording(list(KINDS)))
    assert os.listdir(path.parent) == [path.name]


# A user who may have no process more.
ALONE = """
import os, resource, sys
from probescope.profile.checkpoints import Checkpoints
from probescope.profile.destination import Destination
from probescope.profile.recording import KINDS, Recording
os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
destination = Destination(sys.argv[1])
Checkpoints(destination, lambda: Recording(list(KINDS)), print, every=0).step()
print(destination.write(Recording(list(KINDS))) > 0)
"""


def test_a_checkpoint_for_which_there_is_no_process_is_told():
    if os.getuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:  # in which every user may go
        os.chmod(folder, 0o777)
        words = [sys.executable, "-c", ALONE, f"{folder}/shop.pb.gz"]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "could not be written; the recording goes on\nTrue\n" in said.stdout, said


def test_checkpoints_come_as_often_after_a_long_silence(path):
    destination = Destination(str(path))
    checkpoints = Checkpoints(destination, lambda: Recording(list(KINDS)), pytest.fail, every=0)
    checkpoints.step()
    part = Path(destination.part)
    wait_for("the first one", part.exists)
    first = part.stat().st_mtime_ns
    threading.Event().wait(5)  # the silence: nobody calls step()

    def is_another():
        checkpoints.step()
        return part.stat().st_mtime_ns != first

    wait_for("the second one", is_another, within=90)
    checkpoints.stop()
