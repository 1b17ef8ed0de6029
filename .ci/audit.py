"""Looks up the pinned versions among published advisories (pip-audit), and says how many could not be looked up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUPPLY = ROOT / ".venv" / "supply"
OPTIONS = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=10", "--format=json")


def conclude(answer: dict[str, Any] | None, reason: str = "") -> tuple[str, int]:
    """What an answer of pip-audit says, and the exit code: 1 for a known hole. None: there was no answer."""
    rows = [] if answer is None else answer["dependencies"]
    missing = [row["name"] for row in rows if "skip_reason" in row]
    if len(missing) == len(rows):
        why = reason.strip().splitlines()[-1:] or ["the advisories of pypi.org cannot be reached from here"]
        return f"NOT AUDITED: no version was looked up ({why[0]}).", 0
    holes = [
        f"{row['name']} {row['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for row in rows
        for hole in row.get("vulns", [])
    ]
    lines = [*holes, f"{len(rows) - len(missing)} of {len(rows)} versions were looked up: {len(holes)} known holes."]
    if missing:
        lines.append(f"NOT AUDITED: {', '.join(missing)}.")
    return "\n".join(lines), 1 if holes else 0


def main() -> int:
    """Audits constraints.txt."""
    pins = SUPPLY / "pins.txt"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins.write_text("\n".join(line for line in lines if not line.startswith("#")), encoding="utf-8")
    command = [SUPPLY / "bin" / "pip-audit", f"--requirement={pins}", *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    words, code = conclude(answer, done.stderr if answer is None else "")
    print(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
