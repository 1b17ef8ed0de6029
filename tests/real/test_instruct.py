"""docs/how_to/instruct.md with the model that it names: experts, a chat, other tools and a second workbench."""

from __future__ import annotations

import pytest

from tests.api_server import serve_api, unused_port
from tests.instruct_page import SECOND, hashes_of, require_chat, require_same_models, use_home
from tests.real.conftest import Reader
from ui.api.app import create_app
from workbench.settings import get_settings

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore"),  # of peft
]


@pytest.mark.usefixtures("instructed")
def test_the_page_runs_as_it_is_written(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = unused_port()
    with serve_api(create_app(get_settings(), playground=False), port):
        assert require_chat(f"http://127.0.0.1:{port}/v1", capsys, monkeypatch)
    require_same_models(reader.folder, monkeypatch)
    expected = hashes_of("tutor/sea-chat")
    second = reader.folder / "second"
    for line in SECOND:
        reader.run(line, second)
    use_home(second, monkeypatch)
    assert hashes_of("tutor/sea-chat") == expected
    assert "tutor/sea-chat" in reader.outputs[SECOND[-1]]
