import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import { bundleProcess } from "../../host/process/bundle-process.ts";
import type { Reader } from "../../host/reader.ts";
import { agentTunnels, type TunnelSources } from "../data-plane/tunnels.ts";
import { readLogs } from "../local-api/read-logs.ts";
import type { AgentSettings } from "../settings.ts";
import type { AgentState } from "../state.ts";
import { openCaptures } from "../triggers/diagnostics/tg-capture.ts";
import type { NodeFacts } from "../triggers/execution/admit.ts";
import { Dispatcher } from "../triggers/execution/dispatch.ts";
import { Journal } from "../triggers/execution/journal.ts";
import { speedTestTarget, type SpeedTestSources } from "../triggers/tools/speed-test-target.ts";
import type { ContainersView } from "./containers/view.ts";
import { repositoryUrlOf, resolvedHost } from "./health.ts";
import type { AgentOptions } from "./options.ts";
import type { SelfReport } from "./self-report.ts";
import type { AgentSignals } from "./signals.ts";
import type { Telemetry } from "./telemetry.ts";
import { listTriggers, type TriggerDeps } from "./trigger-list.ts";

export interface OpenDispatcherOptions extends Pick<Telemetry, "bootId" | "startedAt"> {
  readonly clock: Clock;
  readonly log: Logger;
  readonly state: Pick<AgentState, "database">;
  readonly node: () => NodeFacts;
  /** Notes a write that the disk refused. */
  readonly onRefused: (error: unknown) => void;
  /** Frees room for the journal on a full disk; false if there is none. */
  readonly makeRoom: () => boolean;
}

/** Opens the journal of triggers, and the dispatcher that runs them. */
export function openDispatcher(options: OpenDispatcherOptions): Dispatcher {
  const { clock, state, bootId, startedAt, node, onRefused, makeRoom } = options;
  const { sql, isPersistent } = state.database;
  const journal = new Journal(sql, { bootId, isPersistent, onFault: onRefused, makeRoom });
  try {
    journal.reopen();
    journal.settle(bootId, startedAt);
  } catch (error) {
    // Interrupted triggers stay marked as such, and are not run again.
    onRefused(error);
  }
  return new Dispatcher({ node, journal, clock, log: options.log.child({ component: "triggers" }) });
}

type Given =
  | "exec"
  | "capture"
  | "power"
  | "files"
  | "networkView"
  | "applying"
  | "dataStore"
  | "upgrades"
  | "cleanStop";

export interface ServeTriggersOptions
  extends
    Pick<Telemetry, "announceRestart">,
    Pick<TriggerDeps, Given>,
    Omit<TunnelSources, "graceMs" | "registration">,
    Pick<SpeedTestSources, "dialler"> {
  readonly clock: Clock;
  readonly log: Logger;
  readonly memory: AgentOptions["memory"];
  readonly reader: Reader;
  readonly overlay: TunnelSources["overlay"] & TriggerDeps["overlay"];
  readonly settings: AgentSettings;
  readonly containers: ContainersView;
  readonly dispatcher: Dispatcher;
  readonly report: SelfReport;
  readonly signals: Pick<AgentSignals, "registration" | "health">;
}

/** Has the dispatcher serve every trigger event of this node. */
export function serveTriggers(options: ServeTriggersOptions, stack: AsyncDisposableStack): void {
  const { clock, exec, reader, files, settings, memory, containers, dispatcher, dataStore, report, signals } = options;
  const log = options.log.child({ component: "triggers" });
  const sources = { ...options, registration: () => signals.registration.current };
  const captures = openCaptures({
    exec: options.capture ?? exec,
    files,
    clock,
    log,
    store: dataStore,
    audit: containers.audit,
  });
  stack.defer(() => captures.close());
  const triggers = listTriggers({
    ...options,
    log,
    captures,
    announceRestart: async () => options.announceRestart(),
    makeBundle: bundleProcess({ ...settings, exec }),
    speedTestTarget: () => speedTestTarget(sources),
    tunnels: agentTunnels(sources),
    why: () => report.why(),
    diagnosis: {
      exec,
      reader,
      isManaged: settings.unit !== undefined,
      status: () => report.status(),
      health: () => report.health(),
      logs: (lines, signal) => readLogs(memory, { lines, follow: false }, signal),
      checks: () => signals.health.current,
      resolvedName: () => {
        const session = signals.registration.current?.node.session;
        return session === undefined ? undefined : resolvedHost(session, settings);
      },
      repositoryUrl: () => repositoryUrlOf(signals.registration.current, settings),
    },
  });
  dispatcher.serve(triggers, containers.run);
  stack.defer(() => dispatcher.close());
}
