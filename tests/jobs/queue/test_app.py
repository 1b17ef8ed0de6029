"""A folder is a queue: whole messages, each taken once, whatever happens to the folder."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection

from jobs.queue.app import make_app
from workbench.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def connect(settings: Settings) -> Connection:
    return make_app(settings).connection_for_write()


def test_messages_come_in_the_order_they_were_put(settings: Settings) -> None:
    with connect(settings) as connection:
        channel = connection.default_channel
        for number in range(5):
            channel._put("jobs", {"number": number, "properties": {}})
        assert channel._size("jobs") == 5
        assert [channel._get("jobs")["number"] for _ in range(5)] == list(range(5))
        with pytest.raises(Empty):
            channel._get("jobs")


def test_of_several_takers_one_gets_a_message(settings: Settings) -> None:
    with connect(settings) as connection:
        for number in range(200):
            connection.default_channel._put("jobs", {"number": number, "properties": {}})

    def take_all(_: int) -> list[int]:
        taken = []
        with connect(settings) as connection:
            while True:
                try:
                    taken.append(connection.default_channel._get("jobs")["number"])
                except Empty:
                    return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [number for some in pool.map(take_all, range(4)) for number in some]
    assert sorted(taken) == list(range(200))
    assert not list((settings.root / "queue").glob(".*"))


def test_what_is_no_message_is_passed_over(settings: Settings) -> None:
    with connect(settings) as connection:
        channel = connection.default_channel
        (channel.folder / "0_half.jobs.msg").write_text('{"half": ')
        channel._put("jobs", {"number": 1, "properties": {}})
        assert channel._get("jobs") == {"number": 1, "properties": {}}


def test_a_folder_that_was_removed_is_made_again(settings: Settings) -> None:
    with connect(settings) as connection:
        channel = connection.default_channel
        channel._put("jobs", {"number": 1, "properties": {}})
        shutil.rmtree(settings.root / "queue")
        assert channel._size("jobs") == 0
        channel._put("jobs", {"number": 2, "properties": {}})
        assert channel._get("jobs") == {"number": 2, "properties": {}}


def test_nothing_is_put_outside_the_home(settings: Settings) -> None:
    options = make_app(settings).conf.broker_transport_options
    assert {str(Path(folder).parent) for folder in options.values()} == {str(settings.root)}
