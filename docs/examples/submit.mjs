// Submit a task from Node.js: npm install @nats-io/transport-node @nats-io/jetstream
import { randomUUID } from "node:crypto";
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const task = {
  apiVersion: "orca.ai/v1",
  kind: "AITask",
  metadata: { name: "hello-javascript", namespace: "team-alpha" },
  spec: { taskType: "batch", image: "busybox", command: ["echo", "hello from JavaScript"] },
};

const nc = await connect({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  user: process.env.NATS_USER,
  pass: process.env.NATS_PASSWORD,
});
const taskId = randomUUID();
const subject = `orca.team-alpha.task.${taskId}.client.alice.TaskSubmitted`;
const event = { type: "orca.TaskSubmitted.v1", data: { manifest: task } };
await jetstream(nc).publish(subject, JSON.stringify(event)); // resolves once it is on disk
console.log(taskId);
await nc.close();
