"""A run leaves append-only evidence, and everything can be read back from it."""

from __future__ import annotations

import errno
import io
import json
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import (
    SCHEMA_FILE,
    Evidence,
    EvidenceWriter,
    in_order,
    keep_picture,
    read,
    schema_text,
)
from pytest_llmperf.testing import (
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)

if TYPE_CHECKING:
    from pathlib import Path

SEE = (
    "Each line must follow evidence-1.schema.json, "
    "printed by `python -m pytest_llmperf.evidence schema`."
)


def a_turn(number: int, **fields: Any) -> record.Request:  # noqa: ANN401 - any field
    return a_request(
        **{
            "request_id": f"m0.{number}",
            "measurement_id": "m0",
            "arm": "candidate",
            "boot_id": "b0",
            "position": number,
            **fields,
        }
    )


def some_records() -> list[record.Record]:
    return [
        an_engine(),
        a_measurement(),
        some_counters(),
        a_turn(0, role="prime"),
        a_turn(1),
        a_turn(2),
        some_counters(when="after"),
        record.MeasurementEnd(measurement_id="m0", completed=True),
        record.EngineEnd(boot_id="b0", ending="stopped", exit_code=0, at_ns=5),
    ]


def written(folder: Path, records: list[record.Record], **session: Any) -> Path:  # noqa: ANN401
    with EvidenceWriter(folder, a_session(**session)) as writer:
        for each in records:
            writer.write(each)
    return writer.path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def refusal(path: Path) -> EvidenceError:
    with pytest.raises(EvidenceError) as caught:
        read(path)
    return caught.value


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = written(tmp_path, some_records())
    assert path == tmp_path / "evidence.jsonl"
    live = Evidence([a_session(), *some_records()])
    replayed = read(path)
    assert replayed.measured("m0") == live.measured("m0")
    assert replayed.sessions == live.sessions == (a_session(),)
    assert replayed.engines == live.engines == {"b0": an_engine()}
    assert replayed.measurements("test_gate.py::test_gate") == (a_measurement(),)
    assert replayed.cuts == []


def test_a_view_holds_everything_of_one_arm() -> None:
    (measured,) = Evidence([a_session(), *some_records()]).measured("m0")
    assert measured.session == a_session()
    assert measured.arm.name == "candidate"
    assert measured.engine == an_engine()
    assert measured.engine_end is not None
    assert [each.role for each in measured.requests] == ["prime", "turn", "turn"]
    assert [each.request_id for each in measured.turns] == ["m0.1", "m0.2"]
    assert measured.before == some_counters()
    assert measured.after == some_counters(when="after")
    assert measured.end is not None
    assert measured.end.completed


def test_two_arms_have_their_own_requests_and_share_their_engines_counters() -> None:
    (arm,) = a_measurement().arms
    other = msgspec.structs.replace(arm, name="reference")
    records = [each for each in some_records() if not isinstance(each, record.Measurement)]
    evidence = Evidence(
        [a_session(), a_measurement(arms=(arm, other)), *records, a_turn(3, arm="reference")]
    )
    candidate, reference = evidence.measured("m0")
    assert [each.request_id for each in reference.turns] == ["m0.3"]
    assert [each.request_id for each in candidate.beside] == ["m0.3"]
    assert candidate.before == reference.before == some_counters()


def test_what_was_not_recorded_is_none() -> None:
    (measured,) = Evidence([a_session(), a_measurement()]).measured("m0")
    assert (measured.engine, measured.before, measured.after, measured.end) == (None,) * 4
    assert measured.requests == ()


def test_the_order_of_lines_is_irrelevant(tmp_path: Path) -> None:
    path = written(tmp_path, some_records())
    first, *rest = lines(path)
    expected = read(path).measured("m0")
    for seed in range(5):
        random.Random(seed).shuffle(rest)
        path.write_bytes(first + b"".join(rest))
        assert read(path).measured("m0") == expected


def test_requests_are_ordered_by_position_then_by_when_they_were_sent() -> None:
    later, earlier = a_turn(1, position=None, start_ns=9), a_turn(2, position=None, start_ns=3)
    assert in_order([later, a_turn(5), earlier, a_turn(4)]) == [
        a_turn(4),
        a_turn(5),
        earlier,
        later,
    ]


