import { healthOf } from "./containers.ts";
import type { ContainerDetail, ContainerSummary, EngineEvent } from "./engine.ts";

/** The effect of an event on the cached data of its container. */
export type Effect =
  /** The event changes no cached data, such as a command run in the container. */
  | { readonly kind: "none" }
  | { readonly kind: "gone" }
  | { readonly kind: "known"; readonly container: ContainerSummary }
  /** The event lacks data: query the engine. */
  | { readonly kind: "ask" };

/** Returns the effect of an event on a cached or unknown container. */
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

/** Docker's action names, and Podman's where they differ. */
const CHANGES: ReadonlyMap<string, "ask" | Change> = new Map(
  Object.entries<"ask" | Change>({
    // No event contains the image, the addresses or the time.
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

/** Returns the exit status of a `die` event; undefined if it has none. */
export function exitCodeOf(attributes: Readonly<Record<string, string>>): number | undefined {
  const text = attributes["exitCode"] ?? attributes["containerExitCode"] ?? "";
  return /^\d{1,3}$/.test(text) ? Number(text) : undefined;
}

/** Returns the cached part of a container's detail. */
export function summaryOf(detail: ContainerDetail): ContainerSummary {
  const { id, name, imageId, image, labels, state, health, createdAt, exitCode, addresses } = detail;
  return { id, name, imageId, image, labels, state, health, createdAt, exitCode, addresses };
}

/** Reports whether a list differs from the cached data of a container. */
export function differs(known: ContainerSummary | undefined, listed: ContainerSummary): boolean {
  if (known === undefined) return true;
  // Events do not show whether the engine restarts a container that exited.
  if (known.state === "exited" && listed.state === "restarting") return false;
  const { state, health, name, exitCode } = listed;
  return known.state !== state || known.health !== health || known.name !== name || known.exitCode !== exitCode;
}
