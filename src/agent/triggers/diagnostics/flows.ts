import type { Logger } from "pino";
import { InputError, toError } from "../../../errors.ts";
import type { Conntrack, FlowFilter, FlowList } from "../../../host/network/conntrack.ts";
import type { LiveFlowList } from "../../../host/overlay/client.ts";
import type { Clock } from "../../../host/clock.ts";
import type { TrackedFlow } from "../../../host/network/conntrack-line.ts";
import { flowMeta } from "../../../protocol/overlay/flow-meta.ts";
import type { OverlayFlow, OverlayFlowFilter } from "../../../protocol/overlay/overlay.ts";
import { Flows } from "../../../protocol/triggers/bodies.ts";
import type { FlowRow } from "../../../protocol/triggers/results.ts";
import type { ContainerStatus } from "../../containers/model/compute.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { defined } from "../../../lib/defined.ts";

/** Flows that the overlay carries. */
export interface CarriedFlows {
  flows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList>;
  cutFlows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList>;
}

export interface FlowsParts {
  readonly conntrack: Conntrack;
  readonly carried: CarriedFlows;
  readonly clock: Pick<Clock, "now">;
  readonly log: Logger;
}

const MAX_FLOWS = 50_000;
const NONE: LiveFlowList = { flows: [], total: 0 };
/** Maximum size of a reply with its envelope. */
const MAX_BYTES = 1_000_000;

/** Lists or ends flows that the kernel tracks and flows of connectors; those of a container by its address. */
export function flows(
  { conntrack, carried, clock, log }: FlowsParts,
  containers: () => readonly Pick<ContainerStatus, "id" | "name" | "address">[] = () => [],
): OneShotTrigger<Flows> {
  return {
    event: "flows",
    kind: "one-shot",
    request: Flows,
    deadlineMs: 30_000,
    needsDataPlane: true,
    readOnly: false,
    isReadOnly: ({ action }) => action === "read",
    agents: true,
    async handle(request, { signal, user }) {
      const filter = filterOf(request, containers);
      if (request.action === "delete") {
        if (Object.keys(filter).length === 0 && !request.confirm) throw unconfirmed();
        // The kernel's entry for a connector's flow is the same flow.
        const before = await conntrack.list(filter, MAX_FLOWS, signal);
        const cut = filter.protocol === "icmp" ? NONE : await carried.cutFlows(wanted(filter), MAX_FLOWS, signal);
        const removed = await conntrack.remove(filter, signal);
        const tracked = new Set(before.flows.map(tupleOfTracked));
        const twice = cut.flows.filter((flow) => tracked.has(tupleOf(flow))).length;
        const deleted = removed + cut.total - Math.min(twice, removed);
        log.info({ ...filter, deleted, user }, "flows deleted");
        return { result: "success", deleted };
      }
      try {
        await conntrack.account();
      } catch (error) {
        log.warn({ err: toError(error) }, "flows are shown without bytes and times");
      }
      const [tracked, live] = await Promise.all([
        conntrack.list(filter, MAX_FLOWS, signal),
        filter.protocol === "icmp" ? NONE : carried.flows(wanted(filter), MAX_FLOWS, signal),
      ]);
      return flowsAnswer(tracked, live, clock.now());
    },
  };
}

type Row = FlowRow & { readonly p: "tcp" | "udp" | "icmp" };

/** Builds the reply: as many flows as fit one message, and the total. Pure. */
export function flowsAnswer(
  { flows: found, isTruncated }: FlowList,
  { flows: live, total: alive }: LiveFlowList,
  now: number,
  maxBytes = MAX_BYTES,
): object {
  const carried = new Map(live.map((flow) => [tupleOf(flow), flow]));
  const result: Record<Row["p"], Row[]> = { icmp: [], tcp: [], udp: [] };
  let left = maxBytes;
  let total = 0;
  let isCut = isTruncated || live.length < alive;
  const add = (row: Row): void => {
    total += 1;
    const bytes = left > 0 ? JSON.stringify(row).length + 1 : 0;
    left -= bytes;
    if (left > 0) result[row.p].push(row);
    else isCut = true;
  };
  for (const flow of found) {
    const row = rowOf(flow);
    if (row === undefined) continue;
    const tuple = tupleOfTracked(flow);
    const same = carried.get(tuple);
    if (same === undefined) add(row);
    else {
      add({ ...carriedRow(same, now), state: row.state });
      carried.delete(tuple);
    }
  }
  for (const flow of carried.values()) add(carriedRow(flow, now));
  return { result, total, ...(isCut ? { truncated: true } : {}) };
}

