import { expect, test } from "vitest";
import { containerFacts } from "../../../../src/agent/containers/facts.ts";
import { containerMetrics } from "../../../../src/agent/containers/metrics.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { ShadowMap } from "../../../../src/protocol/values/shadow.ts";
import { containerState } from "../../../support/containers/fake-compute.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

test("has a few keys for each container, without default values", () => {
  expect(
    containerFacts([
      containerState(),
      containerState({ name: "db.1", state: "backoff", health: "unhealthy", restarts: 3 }),
    ]),
  ).toEqual({
    "container.web.state": "RUNNING",
    "container.db.1.state": "STOPPED",
    "container.db.1.health": "unhealthy",
    "container.db.1.restarts": 3,
  });
  expect(containerFacts([])).toEqual({});
});

test("leaves room for the rest of the shadow with any number of containers", () => {
  const many = Array.from({ length: 400 }, (_, at) =>
    containerState({ name: `${"n".repeat(59)}${at}`, health: "unhealthy", restarts: 1_000_000 }),
  );
  const facts = containerFacts(many);
  expect(ShadowMap.parse(facts)).toEqual(facts);
  expect(JSON.stringify(facts).length).toBeLessThan(17_000);
  const shown = Object.keys(facts).filter((key) => key.endsWith(".state")).length;
  expect(shown + Number(facts["container.more"])).toBe(400);
});

test("has counts, and the total usage of all containers", () => {
  let now = 0;
  const group = "/sys/fs/cgroup/holdfast-containers";
  const files = (usage: number) => ({
    [`${group}/cgroup.procs`]: "",
    [`${group}/memory.current`]: "123456\n",
    [`${group}/cpu.stat`]: `usage_usec ${usage}\nuser_usec 1\n`,
  });
  let root = machineRoot(files(1_000_000)).reader;
  let list = [containerState({ restarts: 2 }), containerState({ health: "unhealthy", state: "idle", restarts: 1 })];
  const sample = containerMetrics({
    clock: { elapsed: () => now },
    reader: { read: (path) => root.read(path) },
    containers: () => list,
  });
  const counts = { containers: 2, "containers.running": 1, "containers.unhealthy": 1, "containers.restarts": 3 };
  expect(sample()).toEqual({ ...counts, "containers.mem": 123_456 });
  now = 60_000;
  root = machineRoot(files(31_000_000)).reader;
  expect(sample()).toEqual({ ...counts, "containers.mem": 123_456, "containers.cpu": 50 });
  root = hostReader("/nowhere");
  expect(sample()).toEqual(counts);
  list = [];
  expect(sample()).toEqual({});
});