def test_a_record_is_in_the_file_before_write_returns(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, a_session())
    writer.write(an_engine())
    assert len(lines(writer.path)) == 2
    writer.close()
    writer.close()


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    with EvidenceWriter(tmp_path, a_session()) as writer, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: writer.write(a_turn(n, measurement_id=None)), range(200)))
    assert len(lines(writer.path)) == 201
    read(writer.path)


def test_a_folder_is_made_and_evidence_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    path = written(folder, [])
    with pytest.raises(EvidenceError) as caught:
        EvidenceWriter(folder, a_session())
    assert str(caught.value) == (
        f"No evidence can be written to {path}.\n"
        "The system says: File exists.\n"
        "Name another folder; evidence is never overwritten."
    )


class FullDisk(io.FileIO):
    """Takes some bytes of a line, then refuses the rest."""

    room = 10**9

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = super().write(bytes(data)[: self.room])
        self.room -= taken
        return taken


def test_a_full_disk_is_told_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, a_session())
    writer.write(an_engine())
    whole = writer.path.read_bytes()
    writer._file.close()
    disk = writer._file = FullDisk(writer.path, "a")
    disk.room = 20
    with pytest.raises(EvidenceError) as caught:
        writer.write(a_turn(1, measurement_id=None))
    assert str(caught.value) == (
        f"request m0.1 could not be written to {writer.path}.\n"
        "The system says: No space left on device; "
        f"the {len(whole):,} bytes before it are whole.\n"
        "Free space on that disk and run again; what was recorded can be replayed."
    )
    assert writer.path.read_bytes() == whole
    disk.room = 10**9
    writer.write(a_turn(2, measurement_id=None))
    writer.close()
    assert [each.record for each in map(_kind, lines(writer.path))] == [
        "session",
        "engine",
        "request",
    ]


class _Kind(msgspec.Struct):
    record: str


def _kind(line: bytes) -> _Kind:
    return msgspec.json.decode(line, type=_Kind)


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_line_that_a_crash_cut_off_is_left_out_and_told(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path, some_records())
    *whole, last = lines(path)
    path.write_bytes(b"".join(whole) + last[:kept])
    evidence = read(path)
    assert evidence.cuts == [
        (
            f"{path}, line 10, was cut off after {len(last[:kept])} bytes; "
            "all lines before it were read."
        )
    ]
    (measured,) = evidence.measured("m0")
    assert measured.engine_end is None
    assert len(measured.turns) == 2


def test_a_last_line_without_its_line_break_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path, some_records())
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    evidence = read(path)
    assert evidence.cuts == []
    assert evidence.measured("m0")[0].engine_end is not None


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_crash_at_any_byte_loses_at_most_the_last_record(
    tmp_path: Path, data: st.DataObject
) -> None:
    folder = tmp_path / uuid4().hex
    path = written(folder, some_records())
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(content)))
    path.write_bytes(content[:cut])
    evidence = read(path)
    ended = content[:cut].count(b"\n")
    kept = len(evidence._books[0].records()) + 1
    assert ended <= kept <= ended + 1
    assert len(evidence.cuts) <= 1


@pytest.mark.parametrize(
    ("broken", "seen"),
    [
        (b'{"record":"req\n', "Input data was truncated."),
        (b"\n", "Input data was truncated."),
        (b"\xff\xfe\n", "JSON is malformed: invalid character (byte 0)."),
        (
            b'{"record":"lap"}\n',
            "Invalid value 'lap' - at `$.record`.",
        ),
        (
            b'{"record":"engine_end","boot_id":"b0","ending":"gone"}\n',
            "Invalid enum value 'gone' - at `$.ending`.",
        ),
        (
            b'{"record":"request","request_id":"r","url":"u","stamps":{"sent_ns":"soon"}}\n',
            "Expected `int | null`, got `str` - at `$.stamps.sent_ns`.",
        ),
        (
            b'{"record":"engine_end","boot_id":"b0","ending":"died","when":3}\n',
            "Object contains unknown field `when`.",
        ),
        (b'{"record":"engine_end","ending":"died"}\n', "Object missing required field `boot_id`."),
    ],
)
def test_any_other_malformed_line_is_named_with_its_field(
    tmp_path: Path, broken: bytes, seen: str
) -> None:
    path = written(tmp_path, some_records())
    content = lines(path)
    path.write_bytes(b"".join([*content[:3], broken, *content[3:]]))
    assert str(refusal(path)) == f"{path}, line 4, is not evidence.\n{seen}\n{SEE}"


