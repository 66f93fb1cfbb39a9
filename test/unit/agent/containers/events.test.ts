import { expect, test } from "vitest";
import { containerEvents, nextContainerEvents, type Memories } from "../../../../src/agent/containers/events.ts";
import type { ContainerStatus } from "../../../../src/agent/containers/model/compute.ts";
import { containerState } from "../../../support/containers/fake-compute.ts";

const MINUTE = 60_000;

/** Shows the containers at times, and returns the events of each. */
function reported(...moments: readonly (readonly [minute: number, ...list: ContainerStatus[]])[]) {
  let memories: Memories = new Map();
  return moments.map(([minute, ...list]) => {
    const step = nextContainerEvents(memories, list, minute * MINUTE);
    memories = step.memories;
    const raised = step.raised.map(({ eventType, level }) => `${level} ${eventType}`);
    return raised.concat(step.cleared.map(({ eventType }) => `over ${eventType}`));
  });
}
const ended = (restarts: number, more: Partial<ContainerStatus> = {}) => containerState({ restarts, ...more });

test("five exits in ten minutes are a crash loop, which ends after ten minutes without one", () => {
  expect(reported([0, ended(3)], [1, ended(5)], [5, ended(7)], [6, ended(8)], [7, ended(8)], [15.5, ended(8)])).toEqual(
    [[], [], [], ["WARNING Container Crash Loop"], [], ["over Container Crash Loop"]],
  );
  expect(reported([0, ended(0)], [5, ended(4)], [15.1, ended(5)]).flat()).toEqual([]);
  const job = { execType: "recurring" } as const;
  expect(reported([0, ended(0, job)], [1, ended(9, job)]).flat()).toEqual([]);
});

test("out of memory, health, and an image that is unavailable for a quarter of an hour", () => {
  expect(reported([0, ended(0)], [1, ended(0, { oomKills: 1 })], [11, ended(0, { oomKills: 1 })])).toEqual([
    [],
    ["WARNING Container Out Of Memory"],
    ["over Container Out Of Memory"],
  ]);
  expect(reported([0, ended(0, { health: "unhealthy" })], [1, ended(0, { health: "healthy" })])).toEqual([
    ["WARNING Container Unhealthy"],
    ["over Container Unhealthy"],
  ]);
  const failing = containerState({ state: "backoff", reason: "pull of web:1 failed: unauthorized" });
  const trying = containerState({ state: "pulling" });
  expect(
    reported([0, trying], [1, failing], [5, trying], [15.9, failing], [16, failing], [17, containerState()]),
  ).toEqual([[], [], [], [], ["WARNING Container Pull Failing"], ["over Container Pull Failing"]]);
});

test("reports at most one start of a container in ten minutes; a removed container clears its events", () => {
  const both = ended(0, { health: "unhealthy", oomKills: 1 });
  const sick = ended(0, { health: "unhealthy" });
  expect(reported([0, both, { ...sick, name: "db" }], [9, both], [10, both], [11])).toEqual([
    ["WARNING Container Out Of Memory", "WARNING Container Unhealthy"],
    ["over Container Unhealthy"],
    ["WARNING Container Unhealthy", "over Container Out Of Memory"],
    ["over Container Unhealthy"],
  ]);
});

test("clears what an earlier run of the agent raised", () => {
  const output: string[] = [];
  let now = 0;
  const open = {
    eventType: "Container Unhealthy",
    object: "container web",
    level: "WARNING",
    message: "",
    details: {},
    isAnnounced: true,
  } as const;
  const look = containerEvents(
    {
      raise: ({ eventType }) => output.push(`raise ${eventType}`),
      clear: ({ eventType, object }) => output.push(`clear ${eventType} ${object}`),
      openEvents: () => [open, { ...open, eventType: "Container Crash Loop" }, { ...open, eventType: "Network Error" }],
    },
    () => now,
  );
  look([containerState()]);
  expect(output).toEqual(["clear Container Unhealthy container web"]);
  now = 11 * MINUTE;
  look([containerState()]);
  expect(output.at(-1)).toBe("clear Container Crash Loop container web");
});
