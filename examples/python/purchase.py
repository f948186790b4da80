"""Buys a flight with points, as one global transaction: points and seat, or neither.

    python purchase.py --customer 7 --flight HF1 --points 30
"""

import argparse
import sys
import urllib.request

from handfast_client import Coordinator, HandfastError, OutcomeUnknown, Refused, RolledBack


def buy(coordinator: Coordinator, given, number: int) -> None:
    with coordinator.transaction("purchase", timeout_s=30) as xid:
        if given.orders:
            place_order(given.orders, xid, number)
        debit = {"customer": given.customer, "points": given.points}
        coordinator.try_branch(xid, f"{given.participant}/handfast/debit", debit)
        coordinator.try_branch(xid, f"{given.participant}/handfast/seat", {"flight": given.flight})


def place_order(url: str, xid: str, number: int) -> None:
    """Calls a service that works in the global: it finds the XID in the header."""
    headers = {"TX_XID": xid, "TX-XID": xid}
    request = urllib.request.Request(f"{url}/orders/{number}", method="POST", headers=headers)
    with urllib.request.urlopen(request, timeout=10):
        pass


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--coordinator", default="127.0.0.1:7091")
    arguments.add_argument("--participant", default="http://127.0.0.1:7301")
    arguments.add_argument("--orders", help="a service in AT mode that places the order as well")
    arguments.add_argument("--customer", type=int, default=7)
    arguments.add_argument("--points", type=int, default=30)
    arguments.add_argument("--flight", default="HF1")
    arguments.add_argument("--first", type=int, default=1, help="the number of the first order")
    arguments.add_argument("--count", type=int, default=1)
    given = arguments.parse_args()
    coordinator = Coordinator(given.coordinator, application="purchase")
    counts = {"bought": 0, "refused": 0, "undone": 0, "unknown": 0}
    for number in range(given.first, given.first + given.count):
        try:
            buy(coordinator, given, number)
            counts["bought"] += 1
        except Refused as refusal:
            counts["refused"] += 1
            print(f"refused: {refusal}")
        except OutcomeUnknown as error:
            counts["unknown"] += 1
            print(f"not answered: ask for the status of {error}", file=sys.stderr)
        except (RolledBack, HandfastError, OSError) as error:
            counts["undone"] += 1
            print(f"rolled back: {error}", file=sys.stderr)
    coordinator.close()
    print(*(f"{name} {count}" for name, count in counts.items()), sep=", ")


if __name__ == "__main__":
    main()