/** Converts a flow to the platform's form; undefined for unknown protocols. */
export function rowOf(flow: TrackedFlow): Row | undefined {
  const p = flow.protocol === "icmpv6" ? "icmp" : flow.protocol;
  if (p !== "tcp" && p !== "udp" && p !== "icmp") return undefined;
  const { original, reply, sentBytes, receivedBytes, ageSeconds } = flow;
  return {
    sip: original.source,
    dip: original.dest,
    p,
    ...defined({ sport: original.sourcePort, dport: original.destPort, lid: original.icmpId, nid: reply.icmpId }),
    state: stateOf(p, flow.state),
    ...defined({ br: receivedBytes, bw: sentBytes, con: ageSeconds }),
    def: false,
    ...(isTranslated(flow) ? { meta: { reply: replySide(flow) } } : {}),
  };
}

/** Converts a connector's flow with its bytes. */
function carriedRow(flow: OverlayFlow, now: number): Row {
  const { protocol, sourceIp, sourcePort, destIp = "", destPort, sourceBytes, destBytes, startedAt, peer } = flow;
  return {
    sip: sourceIp,
    dip: destIp,
    p: protocol,
    sport: sourcePort,
    ...defined({ dport: destPort }),
    state: "ESTABLISHED",
    br: destBytes,
    bw: sourceBytes,
    con: Math.max(0, Math.floor((now - startedAt) / 1000)),
    def: false,
    meta: { ...flowMeta(flow), ...defined({ peer }) },
  };
}

function tupleOf({ protocol, sourceIp, sourcePort, destIp = "", destPort = 0 }: OverlayFlow): string {
  return `${protocol} ${sourceIp} ${sourcePort} ${destIp} ${destPort}`;
}

function tupleOfTracked({ protocol, original }: TrackedFlow): string {
  return `${protocol} ${original.source} ${original.sourcePort} ${original.dest} ${original.destPort}`;
}

/** Converts the filter to the overlay's, which supports only TCP and UDP. */
function wanted({ protocol, ...filter }: FlowFilter): OverlayFlowFilter {
  return { ...filter, ...(protocol === undefined || protocol === "icmp" ? {} : { protocol }) };
}

function stateOf(protocol: Row["p"], state: string | undefined): string {
  if (protocol !== "tcp" || state === undefined) return "ESTABLISHED";
  return state === "SYN_RECV" ? "SYN_RECEIVED" : state;
}

function isTranslated({ original, reply }: TrackedFlow): boolean {
  return (
    original.source !== reply.dest ||
    original.dest !== reply.source ||
    original.sourcePort !== reply.destPort ||
    original.destPort !== reply.sourcePort
  );
}

function replySide({ reply }: TrackedFlow): Readonly<Record<string, string | number>> {
  const { source, dest, sourcePort, destPort } = reply;
  return {
    sip: source,
    dip: dest,
    ...defined({ sport: sourcePort, dport: destPort }),
  };
}

/**
 * Resolves the container or virtual network of a filter. @throws {InputError} `not-found` for a container without an address, and for
 * virtual networks, which are unsupported.
 */
function filterOf(
  { protocol, source, dest, sourcePort, destPort, containerId, networkId }: Flows,
  containers: () => readonly Pick<ContainerStatus, "id" | "name" | "address">[],
): FlowFilter {
  const wanted = containerId.toLowerCase();
  const isMeant = ({ id, name }: { id: string; name: string }): boolean =>
    id.toLowerCase() === wanted || name.toLowerCase() === wanted;
  const party = wanted === "" ? undefined : containers().find(isMeant)?.address;
  if (wanted !== "" && party === undefined) throw unknown("containerId", `no container ${containerId} runs here`);
  if (networkId !== 0 && networkId !== "" && networkId !== "0") {
    throw unknown("networkId", `no virtual network ${networkId} is attached here`);
  }
  return {
    ...(protocol === "any" ? {} : { protocol }),
    ...defined({ source, dest }),
    ...(sourcePort === 0 ? {} : { sourcePort }),
    ...(destPort === 0 ? {} : { destPort }),
    ...defined({ party }),
  };
}

function unknown(field: string, message: string): InputError {
  return new InputError("not-found", message, { details: { field } });
}

function unconfirmed(): InputError {
  const message = "flows: without any filter every flow would be deleted, which needs confirm: true";
  return new InputError("invalid-body", message, { details: { field: "confirm" } });
}
