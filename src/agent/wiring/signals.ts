import { Signal } from "../../lib/async/signal.ts";
import type { DocumentApplied } from "../../protocol/channel/methods.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { Registration } from "../identity/identity.ts";
import type { Connection } from "../session/attempt.ts";
import type { Session } from "../session/session.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";

/** A change outside the documents after which sections are evaluated again. */
export interface Surroundings {
  readonly cause: string;
  /** The sections that depend on it; all when undefined. */
  readonly sections?: readonly string[];
}

/** Every signal by which parts of the agent hear of each other. */
export interface AgentSignals {
  /** The registration; undefined until the node is registered. Set as well when the private keys are lost. */
  readonly registration: Signal<Registration | undefined>;
  /** The session that connects to the control plane; undefined until the node is registered. */
  readonly session: Signal<Pick<Session, "overdueMs" | "status" | "wake"> | undefined>;
  /** The open connection to the control plane; undefined while offline. */
  readonly connection: Signal<Connection | undefined>;
  /** The health checks of a registered node. */
  readonly health: Signal<HealthChecks | undefined>;
  /** The effective configuration. */
  readonly config: Signal<Config>;
  /** The state of a section, a trial or the documents may have changed. */
  readonly settled: Signal<void>;
  /** The documents whose reports to the control plane have just changed. */
  readonly reports: Signal<readonly DocumentApplied["name"][]>;
  /** The last change of the surroundings. */
  readonly surroundings: Signal<Surroundings>;
  /** A fact of the shadow may have changed. */
  readonly facts: Signal<void>;
  /** Whether the disk accepts writes. */
  readonly isWritable: Signal<boolean>;
}

export function agentSignals(): AgentSignals {
  return {
    registration: new Signal<Registration | undefined>(undefined),
    session: new Signal<AgentSignals["session"]["current"]>(undefined),
    connection: new Signal<Connection | undefined>(undefined),
    health: new Signal<HealthChecks | undefined>(undefined),
    config: new Signal<Config>({}),
    settled: new Signal<void>(undefined),
    reports: new Signal<readonly DocumentApplied["name"][]>([]),
    surroundings: new Signal<Surroundings>({ cause: "start", sections: [] }),
    facts: new Signal<void>(undefined),
    isWritable: new Signal(true),
  };
}
