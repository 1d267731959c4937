"""One process of hivemind's side in `latency`: a DHT node that stores what it is told, or asks until it holds
it.

Runs in an environment of its own that has hivemind and nothing of this package. The first line on standard
input is a JSON list of addresses to join; it answers with its own. Then `publish KEY BYTES` is answered with
the moment at which storing began, `hold KEY PAUSE_S` at once with `asking` and later with the moment at which
it holds the value. It ends with its input.
"""

# pyright: standard

import json
import os
import sys
import time

import hivemind  # pyright: ignore[reportMissingImports] - lives in the benchmark's environment only
from hivemind.utils.timed_storage import get_dht_time  # pyright: ignore[reportMissingImports]

KEEP_S = 300.0


def main() -> None:
    peers = json.loads(sys.stdin.readline())
    dht = hivemind.DHT(initial_peers=peers, host_maddrs=["/ip4/127.0.0.1/tcp/0"], use_ipfs=False, start=True)
    dht.run_coroutine(mend)
    say([str(address) for address in dht.get_visible_maddrs()])
    for line in sys.stdin:
        word, key, amount = line.split()
        if word == "publish":
            say(publish(dht, key, int(amount)))
        else:
            say("asking")
            say(hold(dht, key, float(amount)))
    dht.shutdown()


async def mend(dht: "hivemind.DHT", node: object) -> None:
    """Its event loop makes the pipe from the main process non-blocking, and a value above 16 kB that is not
    there whole when it looks ends the DHT. A blocking one is waited for."""
    del node
    os.set_blocking(dht._inner_pipe.fileno(), True)


def publish(dht: "hivemind.DHT", key: str, length: int) -> float:
    value = os.urandom(length)
    began = time.monotonic()
    stored = dht.store(key, value, expiration_time=get_dht_time() + KEEP_S, subkey="author")
    assert stored, "the DHT did not store the value"
    return began


def hold(dht: "hivemind.DHT", key: str, pause_s: float) -> float:
    while True:
        found = dht.get(key, latest=True)
        if found is not None and "author" in found.value:
            return time.monotonic()
        time.sleep(pause_s)


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
