"""The programs that the scenes start, in an image of their own."""

from __future__ import annotations

from dataclasses import replace

from tests.cluster import images

NAME = "kfp-scenes"
HEAD = "#!/usr/local/bin/python3\nimport os, sys, time\n"
ATTEMPT = "attempt = int(os.environ.get('KFP_RETRY_INDEX') or 0)\nprint('attempt', attempt, flush=True)\n"
WRITE = "folder = os.environ.get('GPUFLOW_OUTPUTS')\n"
PROGRAMS = {
    # Each word on a line of its own.
    "say": "print(*sys.argv[1:], sep='\\n')\n",
    # name=value: an output.
    "write": WRITE + "for word in sys.argv[1:]:\n    name, text = word.split('=', 1)\n"
    "    open(os.path.join(folder, name), 'w').write(text)\n",
    "end": "sys.exit(int(sys.argv[1]))\n",
    "hang": "time.sleep(float(sys.argv[1]))\n",
    # Fails until the attempt of that number; the first is 0.
    "good-from": ATTEMPT + "sys.exit(0 if attempt >= int(sys.argv[1]) else 3)\n",
    # Hangs until the attempt of that number, which ends well.
    "hangs-until": ATTEMPT + "time.sleep(900 if attempt < int(float(sys.argv[1])) else 0)\n" + WRITE
    + "if folder:\n    open(os.path.join(folder, 'o'), 'w').write('1')\n",
    # Its first start, counted in that folder over all pods, hangs or eats memory; the second ends well. A pod that was
    # deleted by force is made again under its own name, so neither its name nor Argo's count tells a second start.
    "struck-once": "how, place = sys.argv[1:]\nos.makedirs(place, exist_ok=True)\nnumber = len(os.listdir(place)) + 1\n"
    "open(os.path.join(place, f'{number:03}'), 'w').close()\nprint('start', number, flush=True)\nheld = []\n"
    "while number == 1 and how == 'eat':\n    held.append(b'x' * (8 << 20))\n"
    "time.sleep(900 if number == 1 else 0)\n" + WRITE
    + "if folder:\n    open(os.path.join(folder, 'o'), 'w').write('1')\n",
}  # fmt: skip


def register() -> str:
    """Make the image known; its name."""
    scripts = {f"usr/local/bin/{name}": HEAD + text for name, text in PROGRAMS.items()}

    def content() -> images.Content:
        base = images.CONTENTS["gpuflow"]()
        return replace(base, scripts={**base.scripts, **scripts})

    images.CONTENTS[NAME] = content
    images.IMAGES[NAME] = f"gpuflow.test/{NAME}:1"
    return NAME
