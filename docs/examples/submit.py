"""Submit a task with a plain NATS client, no Orca package: pip install nats-py."""

import asyncio
import json
import os
import uuid

import nats

TASK = {
    "apiVersion": "orca.ai/v1",
    "kind": "AITask",
    "metadata": {"name": "hello-python", "namespace": "team-alpha"},
    "spec": {"taskType": "batch", "image": "busybox", "command": ["echo", "hello from Python"]},
}


async def main() -> None:
    nc = await nats.connect(
        os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
        user=os.environ.get("NATS_USER"),
        password=os.environ.get("NATS_PASSWORD"),
    )
    task_id = uuid.uuid4()
    subject = f"orca.team-alpha.task.{task_id}.client.alice.TaskSubmitted"
    event = {"type": "orca.TaskSubmitted.v1", "data": {"manifest": TASK}}
    await nc.jetstream().publish(subject, json.dumps(event).encode())  # returns once it is on disk
    print(task_id)
    await nc.close()


asyncio.run(main())
