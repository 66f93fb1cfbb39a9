import { healthOf } from "./containers.ts";
import type { ContainerDetail, ContainerSummary, EngineEvent } from "./engine.ts";

/** What an event does to what is known of its container. */
export type Effect =
  /** Nothing that is kept here, such as a command run in it. */
  | { readonly kind: "none" }
  | { readonly kind: "gone" }
  | { readonly kind: "known"; readonly container: ContainerSummary }
  /** The event says too little: the engine has to be asked. */
  | { readonly kind: "ask" };

/** Applies an event of a container that is known, or is not. */
export function effectOf(known: ContainerSummary | undefined, { action, attributes }: EngineEvent): Effect {
  if (action === "destroy" || action === "remove") return { kind: "gone" };
  const change = CHANGES.get(action.startsWith("health_status") ? "health_status" : action);
  if (change === undefined) return { kind: "none" };
  if (change === "ask" || known === undefined) return { kind: "ask" };
  return { kind: "known", container: { ...known, ...change(action, attributes) } };
}

type Change = (action: string, attributes: Readonly<Record<string, string>>) => Partial<ContainerSummary>;

const running: Change = () => ({ state: "running" });
const unchanged: Change = () => ({});

/** By the words of Docker, and Podman's own where they differ. */
const CHANGES: ReadonlyMap<string, "ask" | Change> = new Map(
  Object.entries<"ask" | Change>({
    // Image, addresses and the time are in no event.
    create: "ask",
    start: "ask",
    die: (_, attributes) => ({ state: "exited", exitCode: exitCodeOf(attributes), health: undefined, addresses: {} }),
    pause: () => ({ state: "paused", health: undefined }),
    unpause: running,
    rename: (_, { name }) => (name === undefined ? {} : { name }),
    health_status: (action, attributes) => ({ health: healthOf(action.split(": ")[1] ?? attributes["health_status"]) }),
    oom: unchanged,
    kill: unchanged,
    stop: unchanged,
    restart: unchanged,
    update: unchanged,
  }),
);

/** The exit status in a `die`; undefined when it is in none. */
export function exitCodeOf(attributes: Readonly<Record<string, string>>): number | undefined {
  const said = attributes["exitCode"] ?? attributes["containerExitCode"] ?? "";
  return /^\d{1,3}$/.test(said) ? Number(said) : undefined;
}

/** The part of a detail that is kept of every container. */
export function summaryOf(detail: ContainerDetail): ContainerSummary {
  const { id, name, imageId, image, labels, state, health, createdAt, exitCode, addresses } = detail;
  return { id, name, imageId, image, labels, state, health, createdAt, exitCode, addresses };
}

/** Whether a list says something else of a container than what is known. */
export function differs(known: ContainerSummary | undefined, listed: ContainerSummary): boolean {
  if (known === undefined) return true;
  // No event tells an end after which the engine starts it again from one that stays.
  if (known.state === "exited" && listed.state === "restarting") return false;
  const { state, health, name, exitCode } = listed;
  return known.state !== state || known.health !== health || known.name !== name || known.exitCode !== exitCode;
}
