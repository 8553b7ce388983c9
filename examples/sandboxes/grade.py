"""Grade three answers, each in a sandbox of its own: `python3 grade.py`."""

from __future__ import annotations

import asyncio

import rota

ANSWERS = {
    "ada": "def add(a, b):\n    return a + b\n",
    "bob": "def add(a, b):\n    return a - b\n",
    "eve": "import time\ndef add(a, b):\n    time.sleep(60)\n",
}
CHECK = "from answer import add\nassert add(2, 2) == 4, f'add(2, 2) is {add(2, 2)}'\n"
SECONDS_MAX = 10


async def grade(client: rota.Client, name: str) -> str:
    """Run an answer in a sandbox, where it can do no harm."""
    async with client.claim("boxes") as box:
        await box.files.write_text("answer.py", ANSWERS[name])
        await box.files.write_text("check.py", CHECK)
        try:
            result = await box.exec(["python3", "check.py"], timeout=SECONDS_MAX)
        except TimeoutError:
            return f"{name}: took longer than {SECONDS_MAX} s"
    return f"{name}: passed" if result.exit_code == 0 else f"{name}: {result.stderr.splitlines()[-1]}"


async def main() -> None:
    client = rota.Client()
    try:
        for line in await asyncio.gather(*(grade(client, name) for name in ANSWERS)):
            print(line)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
