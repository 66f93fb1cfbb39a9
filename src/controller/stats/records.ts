import type { FlowRecord, GatewayDetails } from "../../protocol/documents/telemetry.ts";
import type { UsageBucket, UsageRange } from "./usage.ts";

/** A flow record with the node that reported it. */
export interface NodeFlow extends FlowRecord {
  readonly nodeId: string;
}

/** Comparison of a record with a value or a range: `gt` is beyond its end, `gte` not before its start. */
export type FlowOp = "eq" | "ne" | "gt" | "gte" | "lt" | "lte";

export interface FlowFilter {
  readonly nodeIds?: readonly string[];
  /** Range of the end time: Unix seconds, both inclusive. */
  readonly from: number;
  readonly to: number;
  /** Comparison of the end time with a whole second, in Unix seconds. */
  readonly ended?: { readonly op: FlowOp; readonly second: number };
  readonly protocols?: readonly FlowRecord["protocol"][];
  /** An address or a block. */
  readonly source?: string;
  readonly dest?: string;
  readonly sourcePort?: number;
  readonly destPort?: number;
  /** `eq` by default. Addresses are ordered within their family; `ne` includes records without the address. */
  readonly ops?: Readonly<Partial<Record<"source" | "dest" | "sourcePort" | "destPort", FlowOp>>>;
  /** Names of nodes. */
  readonly sourceNode?: string;
  readonly destNode?: string;
  /** Whether source and destination may also be the other way round. */
  readonly isEitherWay?: boolean;
  /** Bits that are all set. */
  readonly tcpFlags?: number;
  readonly flags?: number;
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
  find(filter: FlowFilter): Promise<{ readonly total: number; readonly items: readonly NodeFlow[] }>;
  /** Returns the traffic of some nodes or all, by time; a flow reported by both ends counts once. */
  usage(range: UsageRange, nodeIds: readonly string[] | undefined): Promise<readonly UsageBucket[]>;
}

/** Search in the round trips to gateways. */
export interface GatewayDetailsSearch {
  /**
   * Returns the measurements of a node, and those of others to it under the other's name, oldest first. `from` and `to` are Unix seconds,
   * both inclusive. Undefined if the result exceeds `MAX_DETAILS_FOUND`.
   */
  find(nodeId: string, from: number, to: number): Promise<readonly GatewayDetails[] | undefined>;
}
