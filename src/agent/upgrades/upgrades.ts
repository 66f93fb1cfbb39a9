import type { Logger } from "pino";
import { InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { UpgradeUnit } from "../../host/process/upgrade-unit.ts";
import type { Versions } from "../../host/releases/versions.ts";
import { oneAtATime } from "../../lib/async/one-at-a-time.ts";
import {
  manifestAddress,
  UPGRADE_ANSWERS,
  type UpgradeAnswer,
  type UpgradeOrder,
  type UpgradeRequest,
  type UpgradeStatus,
} from "../../protocol/documents/release.ts";
import type { WhyReport } from "../../protocol/documents/reconcile.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { NodeAudit } from "../../protocol/documents/telemetry.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import type { NodeFacts } from "../triggers/execution/admit.ts";
import { UPGRADE_TRIGGER } from "../triggers/node/node-upgrade.ts";
import type { EventLog } from "../telemetry/events.ts";
import { eventsOf, osAuditOf, osEventsOf, standingNow, upgradeFacts, upgradeReasons } from "./reports.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import { defined } from "../../lib/defined.ts";

export interface UpgradesOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly versions: Pick<Versions, "list" | "standing">;
  readonly unit: UpgradeUnit;
  /** Version of this program. */
  readonly version: string;
  /** URL of the manifest in the local settings. */
  readonly manifest: string | undefined;
  /** Origin of the control plane this node is registered with. */
  readonly controlPlane: () => string | undefined;
  readonly node: () => NodeFacts;
  /** Reports whether a network change is pending. */
  readonly isNetworkPending: () => boolean;
  /** Returns the trigger that must run alone: one that restarts this program or the machine. */
  readonly ending: () => string | undefined;
  readonly events: Pick<EventLog, "raise" | "clear" | "openEvents">;
  readonly audit: (audit: NodeAudit) => void;
  /** Unix seconds of the last reported update of the operating system. */
  readonly lastReported: { load(): Promise<number | undefined>; save(at: number): Promise<void> };
  readonly onChanged: () => void;
}

/** Poll interval during an upgrade, in case its progress is not reported. */
const POLL_MS = 10_000;

/** Requests upgrades and reports their state. A separate program performs them. */
export class Upgrades {
  readonly #options: UpgradesOptions;
  /** Reads the state again and reports changes. Never rejects. */
  readonly refresh: () => Promise<void>;
  readonly #serially = serialQueue();
  #status: UpgradeStatus = {};
  #cancelPoll = (): void => undefined;
  #isClosed = false;

  constructor(options: UpgradesOptions) {
    this.#options = options;
    const notRead = (error: unknown): void =>
      options.log.warn({ err: toError(error) }, "the state of upgrades cannot be read");
    this.refresh = oneAtATime(() => this.#refresh().catch(notRead));
  }

  /** Last state read. */
  get status(): UpgradeStatus {
    return this.#status;
  }

  /** Returns the shadow's facts of upgrades. */
  facts(): ShadowMap {
    return upgradeFacts(this.#status);
  }

  /** Returns issues and the progress of an upgrade. */
  why(report: WhyReport): WhyReport {
    return { ...report, reasons: [...report.reasons, ...upgradeReasons(this.#status)] };
  }

  /** Resolves to whether the upgrader is running; false if it cannot be asked. */
  async isAtWork(): Promise<boolean> {
    const { unit } = this.#options;
    return unit.isManaged && (await unit.isAtWork().catch(() => false));
  }

  /**
   * Requests an upgrade, unless one is in progress.
   * @throws {InputError} `not-supported` if upgrades are managed elsewhere, `busy`, `not-configured`; {HostError} `exec-failed`.
   */
  async ask({ from, stageOnly, ...order }: UpgradeOrder & Pick<UpgradeRequest, "by">): Promise<UpgradeAnswer> {
    this.#refuse();
    const { manifest, controlPlane } = this.#options;
    const request = upgradeRequest({ from: knownManifest(from, manifest, controlPlane()), ...order }, stageOnly);
    // One at a time: the second of two requests must observe the first's upgrade.
    return this.#serially(() => this.#begin(request));
  }

  async #begin(request: UpgradeRequest): Promise<UpgradeAnswer> {
    const { unit, log } = this.#options;
    if (await unit.isAtWork()) return answer("already");
    await unit.start(request);
    log.info({ ...request }, "upgrade requested");
    return answer("begun");
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPoll();
  }

  #refuse(): void {
    const { unit, node, isNetworkPending, ending } = this.#options;
    refuseElsewhere({ isManaged: unit.isManaged, type: node().type });
    if (isNetworkPending()) {
      throw new InputError(
        "busy",
        "a network change is pending, and an upgrade would revert it: confirm or revert it first (holdfast network)",
      );
    }
    const holder = ending();
    if (holder !== undefined && holder !== UPGRADE_TRIGGER)
      throw new InputError("busy", `no upgrade can start while ${holder} is running: retry when it has ended`);
  }

  async #refresh(): Promise<void> {
    const { clock, versions, version, events, audit, lastReported, onChanged } = this.#options;
    // Without a managed install, the versions on this machine belong to another installation.
    if (this.#isClosed || !this.#options.unit.isManaged) return;
    this.#cancelPoll();
    const [written, list] = await Promise.all([versions.standing(), versions.list()]);
    const standing = standingNow(written, list, version);
    const trial = list.find((found) => found.version === version && !found.isBase)?.trial;
    const { from, since } = trial === undefined || trial === "damaged" ? {} : trial;
    this.#status = {
      ...defined({ standing }),
      ...(trial === undefined ? {} : { trial: { ...defined({ from, since }) } }),
    };
    for (const { raises, clears } of [eventsOf, osEventsOf].map((of) => of(standing, events.openEvents()))) {
      for (const clearing of clears) events.clear(clearing);
      for (const event of raises) events.raise(event);
    }
    const os = osAuditOf(standing, await lastReported.load());
    if (os !== undefined) {
      audit(os);
      await lastReported.save(os.timestamp).catch(() => undefined);
    }
    onChanged();
    if (!this.#isClosed && (standing?.state === "IN_PROGRESS" || trial !== undefined)) {
      this.#cancelPoll = clock.after(POLL_MS, () => void this.refresh());
    }
  }
}

/** Builds the request for the upgrader. */
export function upgradeRequest(plain: Omit<UpgradeRequest, "stageOnly">, isStaging = false): UpgradeRequest {
  return { ...plain, ...(isStaging ? { stageOnly: true } : {}) };
}

/** @throws {InputError} `not-configured`. */
export function knownManifest(...sources: Parameters<typeof manifestAddress>): string {
  const address = manifestAddress(...sources);
  if (address !== undefined) return address;
  throw new InputError(
    "not-configured",
    "no release manifest is known: name a manifest, set upgrade.manifest in the local settings, or register this node",
  );
}

/** Checks that upgrades are supported: not on an agent or an unmanaged install. @throws {InputError} `not-supported`. */
export function refuseElsewhere({ isManaged, type }: { readonly isManaged: boolean; readonly type: NodeType }): void {
  if (type === "Agent") {
    throw new InputError("not-supported", "this node is an agent: the package manager of its system upgrades it");
  }
  if (!isManaged) {
    throw new InputError("not-supported", "this is not a managed install: what started this program upgrades it");
  }
}

function answer(which: keyof typeof UPGRADE_ANSWERS): UpgradeAnswer {
  return { output: { status: UPGRADE_ANSWERS[which] } };
}