def test_a_last_line_that_is_whole_but_wrong_was_not_cut(tmp_path: Path) -> None:
    path = written(tmp_path, some_records())
    path.write_bytes(path.read_bytes() + b'{"record":"lap"}')
    assert refusal(path).what == f"{path}, line 11, is not evidence."


@pytest.mark.parametrize("number", [2, 0, None])
def test_another_schema_is_refused_by_its_number(tmp_path: Path, number: int | None) -> None:
    path = tmp_path / "evidence.jsonl"
    first = {"record": "session", "schema": number, "who": "a field of tomorrow"}
    path.write_text(json.dumps(first) + "\n")
    assert str(refusal(path)) == (
        f"{path} has evidence of schema {number}.\n"
        "This version reads schema 1 and no other.\n"
        "Replay it with the version of pytest-llmperf that wrote it."
    )


def test_a_first_line_must_state_its_schema(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    path.write_bytes(path.read_bytes().replace(b'"schema":1,', b""))
    assert refusal(path).what == f"{path} has evidence of schema None."


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        (b"", "Input data was truncated."),
        (b"hello\n", "JSON is malformed: invalid character (byte 0)."),
        (b'{"record":"engine"}\n', "Its record is 'engine'."),
        (b"[1]\n", "Expected `object`, got `array`."),
    ],
)
def test_a_file_begins_with_its_session(tmp_path: Path, first: bytes, seen: str) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(first)
    assert str(refusal(path)) == f"{path}, line 1, is not a session.\n{seen}\n{SEE}"


def test_a_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == (
        f"{tmp_path} holds no evidence.\n"
        "There is no evidence.jsonl in it or below it.\n"
        "Name a session's folder, or a folder above several."
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone.jsonl"
    assert str(refusal(path)) == (
        f"{path} cannot be read.\n"
        "The system says: No such file or directory.\n"
        "Name an evidence file or a folder."
    )


def test_several_sessions_below_one_folder_are_read_oldest_first(tmp_path: Path) -> None:
    for name, started in (("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-03T00:00:00Z")):
        written(tmp_path / name, some_records(), session_id=name, started_at=started)
    evidence = read(tmp_path)
    assert [each.session_id for each in evidence.sessions] == ["b", "a"]
    assert len(evidence.measurements("test_gate.py::test_gate")) == 2
    assert evidence.contents() == "2 sessions, gates: test_gate.py::test_gate"
    with pytest.raises(EvidenceError) as caught:
        evidence.measured("m0")
    assert str(caught.value) == (
        "2 measurements have the id 'm0'.\n"
        "There is evidence of 2 sessions, gates: test_gate.py::test_gate.\n"
        "Ask with an id of `measurements(gate)`, or read one session's folder alone."
    )


def test_a_copied_session_counts_once(tmp_path: Path) -> None:
    one, two = (written(tmp_path / name, []) for name in ("a", "b"))
    assert str(refusal(tmp_path)) == (
        f"Session s0 was recorded twice.\nIt stands in {one} and in {two}.\n"
        "Remove the copy; one session counts once."
    )


def test_one_record_is_not_counted_twice(tmp_path: Path) -> None:
    path = written(tmp_path, [*some_records(), a_turn(2, prompt="another")])
    assert str(refusal(path)) == (
        f"{path} holds request m0.2 twice.\n"
        "Two records with one identity cannot both be counted.\n"
        "Keep every session's file as it was written; do not join files."
    )


def test_a_request_of_no_measurement_is_not_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, [*some_records(), a_turn(7, arm="reference")])
    assert str(refusal(path)) == (
        f"{path}: request m0.7 belongs to no measurement.\n"
        "It names measurement 'm0' and arm 'reference'; "
        "the arms that the file starts there: ['candidate'].\n"
        f"Add the missing measurement line. {SEE}"
    )


def test_a_probe_needs_no_measurement(tmp_path: Path) -> None:
    read(written(tmp_path, [a_request(request_id="probe")]))


