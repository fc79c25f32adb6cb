from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature.digests import check_digests, file_digest, write_digests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")
    write_digests(tmp_path)
    return tmp_path


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_digests_are_listed_by_path_as_sha256sum_does(folder: Path) -> None:
    assert (folder / "DIGESTS").read_text() == f"{sha(b'one')}  a\n{sha(b'two')}  b/two\n"


def test_writing_them_twice_changes_nothing(folder: Path) -> None:
    before = (folder / "DIGESTS").read_text()
    assert write_digests(folder) == file_digest(folder / "DIGESTS")
    assert (folder / "DIGESTS").read_text() == before


def test_an_untouched_folder_is_known_by_the_digest_of_its_digests(folder: Path) -> None:
    assert check_digests(folder) == file_digest(folder / "DIGESTS")


def test_all_damaged_and_missing_files_are_named_at_once(folder: Path) -> None:
    (folder / "a").write_bytes(b"uno")
    (folder / "b" / "two").unlink()
    with pytest.raises(UsageError) as raised:
        check_digests(folder)
    assert str(raised.value) == (
        f"2 of the files in {folder} are not the ones that were shipped.\n"
        f"a: sha256 is {sha(b'uno')[:16]}..., shipped was {sha(b'one')[:16]}...\n"
        "b/two: missing\n"
        "Install the package again; after training, let the trainer write DIGESTS."
    )


def test_a_folder_without_digests_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        check_digests(tmp_path)
    assert str(raised.value) == (
        f"The folder {tmp_path} has no DIGESTS, so its files cannot be trusted.\n"
        f"Looked for {tmp_path / 'DIGESTS'}.\n"
        "Install the package again, or train anew: python -m pytest_llmperf.miniature.train."
    )
