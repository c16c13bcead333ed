"""A worker of cases in a process of its own, which tests kill. Usage: worker_process.py FOLDER ADDRESS PUBLIC_KEY."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from activities import signatures as sig
from activities.asking import AskActivities
from activities.folding import Folding
from activities.messaging import MessageActivities
from activities.recording import RecordingActivities
from medevac.incident import IncidentView
from tests.unit.activities.casehouse import CaseHouse
from worker.connection import MedevacPlugin
from workflows.approval import ApprovalWorkflow
from workflows.case import CaseWorkflow


async def main(folder: Path, address: str, key: str) -> None:
    client = await Client.connect(address, plugins=[MedevacPlugin()])

    def confirm(view: IncidentView, who: str, why: str, token: str) -> None:
        with (folder / "confirmed").open("a") as told:
            told.write(f"{view.id}\n")

    house = CaseHouse(folder, anew=False, confirm=confirm)
    messages = MessageActivities(house.registry, house.once, Folding(house.ledger, house.bounded))
    executor = ThreadPoolExecutor(8)
    common = {"max_concurrent_activities": 8, "activity_executor": executor}
    main_queue = Worker(
        client,
        task_queue=sig.Queue.MAIN.value,
        workflows=[CaseWorkflow, ApprovalWorkflow],
        activities=[
            house.casework.step,
            AskActivities(house.ledger, client, asyncio.get_running_loop(), [key]).ask,
            RecordingActivities(house.ledger).record,
        ],
        **common,  # type: ignore[arg-type]
    )
    chat = Worker(client, task_queue=sig.Queue.CHAT.value, activities=[messages.notify], **common)  # type: ignore[arg-type]
    await asyncio.gather(main_queue.run(), chat.run())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
