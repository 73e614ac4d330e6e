"""Twenty kills at random moments; ``make soak`` has two hundred."""

import json
import subprocess
import sys
from pathlib import Path


def test_kills_lose_nothing_and_repeat_nothing():
    script = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "20"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 20 and len(found["seconds"]) == 7
    assert (found["lost"], found["repeated"], found["faults"]) == (0, 0, [])
