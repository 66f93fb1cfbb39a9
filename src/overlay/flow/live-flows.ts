import type { Clock } from "../../host/clock.ts";
import { addressFilter } from "../../lib/net/address-filter.ts";
import type { OverlayFlow, OverlayFlowFilter } from "../../protocol/overlay/overlay.ts";
import type { FlowLog } from "./flow-log.ts";

export interface LiveFlow {
  /** Returns its record as if it ended now. */
  record(): OverlayFlow;
  /** Resets both sides. */
  cut(): void;
}

/** Bytes that a flow had carried when it was last read. */
interface Account {
  total: number;
  /** Bytes per full minute since the last record. */
  usage: { t: number; bytes: number }[];
  recordedAt: number;
}

const MINUTE_MS = 60_000;
const INTERIM_MS = 3_600_000;

/** Lists and cuts running flows. Adds a record per flow every hour, with bytes by the minute. */
export class LiveFlows {
  readonly #clock: Clock;
  readonly #log: Pick<FlowLog, "add">;
  readonly #flows = new Map<LiveFlow, Account>();
  #cancel: (() => void) | undefined;

  constructor(clock: Clock, log: Pick<FlowLog, "add">) {
    this.#clock = clock;
    this.#log = log;
  }

  begin(flow: LiveFlow): void {
    this.#flows.set(flow, { total: 0, usage: [], recordedAt: this.#clock.elapsed() });
    this.#arm();
  }

  /** Removes an ended flow and logs its record, or what `agreed` resolves to. */
  end(flow: LiveFlow | undefined, record: OverlayFlow, agreed?: Promise<OverlayFlow>): void {
    const account = flow && this.#flows.get(flow);
    if (flow !== undefined) this.#flows.delete(flow);
    const counted = (settled: OverlayFlow): OverlayFlow => {
      if (account === undefined || account.usage.length === 0) return settled;
      this.#count(account, settled, minuteOf(settled.endedAt));
      return { ...settled, usage: account.usage };
    };
    this.#log.add(
      agreed === undefined ? counted(record) : record,
      agreed?.then((settled) => counted(settled)),
    );
    if (this.#flows.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** Logs a flow that never started. */
  refused(record: OverlayFlow): void {
    this.#log.add(record);
  }

  /** Returns the matching flows, at most `limit`, and their total number. */
  list(filter: OverlayFlowFilter, limit: number): { readonly flows: OverlayFlow[]; readonly total: number } {
    const found = this.#matching(filter).map(({ record }) => record);
    return { flows: found.slice(0, limit), total: found.length };
  }

  /** Cuts the matching flows and returns them as `list` does. */
  cut(filter: OverlayFlowFilter, limit: number): { readonly flows: OverlayFlow[]; readonly total: number } {
    const found = this.#matching(filter);
    for (const { flow } of found) flow.cut();
    return { flows: found.slice(0, limit).map(({ record }) => record), total: found.length };
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #matching(filter: OverlayFlowFilter) {
    const isWanted = matcher(filter);
    return [...this.#flows.keys()]
      .map((flow) => ({ flow, record: flow.record() }))
      .filter(({ record }) => isWanted(record));
  }

  /** Reads every flow at the end of each minute. */
  #arm(): void {
    if (this.#cancel !== undefined) return;
    const minute = minuteOf(this.#clock.now());
    const left = (minute + 60) * 1000 - this.#clock.now();
    this.#cancel = this.#clock.after(left, () => {
      this.#cancel = undefined;
      for (const [flow, account] of this.#flows) this.#closeMinute(flow, account, minute);
      if (this.#flows.size > 0) this.#arm();
    });
  }

  #closeMinute(flow: LiveFlow, account: Account, minute: number): void {
    const record = flow.record();
    this.#count(account, record, minute);
    const elapsed = this.#clock.elapsed();
    if (elapsed - account.recordedAt < INTERIM_MS) return;
    account.recordedAt = elapsed;
    this.#log.add({ ...record, usage: account.usage, interim: true });
    account.usage = [];
  }

  #count(account: Account, { sourceBytes, destBytes }: OverlayFlow, minute: number): void {
    const total = sourceBytes + destBytes;
    if (total <= account.total) return;
    account.usage.push({ t: minute, bytes: total - account.total });
    account.total = total;
  }
}

/** Returns the minute of a time, in Unix seconds. */
function minuteOf(milliseconds: number): number {
  return Math.floor(milliseconds / MINUTE_MS) * 60;
}

function matcher({ protocol, source, dest, sourcePort, destPort, party }: OverlayFlowFilter) {
  const any = (): boolean => true;
  const isSource = source === undefined ? any : addressFilter(source);
  const isDest = dest === undefined ? any : addressFilter(dest);
  return (flow: OverlayFlow): boolean =>
    (protocol === undefined || flow.protocol === protocol) &&
    (sourcePort === undefined || flow.sourcePort === sourcePort) &&
    (destPort === undefined || flow.destPort === destPort) &&
    (party === undefined || [flow.sourceIp, flow.destIp, flow.backend?.ip].includes(party)) &&
    (source === undefined || isSource(flow.sourceIp)) &&
    (dest === undefined || (flow.destIp !== undefined && isDest(flow.destIp)));
}
