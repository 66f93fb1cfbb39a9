import type { FrameSocket } from "../host/net/frame-socket.ts";
import type { ConfirmRequest } from "../protocol/values/commit.ts";
import type { Device } from "../protocol/documents/claims.ts";
import type { Config } from "../protocol/documents/documents.ts";
import type { NodeKeys } from "../protocol/values/keys.ts";
import type { DocumentApplied, Heartbeat } from "../protocol/channel/methods.ts";
import type { SectionName } from "../protocol/sections/sections.ts";
import type { ShadowMap } from "../protocol/values/shadow.ts";
import type {
  ContainerOutput,
  EventLevel,
  EventState,
  FlowRecord,
  GatewayDetails,
  MetricSample,
} from "../protocol/documents/telemetry.ts";
import type { JsonObject, LifecycleState, NodeState, NodeType } from "../protocol/values/values.ts";
import type { UsageBucket, UsageRange } from "./stats/usage.ts";

/** A node in the control plane. Units as on the wire: `lastConnect` in milliseconds, the other times in seconds. */
export interface NodeRecord {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly org: string;
  readonly type: NodeType;
  readonly state: NodeState;
  readonly lifecycleState: LifecycleState | undefined;
  readonly cluster: string | undefined;
  readonly tags: Readonly<Record<string, string>>;
  readonly keys: NodeKeys;
  readonly isOnline: boolean;
  readonly lastIp: string | undefined;
  /** Address blocks from which it may connect; undefined without a lock. */
  readonly lockedTo?: readonly string[] | undefined;
  /** Source address outside them, while it connects from one. */
  readonly unauthorizedIp?: string | undefined;
  readonly lastConnect: number | undefined;
  readonly disconnectTime: number | undefined;
  readonly createdAt: number;
  readonly device: Device | undefined;
  readonly heartbeat: (Heartbeat & { readonly receivedAt: number }) | undefined;
  readonly config: Config;
  /** Requested confirmation of its latest change. */
  readonly confirm?: ConfirmRequest | undefined;
  readonly reported: ShadowMap;
  /** Latest `document.applied` of each document. */
  readonly applied: Readonly<Partial<Record<DocumentApplied["name"], DocumentApplied>>>;
}

export interface ClusterRecord {
  readonly fqdn: string;
  readonly name: string;
  readonly domain: string;
  readonly createdAt: number;
  readonly tags: Readonly<Record<string, string>>;
  readonly config: Config;
  readonly members: readonly string[];
}

/** Writer of a record: the control plane, or the node itself. */
export type RecordOrigin = "control-plane" | "node";

/** An event with the fields that the control plane adds; times in Unix seconds, `uid` sortable by time. */
export interface EventRecord {
  readonly uid: string;
  readonly eventType: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly timestamp: number;
  readonly receivedTime: number;
  readonly details: JsonObject;
  readonly state: EventState;
  readonly subject: "Node" | "Certificate" | "Order" | "Upgrade" | "AlertSuppression";
  readonly orgId: string;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly domain: string;
  readonly fqdn: string;
  readonly origin: RecordOrigin;
}

/** Open alert of one node and event type; closed by its clearing event, by dismissal, or after 24 h. */
export interface AlertRecord {
  readonly uid: string;
  readonly eventType: string;
  readonly message: string;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly timestamp: number;
}

export interface AuditRecord {
  readonly nodeId: string;
  readonly fqdn: string;
  readonly category: string;
  readonly value: string;
  readonly timestamp: number;
  readonly origin: RecordOrigin;
}

export interface AuditFilter {
  readonly nodeIds?: readonly string[];
  /** Unix seconds, both inclusive. */
  readonly from?: number;
  readonly to?: number;
  readonly limit: number;
  readonly offset: number;
}

export interface EventFilter {
  readonly nodeIds?: readonly string[];
  readonly eventTypes?: readonly string[];
  readonly levels?: readonly EventLevel[];
  readonly subjects?: readonly EventRecord["subject"][];
  /** Unix seconds, both inclusive. */
  readonly from?: number;
  readonly to?: number;
  readonly text?: string;
  readonly sort: { readonly by: "timestamp" | "level"; readonly order: "asc" | "desc" };
  readonly limit: number;
  readonly offset: number;
}

/** A flow record with the node that reported it. */
export interface NodeFlow extends FlowRecord {
  readonly nodeId: string;
}

export interface FlowFilter {
  readonly nodeIds?: readonly string[];
  /** Range of the end time: Unix seconds, both inclusive. */
  readonly from: number;
  readonly to: number;
  readonly protocols?: readonly FlowRecord["protocol"][];
  /** An address or a block. */
  readonly source?: string;
  readonly dest?: string;
  readonly sourcePort?: number;
  readonly destPort?: number;
  readonly connector?: string;
  readonly flow?: string;
  readonly reasons?: readonly string[];
  /** Selects denied flows, or all others. */
  readonly isDefunct?: boolean;
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly offset: number;
}

/** Search in the flow records of all nodes. */
export interface FlowSearch {
  /** Finds flows by their end time, at most 10,000 on all pages; `total` is limited likewise. */
  find(filter: FlowFilter): { readonly total: number; readonly items: readonly NodeFlow[] };
  /** Returns the traffic of some nodes or all, by time; a flow reported by both ends counts once. */
  usage(range: UsageRange, nodeIds: readonly string[] | undefined): readonly UsageBucket[];
}

/** Search in the round trips to gateways. */
export interface GatewayDetailsSearch {
  /**
   * Returns the measurements of a node, and those of others to it under the other's name, oldest first. `from` and `to` are Unix seconds,
   * both inclusive. Undefined if the result exceeds `MAX_DETAILS_FOUND`.
   */
  find(nodeId: string, from: number, to: number): readonly GatewayDetails[] | undefined;
}

/** Record of a virtual machine's image; `location` is a path in the node's data store. */
export interface ImageRecord {
  readonly id: string;
  readonly displayName: string;
  readonly description?: string | undefined;
  readonly location: string;
  readonly os: string;
}

/** Records of virtual machines' images; deleted with their node. */
export interface ImageRecords {
  /** Sorted by name, then by id. */
  ofNode(node: string): readonly ImageRecord[];
  get(node: string, id: string): ImageRecord | undefined;
  /** Adds a record, or replaces the one with this id. */
  put(node: string, record: ImageRecord): void;
  remove(node: string, id: string): void;
}

/** Search in the output of containers. */
export interface ContainerOutputSearch {
  /** Returns the latest `limit` records of a node, or of one container by id or name, oldest first; Unix seconds, both inclusive. */
  find(
    nodeId: string,
    filter: {
      readonly container: string | undefined;
      readonly from: number;
      readonly to: number;
      readonly limit: number;
    },
  ): readonly ContainerOutput[];
}

export interface TriggerRequest {
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  readonly user: string;
  readonly deadlineMs: number;
  /** False for a read that is part of another operation. */
  readonly isAudited?: false;
}

/** Output of a running trigger, from `trigger.progress`. */
export interface TriggerProgress {
  readonly seq: number;
  readonly kind: "stdout" | "stderr" | "json" | "percent";
  readonly data: unknown;
}

/** A requested terminal in a container, named as in the configuration. */
export interface TerminalRequest {
  readonly container: string;
  readonly cols: number;
  readonly rows: number;
  readonly user: string;
}

/** A terminal that a node has opened. The requester joins or discards it. */
export interface NodeTerminal {
  join(client: FrameSocket): void;
  discard(): void;
}

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
