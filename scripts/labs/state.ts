// What is known of a lab between two commands, in one file of its directory.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Layout } from "./layout.ts";

export type Direction = "in" | "out" | "both";

/** Injected faults of a site. */
export interface SiteFaults {
  /** Milliseconds that a round trip to the gateways takes longer. */
  readonly lagMs?: number;
  readonly drop?: { readonly percent: number; readonly direction: Direction };
  readonly isUdpBlocked?: true;
}

export interface LabState {
  readonly layout: Layout;
  /** Whether `up` came to its end. */
  readonly isUp: boolean;
  /** The nodes by name. */
  readonly uids: Readonly<Record<string, string>>;
  /** Number of address changes of each host. */
  readonly moves: Readonly<Record<string, number>>;
  /** Hosts whose link is cut. */
  readonly cut: readonly string[];
  /** Hosts whose programs are stopped. */
  readonly paused: readonly string[];
  /** By the name of the edge. */
  readonly faults: Readonly<Record<string, SiteFaults>>;
}

/** A lab with nothing wrong yet. */
export function newState(layout: Layout): LabState {
  return { layout, isUp: false, uids: {}, moves: {}, cut: [], paused: [], faults: {} };
}

const fileOf = (dir: string): string => join(dir, "lab.json");

/** The state of the lab in a directory; undefined when there is none. */
export function readState(dir: string): LabState | undefined {
  const path = fileOf(dir);
  // Nobody but this writes it, whole.
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as LabState) : undefined;
}

/** Replaces the state on disk, all or nothing. */
export function writeState(dir: string, state: LabState): void {
  writeFileSync(`${fileOf(dir)}.new`, `${JSON.stringify(state, undefined, 2)}\n`, { mode: 0o600 });
  renameSync(`${fileOf(dir)}.new`, fileOf(dir));
}
