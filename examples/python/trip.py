"""A trip as a saga: points are taken, a person approves, the seat is booked. If the person says no,
the time is up, or no seat is left, the points are given back.

    python trip.py start trip-1     # from anywhere
    python trip.py approve XID      # later, from anywhere else
    python trip.py wait XID         # until it has ended
"""

import argparse
import json
import sys

from handfast_client import Coordinator, HandfastError, saga_status, saga_step, step_state


def steps(given) -> list:
    trip = f"{given.participant}/handfast/trip"
    debit = {"customer": given.customer, "points": given.points}
    return [
        saga_step("debit", "compensable", trip, "debit", debit, group=0),
        saga_step("approval", "signal", group=1),
        # The point of no return. The output of "debit", the step 0, is handed to it.
        saga_step("book", "pivot", trip, "book", {"flight": given.flight}, group=2, takes=[0]),
    ]


def show(reply) -> None:
    print(reply.xid, saga_status(reply), reply.cause)
    for step in reply.steps:
        output = json.loads(step.output) if step.output else ""
        print(f"  {step.name}: {step_state(step)} {output}".rstrip())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("what", choices=["start", "approve", "cancel", "show", "wait"])
    arguments.add_argument("saga", help="the key of the saga to start, or the XID of one")
    arguments.add_argument("--coordinator", default="127.0.0.1:7091")
    arguments.add_argument("--participant", default="http://127.0.0.1:7301")
    arguments.add_argument("--customer", type=int, default=7)
    arguments.add_argument("--points", type=int, default=30)
    arguments.add_argument("--flight", default="HF1")
    arguments.add_argument("--days", type=float, default=3, help="how long it waits for approval")
    given = arguments.parse_args()
    coordinator = Coordinator(given.coordinator, application="travel")
    try:
        show(act(coordinator, given))
    except HandfastError as error:
        sys.exit(str(error))
    finally:
        coordinator.close()


def act(coordinator: Coordinator, given):
    match given.what:
        case "start":
            days = given.days * 86_400
            return coordinator.start_saga(given.saga, "trip", steps(given), timeout_s=days)
        case "approve":
            return coordinator.signal_saga(given.saga, "approval", {"by": "the desk"})
        case "cancel":
            return coordinator.cancel_saga(given.saga, "not approved")
        case "show":
            return coordinator.saga(given.saga)
        case "wait":
            return coordinator.saga(given.saga, wait_s=60)


if __name__ == "__main__":
    main()
