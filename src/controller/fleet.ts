import type { ConfirmRequest } from "../protocol/values/commit.ts";
import type { SectionName } from "../protocol/sections/sections.ts";
import type { MetricSample } from "../protocol/documents/telemetry.ts";
import type { JsonObject, LifecycleState, NodeState, NodeType } from "../protocol/values/values.ts";
import type { NodeRecord } from "./nodes/records.ts";
import type { ClusterRecord } from "./clusters/records.ts";
import type { EventRecord, AlertRecord, AuditRecord, AuditFilter, EventFilter } from "./events/records.ts";
import type { TerminalRequest } from "./containers/records.ts";
import type { NodeTerminal } from "./http/upgrade.ts";
import type { TriggerRequest, TriggerProgress } from "./triggers/records.ts";

/**
 * Operations of the HTTP API on the fleet. A change is stored, raises the version of each affected document, and is announced to online
 * nodes, in this order.
 * Errors are `InputError`: `not-found`, `invalid-body`, `name-taken` (409), `not-supported` or `offline`; an error of the node is a
 * `SessionError` with its code.
 */
export interface Fleet {
  nodes(): readonly NodeRecord[];
  node(uid: string): NodeRecord | undefined;
  nodeByFqdn(fqdn: string): NodeRecord | undefined;
  /** Issues a signed license; `jkt` binds it to an existing key. */
  issueLicense(request: {
    name: string;
    type: NodeType;
    jkt?: string;
    user: string;
    /** Default: one day. */
    lifetimeSeconds?: number;
  }): Promise<string>;
  updateNode(uid: string, change: { state?: NodeState; cluster?: string | null }, user: string): NodeRecord;
  deleteNode(uid: string, user: string): Promise<void>;
  /** Replaces a section; undefined removes it. `summary` describes the change in the event, without secrets. */
  setSection(
    uid: string,
    section: SectionName,
    body: JsonObject | undefined,
    user: string,
    confirm?: Omit<ConfirmRequest, "askedAt">,
    summary?: string,
  ): NodeRecord;
  setTag(uid: string, name: string, value: string | undefined, user: string): NodeRecord;
  /** Locks a node to address blocks, or to its current address; undefined removes the lock. @throws {InputError} `not-configured` */
  setLock(uid: string, lock: readonly string[] | "current" | undefined, user: string): NodeRecord;
  setLifecycleState(uid: string, state: LifecycleState, user: string): NodeRecord;

  clusters(): readonly ClusterRecord[];
  cluster(fqdn: string): ClusterRecord | undefined;
  createCluster(request: { name: string }, user: string): ClusterRecord;
  deleteCluster(fqdn: string, user: string): void;
  /** Replaces a section that members inherit; undefined removes it. */
  setClusterSection(fqdn: string, section: SectionName, body: JsonObject | undefined, user: string): ClusterRecord;
  setClusterTag(fqdn: string, name: string, value: string | undefined, user: string): ClusterRecord;

  /**
   * Sends a signed trigger. Resolves to the node's response with `wait`, otherwise to `true` once sent. `onProgress` receives output as it
   * arrives.
   */
  runTrigger(
    uid: string,
    request: TriggerRequest,
    options: { readonly signal: AbortSignal; readonly onProgress?: (progress: TriggerProgress) => void },
  ): Promise<unknown>;

  /** Opens a terminal on a node; resolves once the node has connected. An error of the node is a `SessionError` with its code. */
  openTerminal(uid: string, request: TerminalRequest, signal: AbortSignal): Promise<NodeTerminal>;

  events(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] };
  event(nodeId: string, eventUid: string): EventRecord | undefined;
  alerts(nodeId?: string): readonly AlertRecord[];
  /** Resolves and dismisses one alert; returns false if none of this type is open. */
  dismissAlert(nodeId: string, eventType: string, user: string): boolean;
  /** Returns the audit trail of nodes, newest first. */
  audits(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] };
  /** Runs a change outside the nodes and records it by this user, in one transaction. */
  recordChange<T>(user: string, message: string, work: () => T): T;
  /** Runs a change that belongs to a node and records it by this user, in one transaction. @throws {InputError} `not-found` */
  recordNodeChange<T>(uid: string, user: string, message: string, work: () => T): T;
  /** Returns the minute samples of a node, oldest first; `from` and `to` in Unix seconds. */
  metrics(nodeId: string, from: number, to: number): readonly MetricSample[];
}
