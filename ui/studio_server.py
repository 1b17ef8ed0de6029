"""`python -P -m ui.studio_server`: the studio, on this machine only, on the port of this machine's settings."""

from __future__ import annotations

from pathlib import Path

from engine.device import prepare_process
from workbench.settings import Settings, get_settings

SCRIPT = Path(__file__).with_name("studio.py")


def arguments(settings: Settings) -> list[str]:
    """Streamlit's command line. The studio asks for no token, so it listens beyond this machine for nobody."""
    return [
        "run",
        str(SCRIPT),
        "--server.address=127.0.0.1",
        f"--server.port={settings.studio_port}",
        "--server.headless=true",
        "--server.fileWatcherType=none",
        "--server.showEmailPrompt=false",
        # A name that was rebound to our address (DNS rebinding) is not one of these.
        "--server.allowedHosts=127.0.0.1",
        "--server.allowedHosts=localhost",
        # A .streamlit folder where the studio happens to be started must not loosen or move it.
        "--server.enableCORS=true",
        "--server.enableXsrfProtection=true",
        "--server.enableStaticServing=false",
        "--server.baseUrlPath=",
        f"--secrets.files={SCRIPT.with_name('.streamlit') / 'secrets.toml'}",
        "--browser.serverAddress=127.0.0.1",
        "--browser.gatherUsageStats=false",
        "--global.developmentMode=false",
    ]


def main() -> None:
    """Serves until it is stopped."""
    settings = get_settings()
    prepare_process(settings.threads)
    from streamlit.web.cli import main as streamlit

    streamlit(arguments(settings), prog_name="streamlit")


if __name__ == "__main__":
    main()