def test_records_before_any_session_are_refused() -> None:
    with pytest.raises(EvidenceError) as caught:
        Evidence([an_engine()])
    assert str(caught.value) == (
        "this session has engine b0 before any session.\n"
        "The first record of every evidence file is its session.\n"
        f"{SEE}"
    )


def gates(*names: str) -> Evidence:
    starts = [
        a_measurement(measurement_id=f"m{number}", gate=name) for number, name in enumerate(names)
    ]
    return Evidence([a_session(), *starts])


def test_a_gate_is_found_by_its_node_id() -> None:
    evidence = gates("a/test_x.py::test_y[p]", "b/test_x.py::test_y[p]")
    assert [each.measurement_id for each in evidence.measurements("b/test_x.py::test_y[p]")] == [
        "m1"
    ]
    assert evidence.measurements("b/test_x.py::test_z") == ()
    assert evidence.gates == ("a/test_x.py::test_y[p]", "b/test_x.py::test_y[p]")


@pytest.mark.parametrize("asked", ["test_x.py::C::test_y", "root/perf_suites/test_x.py::C::test_y"])
def test_a_gate_made_under_another_root_is_found_by_file_and_test(asked: str) -> None:
    evidence = gates("perf_suites/test_x.py::C::test_y", "perf_suites/test_x.py::test_y")
    assert [each.measurement_id for each in evidence.measurements(asked)] == ["m0"]


def test_an_ambiguous_gate_is_refused() -> None:
    with pytest.raises(EvidenceError) as caught:
        gates("a/test_x.py::test_y", "b/test_x.py::test_y").measurements("test_x.py::test_y")
    assert str(caught.value) == (
        "The evidence for test_x.py::test_y is ambiguous.\n"
        "Recorded are: a/test_x.py::test_y, b/test_x.py::test_y.\n"
        "Replay from the root folder in which the evidence was made."
    )


def test_measurements_come_by_round_and_call() -> None:
    starts = [
        a_measurement(measurement_id=f"{round_}{call}", round=round_, call=call)
        for round_, call in ((1, 1), (0, 1), (1, 0), (0, 0))
    ]
    found = Evidence([a_session(), *starts]).measurements("test_gate.py::test_gate")
    assert [each.measurement_id for each in found] == ["00", "01", "10", "11"]


def test_reading_while_a_session_writes_is_safe() -> None:
    evidence = Evidence([a_session(), a_measurement()])
    stop = threading.Event()

    def feed() -> None:
        number = 0
        while not stop.is_set() and number < 20_000:
            number += 1
            evidence.add(a_turn(number))

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        seen = [len(evidence.measured("m0")[0].turns) for _ in range(20)]
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)


def test_the_published_schema_is_the_one_of_the_records() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_the_published_schema_asks_for_its_number() -> None:
    session = json.loads(schema_text())["$defs"]["Session"]
    assert session["properties"]["schema"] == {"const": 1}
    assert "schema" in session["required"]


def test_the_schema_can_be_printed() -> None:
    command = [sys.executable, "-m", "pytest_llmperf.evidence"]
    done = subprocess.run([*command, "schema"], capture_output=True, text=True, check=True)
    assert done.stdout == schema_text()
    wrong = subprocess.run([*command, "scheme"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.endswith("usage: python -m pytest_llmperf.evidence schema\n")


def test_a_picture_stands_beside_the_evidence_and_may_be_drawn_again(tmp_path: Path) -> None:
    for drawn in ("<svg/>", "<svg>again</svg>"):
        path = keep_picture(tmp_path, "suite/test_a.py::test_b[four-4]", "queue", drawn)
    assert path == tmp_path / "pictures" / "test_b-four-4-queue.svg"
    assert path.read_text(encoding="utf-8") == "<svg>again</svg>"


def test_a_picture_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_text("in the way", encoding="utf-8")
    with pytest.raises(EvidenceError) as caught:
        keep_picture(tmp_path, "test_a.py::test_b", "queue", "<svg/>")
    assert str(caught.value) == (
        f"The picture {tmp_path / 'pictures' / 'test_b-queue.svg'} could not be written.\n"
        "The system says: File exists.\n"
        "Free space on that disk; the evidence is whole and can be replayed."
    )
