"""The attackers of the siege: the catalogue over and over, at a rate, in a process of their own.

usage: python -m tests.long.hostile.attackers < plan.json      prints what came back as JSON

The plan: target, rate (requests a second), seconds, seed. An attack of many requests takes as many
turns, so that bursts are rarer.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import allow_many_connections
from tests.long.hostile.catalogue import EVERY

AT_ONCE = 64  # attacks; where all of them wait for answers, the rate is not reached
SHARE_AT_MOST = 5.0  # seconds of the rate that one attack may take


class Attackers:
    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._free = threading.Semaphore(AT_ONCE)
        self._order: list[Attack] = []
        self.statuses: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.requests = 0

    def run(self, rate: float, seconds: float) -> None:
        """Returns when the time is over and the attacks under way have ended."""
        began = time.monotonic()
        due = began
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while due < began + seconds:
                time.sleep(max(0.0, due - time.monotonic()))
                attack = self.next_attack(rate)
                self._free.acquire()
                pool.submit(self._attack, attack)
                due = max(due + attack.requests / rate, time.monotonic() - 1)

    def next_attack(self, rate: float) -> Attack:
        if not self._order:
            allowed = [one for one in EVERY if one.requests <= SHARE_AT_MOST * rate]
            self._order = self._random.sample(allowed, len(allowed))
        return self._order.pop()

    def _attack(self, attack: Attack) -> None:
        try:
            replies = attack.send(self._target)
        except OSError as error:
            self.statuses[type(error).__name__] += 1
        else:
            self.statuses.update(str(reply.status) for reply in replies)
        finally:
            self.sent[attack.name] += 1
            self.requests += attack.requests
            self._free.release()


def main() -> None:
    plan = json.load(sys.stdin)
    allow_many_connections()
    attackers = Attackers(Target(**plan["target"]), plan["seed"])
    began = time.monotonic()
    attackers.run(plan["rate"], plan["seconds"])
    wall_s = time.monotonic() - began
    answer = {
        "attacks": sum(attackers.sent.values()),
        "kinds": len(attackers.sent),
        "requests": attackers.requests,
        "requests_per_s": round(attackers.requests / wall_s, 1),
        "statuses": dict(attackers.statuses.most_common()),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
