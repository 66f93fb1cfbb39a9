import type { Logger } from "pino";
import { InputError, toError } from "../../errors.ts";
import type { Conntrack, FlowFilter, FlowList } from "../../host/conntrack.ts";
import type { TrackedFlow } from "../../host/conntrack-line.ts";
import { Flows } from "../../protocol/trigger-bodies.ts";
import type { ContainerStatus } from "../compute/compute.ts";
import type { OneShotTrigger } from "./trigger.ts";

/** A flow as the platform names its parts; what the kernel does not count is absent. */
export interface FlowRow {
  readonly sip: string;
  readonly dip: string;
  readonly p: "tcp" | "udp" | "icmp";
  readonly sport?: number;
  readonly dport?: number;
  /** ICMP: the id here, and the one after translation. */
  readonly lid?: number;
  readonly nid?: number;
  readonly state: string;
  /** Bytes received and sent. */
  readonly br?: number;
  readonly bw?: number;
  /** Seconds since it began. */
  readonly con?: number;
  readonly def: boolean;
  readonly meta?: { readonly reply: Readonly<Record<string, string | number>> };
}

const MAX_FLOWS = 50_000;
/** The answer must fit one message with what surrounds it. */
const MAX_BYTES = 1_000_000;

/** Shows the flows that the kernel tracks, or makes it forget them; those of a container by its address. */
export function flows(
  conntrack: Conntrack,
  log: Logger,
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
        const deleted = await conntrack.remove(filter, signal);
        log.info({ ...filter, deleted, user }, "flows deleted");
        return { result: "success", deleted };
      }
      try {
        await conntrack.account();
      } catch (error) {
        log.warn({ err: toError(error) }, "flows are shown without bytes and times");
      }
      return flowsAnswer(await conntrack.list(filter, MAX_FLOWS, signal));
    },
  };
}

/** What the event answers: as many flows as one message holds, and how many were found. Pure. */
export function flowsAnswer({ flows: found, isTruncated }: FlowList, maxBytes = MAX_BYTES): object {
  const result: Record<FlowRow["p"], FlowRow[]> = { icmp: [], tcp: [], udp: [] };
  let left = maxBytes;
  let total = 0;
  let isCut = isTruncated;
  for (const flow of found) {
    const row = rowOf(flow);
    if (row === undefined) continue;
    total += 1;
    const bytes = left > 0 ? JSON.stringify(row).length + 1 : 0;
    left -= bytes;
    if (left > 0) result[row.p].push(row);
    else isCut = true;
  }
  return { result, total, ...(isCut ? { truncated: true } : {}) };
}

/** A flow in the platform's words; undefined for protocols that it has none for. */
export function rowOf(flow: TrackedFlow): FlowRow | undefined {
  const p = flow.protocol === "icmpv6" ? "icmp" : flow.protocol;
  if (p !== "tcp" && p !== "udp" && p !== "icmp") return undefined;
  const { original, reply, sentBytes, receivedBytes, ageSeconds } = flow;
  return {
    sip: original.source,
    dip: original.dest,
    p,
    ...(original.sourcePort === undefined ? {} : { sport: original.sourcePort }),
    ...(original.destPort === undefined ? {} : { dport: original.destPort }),
    ...(original.icmpId === undefined ? {} : { lid: original.icmpId }),
    ...(reply.icmpId === undefined ? {} : { nid: reply.icmpId }),
    state: stateOf(p, flow.state),
    ...(receivedBytes === undefined ? {} : { br: receivedBytes }),
    ...(sentBytes === undefined ? {} : { bw: sentBytes }),
    ...(ageSeconds === undefined ? {} : { con: ageSeconds }),
    def: false,
    ...(isTranslated(flow) ? { meta: { reply: replySide(flow) } } : {}),
  };
}

function stateOf(protocol: FlowRow["p"], state: string | undefined): string {
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
    ...(sourcePort === undefined ? {} : { sport: sourcePort }),
    ...(destPort === undefined ? {} : { dport: destPort }),
  };
}

/** @throws {InputError} `not-found` for a container that has no address, and for a virtual network, of which this node has none. */
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
    ...(source === undefined ? {} : { source }),
    ...(dest === undefined ? {} : { dest }),
    ...(sourcePort === 0 ? {} : { sourcePort }),
    ...(destPort === 0 ? {} : { destPort }),
    ...(party === undefined ? {} : { party }),
  };
}

function unknown(field: string, message: string): InputError {
  return new InputError("not-found", message, { details: { field } });
}

function unconfirmed(): InputError {
  const message = "flows: without any filter every flow would be deleted, which needs confirm: true";
  return new InputError("invalid-body", message, { details: { field: "confirm" } });
}
