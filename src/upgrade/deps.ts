import type { Clock } from "../host/clock.ts";
import type { Versions } from "../host/releases/versions.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { UpgradeRequest, UpgradeStanding } from "../protocol/documents/release.ts";
import type { JudgeLimits } from "./judge.ts";
import type { LocalAgent } from "./local-agent.ts";
import type { Probe } from "./probe.ts";
import type { RequestBox } from "./request-box.ts";

/** Says which step has begun, and for which version once that is known. */
export type OnStep = (step: NonNullable<UpgradeStanding["step"]>, to?: string) => Promise<void>;

/**
 * Fetches, verifies, unpacks, tests and stages the release that a request names; what a cut left is used again. Resolves to its version.
 * @throws {AgentError} with the code that the upgrade fails with
 */
export type Prepare = (request: UpgradeRequest, onStep: OnStep, signal: AbortSignal) => Promise<string>;

/** What an upgrade does to the machine, apart from files. */
export interface Services {
  /** Ends the agent, and starts the newest version's; need not wait for either. */
  restartAgent(signal: AbortSignal): Promise<void>;
  /** Starts the agent where it is not, and leaves one alone that is just starting. */
  startAgent(signal: AbortSignal): Promise<void>;
  /** Brings the packages of the operating system up to date; false where nothing here does that. */
  updateSystem(signal: AbortSignal): Promise<boolean>;
  /** Has an overlay of the newest version take over from the one that runs, with all its flows. */
  succeedOverlay(version: string, signal: AbortSignal): Promise<void>;
}

export interface UpgradeLimits extends JudgeLimits {
  readonly everyMs: number;
  /** How often the control plane is asked at most: it may be just what has too much to do. */
  readonly askEveryMs: number;
  /** How long a pending change of the network is waited for. */
  readonly pendingMs: number;
  /** How long the old version may take to answer after the way back, and to have its session when it is tried. */
  readonly backMs: number;
  /** How long crashes of a version count that has proven itself. */
  readonly probationSeconds: number;
}

export interface UpgradeDeps {
  readonly versions: Versions;
  readonly requests: RequestBox;
  readonly prepare: Prepare;
  readonly services: Services;
  readonly agent: LocalAgent;
  /** Whether a change of the network that is not confirmed lies on disk: what there is to know of it while no agent answers. */
  readonly isChangeLeft: () => Promise<boolean>;
  /** Whom the node must reach and by which proxy, as it lies on disk. */
  readonly targets: () => Promise<NetworkTargets | undefined>;
  readonly probe: Probe;
  readonly clock: Clock;
  readonly bootId: string;
  /** The version of this program, which is never the one on trial. */
  readonly ownVersion: string;
  readonly limits: UpgradeLimits;
  readonly print: (line: string) => void;
}
