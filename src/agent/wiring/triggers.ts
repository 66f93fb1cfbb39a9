import type { Logger } from "pino";
import { bundleProcess } from "../../host/process/bundle-process.ts";
import type { Clock } from "../../host/clock.ts";
import type { Registration } from "../identity/identity.ts";
import { listTriggers, type TriggerDeps } from "./trigger-list.ts";
import type { Applying } from "../applying/applying.ts";
import type { ContainersView } from "./containers/view.ts";
import type { AgentSettings } from "../settings.ts";
import type { Telemetry } from "./telemetry.ts";
import { openUpgrades } from "./upgrades.ts";
import { speedTestTarget, type SpeedTestSources } from "../triggers/tools/speed-test-target.ts";
import type { Upgrades } from "../upgrades/upgrades.ts";
import type { AgentState } from "../state.ts";
import { stoppedRun, type RunRecord } from "../telemetry/run-record.ts";
import type { NodeFacts } from "../triggers/execution/admit.ts";
import type { CleanStop } from "../triggers/node/clean-stop.ts";
import { Dispatcher } from "../triggers/execution/dispatch.ts";
import { openCaptures, type Captures } from "../triggers/diagnostics/tg-capture.ts";
import { Journal } from "../triggers/execution/journal.ts";
import { agentTunnels, type TunnelSources } from "../data-plane/tunnels.ts";

type Given =
  | "memory"
  | "diagnosis"
  | "exec"
  | "capture"
  | "power"
  | "files"
  | "why"
  | "networkView"
  | "applying"
  | "dataStore";

export interface OpenTriggersOptions
  extends
    Pick<Telemetry, "events" | "spool" | "pusher" | "announceRestart">,
    Pick<TriggerDeps, Given>,
    Omit<TunnelSources, "graceMs">,
    Pick<SpeedTestSources, "dialler"> {
  readonly clock: Clock;
  readonly log: Logger;
  readonly overlay: TunnelSources["overlay"] & TriggerDeps["overlay"];
  readonly settings: Pick<AgentSettings, "unit" | "stateDir" | "runDir" | "config" | "speedTestUrl" | "upgrade">;
  readonly state: Pick<AgentState, "database" | "run" | "toldUpgrade">;
  readonly applying: TriggerDeps["applying"] & Pick<Applying, "committing">;
  /** How upgrades stand has changed, perhaps. */
  readonly onUpgrade: () => void;
  readonly record: RunRecord;
  readonly bootId: string;
  /** Unix milliseconds. */
  readonly startedAt: number;
  readonly registration: () => Registration | undefined;
  readonly node: () => NodeFacts;
  readonly containers: ContainersView;
  /** The disk took no write. */
  readonly onRefused: (error: unknown) => void;
  /** Frees room for the journal on a full disk; false when there is none to free. */
  readonly makeRoom: () => boolean;
}

/** The trigger events of this node, and the mark of a stop that was meant. */
export function openTriggers(options: OpenTriggersOptions): {
  readonly dispatcher: Dispatcher;
  readonly cleanStop: CleanStop;
  readonly upgrades: Upgrades;
  readonly captures: Pick<Captures, "close">;
} {
  const { clock, settings, state, record, bootId, startedAt, node, containers, onRefused } = options;
  const { sql, isPersistent } = state.database;
  const cleanStop = { mark: () => state.run.save(stoppedRun(record)), clear: () => state.run.save(record) };
  const journal = new Journal(sql, { bootId, isPersistent, onFault: onRefused, makeRoom: options.makeRoom });
  try {
    journal.reopen();
    journal.settle(bootId, startedAt);
  } catch (error) {
    // What was cut off is known to have been, and is not run again.
    onRefused(error);
  }
  const log = options.log.child({ component: "triggers" });
  const upgrades = openUpgrades({
    ...options,
    controlPlane: () => options.registration()?.controlPlane.iss,
    isNetworkPending: () => options.applying.committing.pending() !== undefined,
    ending: () => dispatcher.holderOf("node"),
    onChanged: options.onUpgrade,
  });
  const captures = openCaptures({
    exec: options.capture ?? options.exec,
    files: options.files,
    clock,
    log,
    store: options.dataStore,
    audit: containers.audit,
  });
  const triggers = listTriggers({
    ...options,
    announceRestart: async () => options.announceRestart(),
    upgrades,
    captures,
    makeBundle: bundleProcess({ ...settings, exec: options.exec }),
    cleanStop,
    speedTestTarget: () => speedTestTarget(options),
    tunnels: agentTunnels(options),
    log,
  });
  const dispatcher = new Dispatcher({ node, journal, clock, log, more: containers.run, triggers });
  return { dispatcher, cleanStop, upgrades, captures };
}
