import type { ContainerSummary } from "../../../host/engine/engine.ts";
import type { Found } from "./standing.ts";
import type { ContainerRow, Ledger } from "./ledger.ts";

/** Labels of our containers; valid only together with the ledger. */
export const OWNER_LABEL = "io.holdfast.owner";
export const CONTAINER_LABEL = "io.holdfast.container";
const NONCE_LABEL = "io.holdfast.nonce";

/** Returns the engine's name of a definition's container. */
export const engineNameOf = (id: string): string => `holdfast-${id}`;

/** A container that the ledger knows. */
export interface Own {
  readonly row: ContainerRow;
  readonly container: ContainerSummary;
}

const CREATE_MS = 600_000;

/** Classified list of all containers with our label. */
export interface Sorted {
  /** Our containers by definition, newest first. */
  readonly own: ReadonlyMap<string, readonly Own[]>;
  /** Containers with our label that the ledger does not know. */
  readonly foreign: readonly ContainerSummary[];
  /** Rows whose container does not exist and will not appear. */
  readonly missing: readonly ContainerRow[];
}

/** Separates our containers from those that only carry the label: ours have a nonce that was recorded before creation. Pure. */
export function sortContainers(
  containers: Iterable<ContainerSummary>,
  ledger: Pick<Ledger, "containers">,
  now: number,
): Sorted {
  const own = new Map<string, Own[]>();
  const foreign: ContainerSummary[] = [];
  const seen = new Set<string>();
  for (const container of containers) {
    const row = ledger.containers.get(container.labels[NONCE_LABEL] ?? "");
    const isOwn =
      row !== undefined &&
      row.definition === container.labels[CONTAINER_LABEL] &&
      (row.engineId === undefined || row.engineId === container.id) &&
      !seen.has(row.nonce);
    if (!isOwn) {
      foreign.push(container);
      continue;
    }
    seen.add(row.nonce);
    own.set(row.definition, [...(own.get(row.definition) ?? []), { row, container }]);
  }
  for (const list of own.values()) list.sort((one, other) => other.row.createdAt - one.row.createdAt);
  // The engine may still create a container after the request was aborted.
  const isExpected = ({ engineId, createdAt }: ContainerRow): boolean =>
    engineId === undefined && Math.abs(now - createdAt) < CREATE_MS;
  const missing = [...ledger.containers.values()].filter((row) => !seen.has(row.nonce) && !isExpected(row));
  return { own, foreign, missing };
}

/** Returns the relevant container of a definition: the running one, else the newest. */
function foremost(own: readonly Own[]): Own | undefined {
  return own.find(({ container }) => stateOf(container) !== "stopped") ?? own[0];
}

/** Returns the state of a definition's containers. */
export function foundOf(own: readonly Own[]): Found | undefined {
  const one = foremost(own);
  if (one === undefined) return undefined;
  const { row, container } = one;
  const isUntidy = own.length > 1 || container.name !== engineNameOf(row.definition);
  return { id: container.id, hash: row.hash, is: stateOf(container), exitCode: container.exitCode, isUntidy };
}

export function stateOf({ state }: Pick<ContainerSummary, "state">): Found["is"] {
  if (state === "running" || state === "paused") return "running";
  return state === "restarting" ? "restarting" : "stopped";
}
