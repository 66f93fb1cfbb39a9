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
import type { UsageBucket, UsageRange } from "./model/usage.ts";

/** A node as the control plane knows it. Units as on the wire: `lastConnect` in milliseconds, the other times in seconds. */
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
  /** Blocks of addresses that it may connect from; undefined without a lock. */
  readonly lockedTo?: readonly string[] | undefined;
  /** The address outside of them from which it connects. */
  readonly unauthorizedIp?: string | undefined;
  readonly lastConnect: number | undefined;
  readonly disconnectTime: number | undefined;
  readonly createdAt: number;
  readonly device: Device | undefined;
  readonly heartbeat: (Heartbeat & { readonly receivedAt: number }) | undefined;
  readonly config: Config;
  /** How its newest change is to be confirmed, where that was asked for. */
  readonly confirm?: ConfirmRequest | undefined;
  readonly reported: ShadowMap;
  /** Newest `document.applied` of each document. */
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

/** An event with what the control plane adds to it; times in Unix seconds, `uid` sortable by time. */
/** The writer of a record about a node: the control plane, or the node itself. */
export type RecordOrigin = "control-plane" | "node";

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

/** The open alert of one (node, event type); gone when its clearing event arrives, when dismissed, or after 24 h. */
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

/** A flow record with the node that told it. */
export interface NodeFlow extends FlowRecord {
  readonly nodeId: string;
}

export interface FlowFilter {
  readonly nodeIds?: readonly string[];
  /** When it ended: Unix seconds, both inclusive. */
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
  /** Whether it was denied. */
  readonly isDefunct?: boolean;
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly offset: number;
}

/** What can be asked of the nodes' flow records. */
export interface FlowSearch {
  /** By the time they ended, at most 10,000 on all pages together; `total` counts no further either. */
  find(filter: FlowFilter): { readonly total: number; readonly items: readonly NodeFlow[] };
  /** Traffic by the time at which its flow ended, of some nodes or of all; what both ends of a flow tell counts once. */
  usage(range: UsageRange, nodeIds: readonly string[] | undefined): readonly UsageBucket[];
}

/** What can be asked of the round trips to gateways. */
export interface GatewayDetailsSearch {
  /**
   * What a node measured, and what others measured to it, then under the name of the other; oldest first. `from` and `to` in Unix seconds,
   * both inclusive. Undefined when there is more than one search finds.
   */
  find(nodeId: string, from: number, to: number): readonly GatewayDetails[] | undefined;
}

/** A virtual machine's image as it was entered for a node: `location` is a path in the node's data store. */
export interface ImageRecord {
  readonly id: string;
  readonly displayName: string;
  readonly description?: string | undefined;
  readonly location: string;
  readonly os: string;
}

/** The records of virtual machines' images; they go with their node. */
export interface ImageRecords {
  /** By name, then by id. */
  ofNode(node: string): readonly ImageRecord[];
  get(node: string, id: string): ImageRecord | undefined;
  /** Enters a record, or replaces the one of this id. */
  put(node: string, record: ImageRecord): void;
  remove(node: string, id: string): void;
}

/** What can be asked of the output of containers. */
export interface ContainerOutputSearch {
  /** The newest `limit` pieces of a node, or of one container by id or name, oldest first; Unix seconds, both inclusive. */
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
  /** False for a reading that is part of another operation. */
  readonly isAudited?: false;
}

/** Output of a running trigger, as `trigger.progress` brings it. */
export interface TriggerProgress {
  readonly seq: number;
  readonly kind: "stdout" | "stderr" | "json" | "percent";
  readonly data: unknown;
}

/** A terminal that is asked for, in a container named as in the configuration. */
export interface TerminalRequest {
  readonly container: string;
  readonly cols: number;
  readonly rows: number;
  readonly user: string;
}

/** A terminal that a node has opened. Whoever asked joins or discards it. */
export interface NodeTerminal {
  join(client: FrameSocket): void;
  discard(): void;
}

/**
 * Everything the HTTP API may ask of the fleet. Each change is stored, raises the version of every document it touches, and is
 * announced to the nodes online, in that order.
 * Errors are `InputError`: `not-found`, `invalid-body`, `name-taken` (409), `not-supported` or `offline`; what a node itself answered
 * is a `SessionError` with its code.
 */
export interface Fleet {
  nodes(): readonly NodeRecord[];
  node(uid: string): NodeRecord | undefined;
  nodeByFqdn(fqdn: string): NodeRecord | undefined;
  /** Makes a signed license; `jkt` binds it to a key made beforehand. */
  issueLicense(request: {
    name: string;
    type: NodeType;
    jkt?: string;
    user: string;
    /** A day by default. */
    lifetimeSeconds?: number;
  }): Promise<string>;
  updateNode(uid: string, change: { state?: NodeState; cluster?: string | null }, user: string): NodeRecord;
  deleteNode(uid: string, user: string): Promise<void>;
  /** Replaces a section; undefined removes it. `about` says in the event what of it changed, free of secrets. */
  setSection(
    uid: string,
    section: SectionName,
    body: JsonObject | undefined,
    user: string,
    confirm?: Omit<ConfirmRequest, "askedAt">,
    about?: string,
  ): NodeRecord;
  setTag(uid: string, name: string, value: string | undefined, user: string): NodeRecord;
  /** Locks a node to blocks of addresses, or to the address that it connects from now; undefined removes the lock. @throws {InputError} `not-configured`. */
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
   * Sends a signed trigger. With `wait` it resolves to the node's answer, without to `true` once it was handed over; with `onProgress`
   * output comes as the node gives it.
   */
  runTrigger(
    uid: string,
    request: TriggerRequest,
    options: { readonly signal: AbortSignal; readonly onProgress?: (progress: TriggerProgress) => void },
  ): Promise<unknown>;

  /** Has a node open a terminal; resolves once the node's side has come. What the node refuses is a `SessionError` with its code. */
  openTerminal(uid: string, request: TerminalRequest, signal: AbortSignal): Promise<NodeTerminal>;

  events(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] };
  event(nodeId: string, eventUid: string): EventRecord | undefined;
  alerts(nodeId?: string): readonly AlertRecord[];
  /** Resolves and dismisses one alert; false when none of this type is open. */
  dismissAlert(nodeId: string, eventType: string, user: string): boolean;
  /** Who did what to nodes, newest first. */
  audits(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] };
  /** Does something outside the nodes and records it as a change by this user, or neither. */
  recordChange<T>(user: string, message: string, work: () => T): T;
  /** Does something that belongs to a node and records it as a change of it by this user, or neither. @throws {InputError} `not-found`. */
  recordNodeChange<T>(uid: string, user: string, message: string, work: () => T): T;
  /** Minute samples of one node, oldest first; `from` and `to` in Unix seconds. */
  metrics(nodeId: string, from: number, to: number): readonly MetricSample[];
}
