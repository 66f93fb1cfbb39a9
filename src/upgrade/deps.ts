import type { Clock } from "../host/clock.ts";
import type { Versions } from "../host/releases/versions.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { UpgradeRequest, UpgradeStanding } from "../protocol/documents/release.ts";
import type { JudgeLimits } from "./judge.ts";
import type { LocalAgent } from "./local-agent.ts";
import type { Probe } from "./probe.ts";
import type { RequestBox } from "./request-box.ts";

/** Reports the start of a step, and the version once it is known. */
export type OnStep = (step: NonNullable<UpgradeStanding["step"]>, to?: string) => Promise<void>;

/**
 * Fetches, verifies, unpacks, tests and stages the requested release, reusing the results of an interrupted run. Returns its
 * version.
 * @throws {AgentError} with the code of the failed upgrade
 */
export type Prepare = (request: UpgradeRequest, onStep: OnStep, signal: AbortSignal) => Promise<string>;

/** Effects of an upgrade on the machine, apart from files. */
export interface Services {
  /** Stops the agent and starts the newest version's; need not wait for either. */
  restartAgent(signal: AbortSignal): Promise<void>;
  /** Starts the agent unless it is running or starting. */
  startAgent(signal: AbortSignal): Promise<void>;
  /** Updates the packages of the operating system; returns false if no tool is installed for this. */
  updateSystem(signal: AbortSignal): Promise<boolean>;
  /** Replaces the running overlay with one of the newest version, which takes over all flows. */
  succeedOverlay(version: string, signal: AbortSignal): Promise<void>;
}

export interface UpgradeLimits extends JudgeLimits {
  readonly everyMs: number;
  /** Minimum interval between probes of the control plane, which may be overloaded, in milliseconds. */
  readonly askEveryMs: number;
  /** Time to wait for a pending network change, in milliseconds. */
  readonly pendingMs: number;
  /** Time for the old version to respond after a rollback, and to get its session when it is compared, in milliseconds. */
  readonly backMs: number;
  /** Time during which crashes of a proven version still count, in seconds. */
  readonly probationSeconds: number;
}

export interface UpgradeDeps {
  readonly versions: Versions;
  readonly requests: RequestBox;
  readonly prepare: Prepare;
  readonly services: Services;
  readonly agent: LocalAgent;
  /** Reports whether an unconfirmed network change is on disk; the only source while no agent responds. */
  readonly isChangeLeft: () => Promise<boolean>;
  /** Returns the addresses that the node must reach and the proxy, as stored on disk. */
  readonly targets: () => Promise<NetworkTargets | undefined>;
  readonly probe: Probe;
  readonly clock: Clock;
  readonly bootId: string;
  /** The version of this program, which is never the one on trial. */
  readonly ownVersion: string;
  readonly limits: UpgradeLimits;
  readonly print: (line: string) => void;
}
