"""A shared store on S3, played by moto's server: complete or absent, verified on arrival, clear about faults."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine.files import MANIFEST, sha256_of, verify_folder, write_manifest
from jobs.attempt.finish import outcome_of
from tests.services.s3_server import BUCKET, S3, SECRET, moto, use
from workbench.errors import BadSettingsError, StorageError, StoreFailedError
from workbench.schema.tables import Artifact
from workbench.settings import Settings, read_settings
from workbench.store.object_store import ObjectStore
from workbench.store.storage import Storage, get_storage

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with moto() as started:
        yield started


@pytest.fixture
def store(server: S3, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A prefix of its own in the bucket."""
    use(server, monkeypatch)
    made = ObjectStore(f"s3://{BUCKET}/{uuid.uuid4().hex}")
    if not made._fs.exists(BUCKET):
        made._fs.mkdir(BUCKET)
    return made


def on_machine(folder: Path, store: ObjectStore) -> Storage:
    return Storage(folder / "artifacts", store)


def add(storage: Storage, text: str = "weights") -> Artifact:
    id = uuid.uuid4().hex
    with storage.new(id) as folder:
        (folder / "model").mkdir()
        (folder / "model" / "weights.bin").write_text(text)
        (folder / "card.json").write_text("{}")
    sha256, size = storage.describe(id)
    return Artifact(id=id, kind="thing", sha256=sha256, size_bytes=size)


def test_another_machine_gets_the_same_bytes_and_keeps_them(tmp_path: Path, store: ObjectStore) -> None:
    artifact = add(on_machine(tmp_path / "a", store))
    there = on_machine(tmp_path / "b", store)
    assert not there.place(artifact.id).exists()
    ref = there.kept(artifact)
    assert ref.check() == artifact.sha256
    assert (ref.folder / "model" / "weights.bin").read_text() == "weights"
    store.remove(f"artifacts/{artifact.id}")
    assert there.path(artifact.id).is_dir()  # from now on it is here


def test_an_artifact_that_is_nowhere_is_reported_as_ever(tmp_path: Path, store: ObjectStore) -> None:
    with pytest.raises(StorageError, match="There is no artifact in"):
        on_machine(tmp_path, store).describe(uuid.uuid4().hex)


def test_a_changed_copy_on_this_machine_is_fetched_again(tmp_path: Path, store: ObjectStore) -> None:
    artifact = add(on_machine(tmp_path / "a", store))
    there = on_machine(tmp_path / "b", store)
    file = there.path(artifact.id) / "model" / "weights.bin"
    file.write_text("Weights")
    assert there.kept(artifact).check() == artifact.sha256
    assert file.read_text() == "weights"


def test_a_byte_that_changes_in_transfer_is_fetched_again(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = add(on_machine(tmp_path / "a", store))
    real, calls = store._fs.get_file, list[str]()

    def flaky(place: str, path: str) -> None:
        real(place, path)
        calls.append(place)
        if len(calls) == 1:
            Path(path).write_bytes(b"garbled")

    monkeypatch.setattr(store._fs, "get_file", flaky)
    folder = on_machine(tmp_path / "b", store).path(artifact.id)
    assert verify_folder(folder, artifact.sha256) == artifact.sha256
    assert len(calls) == 3  # of two files


def test_a_changed_byte_in_the_store_is_refused_and_leaves_nothing(tmp_path: Path, store: ObjectStore) -> None:
    artifact = add(on_machine(tmp_path / "a", store))
    store.write(f"artifacts/{artifact.id}/card.json", b"[]")
    there = on_machine(tmp_path / "b", store)
    with pytest.raises(StorageError, match=r"card\.json in the store .* its bytes changed"):
        there.path(artifact.id)
    assert list(there.folder.iterdir()) == []


def test_a_folder_without_its_manifest_is_not_there(tmp_path: Path, store: ObjectStore) -> None:
    """An upload that was killed: the manifest is the last file."""
    artifact = add(on_machine(tmp_path / "a", store))
    store.remove(f"artifacts/{artifact.id}/{MANIFEST}")
    assert not on_machine(tmp_path / "b", store).path(artifact.id).exists()


def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path: Path, store: ObjectStore) -> None:
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "a").write_text("a")
    write_manifest(folder)
    manifest = (folder / MANIFEST).read_text().replace('"a"', '"../../a"')
    id = uuid.uuid4().hex
    store.write(f"artifacts/{id}/{MANIFEST}", manifest.encode())
    with pytest.raises(StorageError, match=r"The manifest of .* is damaged"):
        on_machine(tmp_path, store).path(id)


