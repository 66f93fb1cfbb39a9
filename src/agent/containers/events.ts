import type { ContainerStatus } from "./model/compute.ts";
import type { EventInput, EventLog } from "../telemetry/events.ts";

/** Event types of containers. */
const TYPES = {
  crashes: "Container Crash Loop",
  memory: "Container Out Of Memory",
  health: "Container Unhealthy",
  pull: "Container Pull Failing",
} as const;
type Trouble = keyof typeof TYPES;
const TROUBLES = ["crashes", "memory", "health", "pull"] as const;

const WINDOW_MS = 600_000;
const LOOP_EXITS = 5;
const PULL_MS = 900_000;
const MAX_CONTAINERS = 1000;
/** Prefix of the supervisor's message about an image that cannot be pulled. */
const PULL = /^(?:pull of |no room for an image)/;

/** Event state of a container; times are monotonic milliseconds. */
interface Memory {
  readonly restarts: number;
  readonly oomKills: number;
  readonly exits: readonly number[];
  readonly oomAt: number | undefined;
  readonly pullSince: number | undefined;
  readonly raisedAt: number | undefined;
  readonly open: ReadonlySet<Trouble>;
}

export type Memories = ReadonlyMap<string, Memory>;

export interface ContainerEventStep {
  readonly memories: Memories;
  readonly raised: readonly EventInput[];
  readonly cleared: readonly Omit<EventInput, "level">[];
}

/** Decides which events to raise and clear: one per problem, at most one new event per container in ten minutes. Pure. */
export function nextContainerEvents(
  before: Memories,
  containers: readonly ContainerStatus[],
  now: number,
): ContainerEventStep {
  const memories = new Map<string, Memory>();
  const raised: EventInput[] = [];
  const cleared: Omit<EventInput, "level">[] = [];
  for (const status of containers.slice(0, MAX_CONTAINERS)) {
    const { name } = status;
    const seen = advance(before.get(name), status, now);
    const holding = troublesOf(seen, status, now);
    const open = new Set(seen.open);
    let { raisedAt } = seen;
    for (const trouble of TROUBLES) {
      const text = holding.get(trouble);
      if (text === undefined && open.delete(trouble))
        cleared.push({ ...about(trouble, name), message: OVER[trouble](name) });
      if (text === undefined || open.has(trouble)) continue;
      if (raisedAt !== undefined && now - raisedAt < WINDOW_MS) continue;
      open.add(trouble);
      raisedAt = now;
      raised.push({ ...about(trouble, name), level: "WARNING", message: text });
    }
    memories.set(name, { ...seen, open, raisedAt });
  }
  for (const [name, { open }] of before) {
    if (memories.has(name)) continue;
    for (const trouble of open)
      cleared.push({ ...about(trouble, name), message: `Container ${name} is not configured any longer` });
  }
  return { memories, raised, cleared };
}

const OVER: Readonly<Record<Trouble, (name: string) => string>> = {
  crashes: (name) => `Container ${name} has not ended for ten minutes`,
  memory: (name) => `Container ${name} has had enough memory for ten minutes`,
  health: (name) => `Container ${name} is not unhealthy any longer`,
  pull: (name) => `The image of container ${name} is there, or is not wanted any longer`,
};

function about(trouble: Trouble, name: string) {
  return { eventType: TYPES[trouble], object: `container ${name}` };
}

function advance(known: Memory | undefined, status: ContainerStatus, now: number): Memory {
  const { restarts, oomKills, reason = "", state } = status;
  const exits = Math.min(Math.max(0, restarts - (known?.restarts ?? restarts)), LOOP_EXITS);
  const recent = [...(known?.exits ?? []), ...Array<number>(exits).fill(now)].filter((at) => now - at < WINDOW_MS);
  const isPullFailing = PULL.test(reason) && state !== "running";
  return {
    restarts,
    oomKills,
    exits: recent.slice(-LOOP_EXITS),
    oomAt: oomKills > (known?.oomKills ?? 0) ? now : known?.oomAt,
    // Nothing is reported of the last failure during a retry.
    pullSince:
      isPullFailing || state === "pulling" ? (known?.pullSince ?? (isPullFailing ? now : undefined)) : undefined,
    raisedAt: known?.raisedAt,
    open: known?.open ?? new Set(),
  };
}

function troublesOf(
  { exits, oomAt, pullSince }: Memory,
  { name, execType, health, reason, lastExitCode }: ContainerStatus,
  now: number,
): ReadonlyMap<Trouble, string> {
  const found = new Map<Trouble, string>();
  const code = lastExitCode === undefined ? "" : `, the last time with exit code ${lastExitCode}`;
  if (execType === "service" && exits.length >= LOOP_EXITS) {
    found.set("crashes", `Container ${name} ended ${LOOP_EXITS} times in ten minutes${code}`);
  }
  if (oomAt !== undefined && now - oomAt < WINDOW_MS) {
    found.set("memory", `Container ${name} ran out of memory, and the kernel killed a process of it`);
  }
  if (health === "unhealthy") found.set("health", `Container ${name} is unhealthy by its own check`);
  if (pullSince !== undefined && now - pullSince >= PULL_MS) {
    found.set("pull", `The image of container ${name} cannot be had: ${reason ?? "being tried"}`);
  }
  return found;
}

/** Raises and clears the events of containers; called on every change and every minute. */
export function containerEvents(
  events: Pick<EventLog, "raise" | "clear" | "openEvents">,
  elapsed: () => number,
): (containers: readonly ContainerStatus[]) => void {
  let memories: Memories = adopted(events.openEvents(), elapsed());
  return (containers) => {
    const step = nextContainerEvents(memories, containers, elapsed());
    memories = step.memories;
    for (const event of step.cleared) events.clear(event);
    for (const event of step.raised) events.raise(event);
  };
}

/** Clears events that an earlier run of the agent raised. */
function adopted(open: ReturnType<EventLog["openEvents"]>, now: number): Memories {
  const memories = new Map<string, Memory>();
  for (const { eventType, object } of open) {
    const trouble = TROUBLES.find((one) => TYPES[one] === eventType);
    if (trouble === undefined || !object.startsWith("container ")) continue;
    const name = object.slice("container ".length);
    const known = memories.get(name);
    memories.set(name, {
      restarts: 0,
      oomKills: 0,
      // Recovery is decided within the next ten minutes.
      exits: trouble === "crashes" ? Array<number>(LOOP_EXITS).fill(now) : (known?.exits ?? []),
      oomAt: trouble === "memory" ? now : known?.oomAt,
      pullSince: trouble === "pull" ? now - PULL_MS : known?.pullSince,
      raisedAt: undefined,
      open: new Set([...(known?.open ?? []), trouble]),
    });
  }
  return memories;
}