def test_without_the_store_a_new_artifact_is_not_there_either(tmp_path: Path, store: ObjectStore) -> None:
    away = ObjectStore(store.url.replace(BUCKET, "no-such-bucket"))
    storage = on_machine(tmp_path, away)
    with pytest.raises(StoreFailedError, match="There is no bucket “no-such-bucket”") as caught:
        add(storage)
    assert list(storage.folder.iterdir()) == []
    outcome = outcome_of(caught.value, tmp_path, tmp_path / "log.txt")
    assert (outcome.state, outcome.next_step) == ("paused", caught.value.next_step)


def test_a_store_that_does_not_answer_is_reported_with_the_next_step(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StoreFailedError, match="does not answer") as caught:
        add(on_machine(tmp_path, ObjectStore(store.url + "/away")))
    assert "Check AWS_ENDPOINT_URL" in caught.value.next_step
    assert SECRET not in str(caught.value)


def test_a_server_that_does_not_know_the_key_refuses_it(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto(INITIAL_NO_AUTH_ACTION_COUNT="3") as strict:  # making the bucket takes three requests
        monkeypatch.setenv("AWS_ENDPOINT_URL", strict.address)
        refused = ObjectStore(store.url)
        refused._fs.mkdir(BUCKET)
        with pytest.raises(StoreFailedError, match=r"refuses the credentials \(\w+\)") as caught:
            add(on_machine(tmp_path, refused))
    assert SECRET not in f"{caught.value!r} {caught.value}"


class _RefusesTheTime(BaseHTTPRequestHandler):
    """A server of S3 whose clock is another."""

    def do_PUT(self) -> None:
        self.send_response(403)
        self.end_headers()
        self.wfile.write(
            b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
        )

    do_GET = do_HEAD = do_PUT

    def log_message(self, *_: object) -> None:
        pass


def test_a_store_whose_clock_differs_says_so(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _RefusesTheTime) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreFailedError, match=r"clock .* differ too much") as caught:
            add(on_machine(tmp_path, ObjectStore(store.url)))
        server.shutdown()
    assert caught.value.next_step.startswith("Set this machine's clock")


def test_missing_or_refused_credentials_are_never_printed(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RefusedError(PermissionError):
        pass

    def refuse(*_: object) -> None:
        raise RefusedError(f"The key reader with {SECRET} is not known")

    monkeypatch.setattr(store._fs, "put_file", refuse)
    with pytest.raises(StoreFailedError, match="refuses the credentials") as caught:
        add(on_machine(tmp_path, store))
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.next_step
    assert SECRET not in f"{caught.value!r} {caught.value}"
    assert caught.value.__suppress_context__


def test_the_parts_of_an_upload_that_was_killed_are_removed(store: ObjectStore) -> None:
    def begin(key: str) -> None:
        started = store._fs.call_s3("create_multipart_upload", Bucket=BUCKET, Key=key)
        part = {"UploadId": started["UploadId"], "PartNumber": 1, "Body": b"half"}
        store._fs.call_s3("upload_part", Bucket=BUCKET, Key=key, **part)

    prefix = store.url.rpartition("/")[2]
    for key in (f"{prefix}/artifacts/a/model", f"{prefix}2/artifacts/b/model"):
        begin(key)
    assert store.remove_unfinished(older_than_seconds=1e10) == []
    assert store.remove_unfinished(older_than_seconds=-60) == ["artifacts/a/model"]  # the other is another project's
    assert store.remove_unfinished(older_than_seconds=-60) == []


def test_a_full_store_is_reported_as_full(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("XMinioStorageFull: Storage backend has reached its minimum free drive threshold.")

    monkeypatch.setattr(store._fs, "put_file", refuse)
    with pytest.raises(StoreFailedError, match="is full"):
        add(on_machine(tmp_path, store))


def test_a_shared_folder_serves_as_a_store_and_is_not_created(tmp_path: Path) -> None:
    shared = ObjectStore(f"file://{tmp_path}/mount")
    with pytest.raises(StoreFailedError, match="There is no folder"):
        add(on_machine(tmp_path / "a", shared))
    assert not (tmp_path / "mount").exists()
    (tmp_path / "mount").mkdir()
    artifact = add(on_machine(tmp_path / "a", shared))
    copy = on_machine(tmp_path / "b", shared).path(artifact.id)
    assert sha256_of(copy / MANIFEST) == artifact.sha256


@pytest.mark.parametrize("url", ["s3://key:secret@bucket", "ftp://there", "s3://", "bucket/prefix", "s3://b?x=1"])
def test_an_address_that_is_no_store_or_has_credentials_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", url)
    with pytest.raises(BadSettingsError, match="WORKBENCH_STORE must be") as caught:
        read_settings()
    assert "secret" not in str(caught.value)


def test_the_settings_name_the_store(tmp_path: Path) -> None:
    assert get_storage(Settings(home=tmp_path)).shared is None
    shared = get_storage(Settings(home=tmp_path, store="s3://bucket/prefix/")).shared
    assert shared is not None
    assert shared.url == "s3://bucket/prefix"
